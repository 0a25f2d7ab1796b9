//! Which mechanisms are used: the best set that this user may use on this machine.

use std::fs;
use std::path::{Path, PathBuf};

use skopos_model::task::{Limits, MechanismUse};

use super::bpf::{self, Bpf};
use super::cgroup::{self, Cgroup};
use super::connector::{self, Connector};
use super::energy::{self, Energy};
use super::fanotify::{self, Fanotify};
use super::inotify::{self, Inotify};
use super::nested::{self, Inside};
use super::nvml::{self, Nvml};
use super::perf::{self, Perf};
use super::preload::{self, Preload};
use super::procfs::{self, Procfs};
use super::ptrace::{self, Ptrace};
use super::seccomp::{self, Seccomp};
use super::taskstats::{self, Taskstats};
use super::tree::{self, Tree};
use super::wait4::{self, Wait4};
use super::{Launch, Mechanism};
use crate::monitor::Order;
use crate::proc;
use crate::seen::Seen;
use crate::sys::Pid;

/// The level that is taken if none is asked for: every process at its birth and end.
const USUAL_LEVEL: u8 = 2;

const TOLD_BY_BPF: &str = "bpf tells of births and ends";

const FILES_BY_BPF: &str = "`bpf` tells of the files";

/// All of them, by the names that reports and `--mechanism` have for them, in the order of reports.
pub const MECHANISMS: [&str; 16] = [
    bpf::NAME,
    ptrace::NAME,
    connector::NAME,
    wait4::NAME,
    procfs::NAME,
    cgroup::NAME,
    taskstats::NAME,
    perf::NAME,
    seccomp::NAME,
    preload::NAME,
    energy::NAME,
    nvml::NAME,
    fanotify::NAME,
    inotify::NAME,
    tree::NAME,
    nested::NAME,
];

/// Why a mechanism is left out that could be used.
const NOT_NAMED: &str = "others were named";

/// What would be used here, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The level that is reached.
    pub level: u8,
    /// Each mechanism.
    pub uses: Vec<MechanismUse>,
}

/// The mechanisms of one run.
pub(crate) struct Team {
    pub(crate) level: u8,
    pub(crate) mechanisms: Vec<Box<dyn Mechanism>>,
    pub(crate) uses: Vec<MechanismUse>,
    pub(crate) launch: Launch,
    only: Option<Vec<String>>,
    /// The task runs already.
    is_found: bool,
    /// What is done with each file is told by BPF.
    has_files: bool,
}

/// Why nobody is told how a task ended that is neither a child nor traced.
const NOT_WAITED_FOR: &str = "it is not the monitor's child, and it is not traced";

/// What would be used here for an order, without running it.
pub fn choose(order: &Order) -> Choice {
    let Team { level, uses, .. } = gather(order);
    Choice { level, uses }
}

/// Prepares what can be used.
pub(crate) fn gather(order: &Order) -> Team {
    let wanted = order.level.unwrap_or(USUAL_LEVEL);
    let mut team = Team {
        level: 1,
        mechanisms: Vec::new(),
        uses: Vec::new(),
        launch: Launch::default(),
        only: order.only.clone(),
        is_found: order.attach.is_some(),
        has_files: false,
    };
    // Who tells of all comes first: it has those in its sums, too, that nobody waits for.
    let is_told = team.add_teller(wanted, order);
    team.add(
        wait4::NAME,
        "processor time, faults and bytes of all that ended, exact",
        Box::new(Wait4),
    );
    team.level = if team.has_files { 3 } else { 1 + u8::from(is_told) };
    if order.attach.is_some() && !team.traces() {
        team.gave_up(wait4::NAME, NOT_WAITED_FOR);
    }
    let looks = if is_told {
        "values between births and ends"
    } else {
        "processes, memory and bytes, now and then"
    };
    team.add(procfs::NAME, looks, Box::new(Procfs::new(!is_told, &order.limits)));
    team.add_or_why(
        cgroup::NAME,
        "processor time of all, the group's memory, limits that the kernel keeps",
        Box::new(Cgroup::new(&order.limits)),
    );
    team.add_taskstats(wanted);
    team.add_perf(wanted);
    team.add_seccomp(wanted, order);
    team.add_preload(wanted);
    let energy = Box::new(Energy::new(Path::new(energy::POWERCAP)));
    team.add_or_why(energy::NAME, "what the processors count of the machine's energy", energy);
    let nvml = Box::new(Nvml::new(nvml::LIBRARY));
    team.add_or_why(nvml::NAME, "GPUs on which the task has a context, and their memory", nvml);
    team.add_opens(wanted, order);
    let folders = watched(order);
    if folders.is_empty() {
        team.left_out(tree::NAME, "no folder is watched: name some with --watch");
    } else {
        team.add(
            tree::NAME,
            "files and space in the watched folders",
            Box::new(Tree::new(folders)),
        );
    }
    // The last: what it tells counts where nobody else knows all.
    let why = "what monitors inside the task saw, as a lower bound";
    team.add_or_why(nested::NAME, why, Box::new(Inside::default()));
    if let Some(seconds) = order.limits.of("cpu_seconds").filter(|_| order.attach.is_none()) {
        // For a process that the monitor would be too late for, and in case it dies. A second more,
        // so that the monitor sees it first and can say so.
        team.launch.cpu_seconds = Some(seconds.ceil() as u64 + 1);
    }
    team
}

/// Folders whose files count: those that were named; where files are limited, else the present one.
fn watched(order: &Order) -> Vec<PathBuf> {
    let is_limited =
        ["files", "footprint_bytes"].iter().any(|name| order.limits.of(name).is_some());
    if order.watch.is_empty() && is_limited {
        return vec![match order.attach {
            Some(pid) => fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default(),
            None => PathBuf::from("."),
        }];
    }
    order.watch.clone()
}

impl Team {
    fn add(&mut self, name: &str, why: &str, mechanism: Box<dyn Mechanism>) {
        if !self.may_use(name) {
            return self.left_out(name, NOT_NAMED);
        }
        if let Err(why) = self.joins(&*mechanism) {
            return self.left_out(name, why);
        }
        self.mechanisms.push(mechanism);
        self.uses.push(MechanismUse { name: name.to_owned(), used: true, why: why.to_owned() });
    }

    fn add_or_why(&mut self, name: &str, why: &str, mut mechanism: Box<dyn Mechanism>) {
        if !self.may_use(name) {
            return self.left_out(name, NOT_NAMED);
        }
        if let Err(why) = self.joins(&*mechanism) {
            return self.left_out(name, why);
        }
        match mechanism.prepare(&mut self.launch) {
            Ok(()) => {
                let gives = mechanism.gives();
                self.add(name, gives.as_deref().unwrap_or(why), mechanism);
            }
            Err(e) => self.left_out(name, &e.to_string()),
        }
    }

    fn joins(&self, mechanism: &dyn Mechanism) -> Result<(), &'static str> {
        if self.is_found { mechanism.joins() } else { Ok(()) }
    }

    /// Who tells of births and ends: one of them, for told twice they would count twice.
    fn add_teller(&mut self, wanted: u8, order: &Order) -> bool {
        let by_bpf = self.add_bpf(wanted, order);
        if by_bpf {
            self.left_out(ptrace::NAME, TOLD_BY_BPF);
        }
        let traces = !by_bpf && wanted >= 2 && self.add_ptrace();
        let teller = match (by_bpf, traces) {
            (true, _) => Some(TOLD_BY_BPF),
            (_, true) => Some("ptrace tells of births and ends"),
            _ => None,
        };
        self.add_connector(wanted, teller) || teller.is_some()
    }

    fn add_bpf(&mut self, wanted: u8, order: &Order) -> bool {
        if wanted < 2 && !self.is_named(bpf::NAME) {
            self.left_out(bpf::NAME, "level 1 was asked for");
            return false;
        }
        if self.is_named(seccomp::NAME) {
            self.left_out(bpf::NAME, "`seccomp` needs ptrace, and one tells of births and ends");
            return false;
        }
        let limits = &order.limits;
        // To look at every system call is dearer than to count inside of the program, where that can be.
        let is_static = || order.command.first().is_some_and(|command| seccomp::is_static(command));
        let is_wanted = match self.only {
            Some(_) => self.may_use(bpf::NAME) && !self.may_use(preload::NAME),
            None => is_static(),
        };
        if wanted >= 3 && !self.is_found && is_wanted {
            let why = "every process at its birth and end, opens, operations and bytes of each file and \
                       peer; nothing is stopped";
            let mut with_files = Bpf::new(limits, true);
            if with_files.prepare(&mut self.launch).is_ok() {
                self.add(bpf::NAME, why, Box::new(with_files));
                self.has_files = self.has(bpf::NAME);
                return self.has_files;
            }
        }
        let why = "every process at its birth and end, without stopping any: number, memory, bytes, status";
        self.add_or_why(bpf::NAME, why, Box::new(Bpf::new(limits, false)));
        self.has(bpf::NAME)
    }

    /// True if threads of the task are traced.
    pub(crate) fn traces(&self) -> bool {
        self.has(ptrace::NAME)
    }

    fn has(&self, name: &str) -> bool {
        self.mechanisms.iter().any(|m| m.name() == name)
    }

    fn add_ptrace(&mut self) -> bool {
        if !self.may_use(ptrace::NAME) {
            self.left_out(ptrace::NAME, NOT_NAMED);
            return false;
        }
        match ptrace::may_trace() {
            Ok(()) => {
                let why = "every process at its birth and end: number, memory, bytes, status";
                self.add(ptrace::NAME, why, Box::new(Ptrace::default()));
                true
            }
            Err(why) => {
                self.left_out(ptrace::NAME, &why);
                false
            }
        }
    }

    fn add_taskstats(&mut self, wanted: u8) {
        if wanted < 2 && !self.is_named(taskstats::NAME) {
            return self.left_out(taskstats::NAME, "level 1 was asked for");
        }
        let is_told = self.has(ptrace::NAME) || self.has(bpf::NAME);
        if is_told && !proc::accounts_for_delays() && !self.is_named(taskstats::NAME) {
            return self.left_out(taskstats::NAME, proc::NO_DELAYS);
        }
        let why = "what every thread was delayed by: processor, storage, memory";
        self.add_or_why(taskstats::NAME, why, Box::new(Taskstats::default()));
    }

    /// Counters make each birth dearer: they are there for those who ask.
    fn add_perf(&mut self, wanted: u8) {
        match perf::may_count() {
            Err(why) => self.left_out(perf::NAME, &why),
            Ok(()) if wanted < 3 && !self.is_named(perf::NAME) => {
                let why =
                    "instructions and cycles; dear for short processes, so at level 3 or named";
                self.left_out(perf::NAME, why);
            }
            Ok(()) if self.is_named(perf::NAME) || !perf::is_virtual() => {
                let why = "instructions and cycles, processor time of what nobody waits for too";
                self.add(perf::NAME, why, Box::new(Perf::new(true)));
            }
            Ok(()) => {
                let why = format!("processor time of what nobody waits for too; {}", perf::VIRTUAL);
                self.add(perf::NAME, &why, Box::new(Perf::new(false)));
            }
        }
    }

    /// True unless others were named.
    fn may_use(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|n| n == name))
    }

    /// True if it was named, rather than left to be chosen.
    fn is_named(&self, name: &str) -> bool {
        self.only.is_some() && self.may_use(name)
    }

    /// It adds files to what level 2 tells; where that is not reached, the level stays as it is.
    fn add_preload(&mut self, wanted: u8) {
        if let Err(why) = preload::is_there() {
            return self.left_out(preload::NAME, &why);
        }
        if wanted < 3 && !self.is_named(preload::NAME) {
            return self.left_out(preload::NAME, "files and peers one by one: at level 3 or named");
        }
        if self.has_files {
            return self.left_out(preload::NAME, FILES_BY_BPF);
        }
        if self.has(seccomp::NAME) {
            return self.left_out(preload::NAME, "`seccomp` tells of the files");
        }
        let why = "opens, operations and bytes of each file and peer, of dynamic programs";
        self.add_or_why(preload::NAME, why, Box::new(Preload::default()));
        if self.level == 2 && self.has(preload::NAME) {
            self.level = 3;
        }
    }

    /// Like `preload` it tells what was done with each file: one of them does. By itself it is there for
    /// programs that nothing can be loaded into.
    fn add_seccomp(&mut self, wanted: u8, order: &Order) {
        let name = seccomp::NAME;
        let is_static = order.command.first().is_some_and(|command| seccomp::is_static(command));
        if wanted < 3 && !self.is_named(name) {
            return self.left_out(name, "files of static programs: at level 3 or named");
        }
        if self.has_files {
            return self.left_out(name, FILES_BY_BPF);
        }
        if !is_static && (!self.is_named(name) || self.may_use(preload::NAME)) {
            return self
                .left_out(name, "the program is not static: `preload` tells more of its files");
        }
        let Some(at) = self.mechanisms.iter().position(|m| m.name() == ptrace::NAME) else {
            let why = "without ptrace, calls that a signal interrupts could not be made again";
            return self.left_out(name, why);
        };
        let why = "bytes of each file by the positions of descriptors; no program that is started \
                   gets more privileges than it has, unless an administrator starts it";
        self.add_or_why(name, why, Box::new(Seccomp::default()));
        if self.mechanisms.last().is_some_and(|m| m.name() == name)
            && let Some(mechanism) = self.mechanisms.pop()
        {
            // Of a thread that stopped it is told before that goes on.
            self.mechanisms.insert(at, mechanism);
            self.level = self.level.max(3);
        }
    }

    /// Who tells of opens in the watched folders: the one that knows whose they are, if it may be used.
    fn add_opens(&mut self, wanted: u8, order: &Order) {
        for name in [fanotify::NAME, inotify::NAME] {
            let folders = order.watch.clone();
            if folders.is_empty() {
                self.left_out(name, "no folder is watched: name some with --watch");
            } else if wanted < 3 && !self.is_named(name) {
                let why =
                    "opens in watched folders; dear where there are many, so at level 3 or named";
                self.left_out(name, why);
            } else if name == fanotify::NAME && self.level < 2 {
                self.left_out(
                    name,
                    "nobody tells of births, so it would not be known whose opens are",
                );
            } else if name == fanotify::NAME {
                let why = "files that the task opens and writes in the watched folders";
                self.add_or_why(name, why, Box::new(Fanotify::new(folders)));
            } else if self.has(fanotify::NAME) {
                self.left_out(name, "`fanotify` tells whose opens they are");
            } else {
                let why = "files that are opened in the watched folders, by whomever";
                self.add_or_why(name, why, Box::new(Inotify::new(folders)));
            }
        }
    }

    fn add_connector(&mut self, wanted: u8, teller: Option<&str>) -> bool {
        let name = connector::NAME;
        if teller.is_some() || wanted < 2 && !self.is_named(name) {
            self.left_out(name, teller.unwrap_or("level 1 was asked for"));
            return false;
        }
        let why = "every process at its birth and end: number and status";
        self.add_or_why(name, why, Box::new(Connector::default()));
        self.has(name)
    }

    fn left_out(&mut self, name: &str, why: &str) {
        self.uses.push(MechanismUse { name: name.to_owned(), used: false, why: why.to_owned() });
    }

    /// A mechanism turned out not to work after all.
    pub(crate) fn gave_up(&mut self, name: &str, why: &str) {
        self.mechanisms.retain(|m| m.name() != name);
        if let Some(found) = self.uses.iter_mut().find(|u| u.name == name) {
            found.used = false;
            why.clone_into(&mut found.why);
        }
    }

    /// Births and ends are not told by ptrace: the connector tells them, else they are looked for.
    pub(crate) fn search(&mut self, root: Pid, limits: &Limits, seen: &mut Seen) {
        if self.has(connector::NAME) {
            return;
        }
        self.uses.retain(|u| u.name != connector::NAME);
        if self.is_found {
            self.gave_up(wait4::NAME, NOT_WAITED_FOR);
        }
        if self.add_connector(self.level, None)
            && let Some(connector) = self.mechanisms.last_mut()
            && connector.attach(root, seen).is_ok()
        {
            return;
        }
        self.level = 1;
        if let Some(found) = self.mechanisms.iter_mut().find(|m| m.name() == procfs::NAME) {
            *found = Box::new(Procfs::new(true, limits));
        }
    }
}
