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
use super::nested::{self, NestedMonitors};
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
use crate::ledger::Ledger;
use crate::order::Order;
use crate::proc;
use crate::sys::Pid;

/// The level that is taken if none is asked for: every process at its birth and end.
const USUAL_LEVEL: u8 = 2;

const TRACKED_BY_BPF: &str = "bpf tells of births and ends";

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
pub(crate) struct MechanismSet {
    pub(crate) level: u8,
    pub(crate) mechanisms: Vec<Box<dyn Mechanism>>,
    pub(crate) uses: Vec<MechanismUse>,
    pub(crate) launch: Launch,
    only: Option<Vec<String>>,
    /// The task runs already.
    is_attach: bool,
    /// What is done with each file is told by BPF.
    counts_files: bool,
}

/// Why nobody is told how a task ended that is neither a child nor traced.
const NOT_WAITED_FOR: &str = "it is not the monitor's child, and it is not traced";

/// What would be used here for an order, without running it.
pub fn choose(order: &Order) -> Choice {
    let MechanismSet { level, uses, .. } = select(order);
    Choice { level, uses }
}

/// Prepares what can be used.
pub(crate) fn select(order: &Order) -> MechanismSet {
    let wanted = order.level.unwrap_or(USUAL_LEVEL);
    let mut set = MechanismSet {
        level: 1,
        mechanisms: Vec::new(),
        uses: Vec::new(),
        launch: Launch::default(),
        only: order.only.clone(),
        is_attach: order.attach.is_some(),
        counts_files: false,
    };
    // Who tells of all comes first: it has those in its sums, too, that nobody waits for.
    let is_tracked = set.add_tracker(wanted, order);
    set.add(
        wait4::NAME,
        "processor time, faults and bytes of all that ended, exact",
        Box::new(Wait4),
    );
    set.level = if set.counts_files { 3 } else { 1 + u8::from(is_tracked) };
    if order.attach.is_some() && !set.traces() {
        set.disable(wait4::NAME, NOT_WAITED_FOR);
    }
    let looks = if is_tracked {
        "values between births and ends"
    } else {
        "processes, memory and bytes, now and then"
    };
    set.add(procfs::NAME, looks, Box::new(Procfs::new(!is_tracked, &order.limits)));
    set.try_add(
        cgroup::NAME,
        "processor time of all, the group's memory, limits that the kernel keeps",
        Box::new(Cgroup::new(&order.limits)),
    );
    set.add_taskstats(wanted);
    set.add_perf(wanted);
    set.add_seccomp(wanted, order);
    set.add_preload(wanted);
    let energy = Box::new(Energy::new(Path::new(energy::POWERCAP)));
    set.try_add(energy::NAME, "what the processors count of the machine's energy", energy);
    let nvml = Box::new(Nvml::new(nvml::LIBRARY));
    set.try_add(nvml::NAME, "GPUs on which the task has a context, and their memory", nvml);
    set.add_opens(wanted, order);
    let folders = watched(order);
    if folders.is_empty() {
        set.skip(tree::NAME, "no folder is watched: name some with --watch");
    } else {
        set.add(tree::NAME, "files and space in the watched folders", Box::new(Tree::new(folders)));
    }
    // The last: what it tells counts where nobody else knows all.
    let why = "what monitors inside the task saw, as a lower bound";
    set.try_add(nested::NAME, why, Box::new(NestedMonitors::default()));
    if let Some(seconds) = order.limits.of("cpu_seconds").filter(|_| order.attach.is_none()) {
        // For a process that the monitor would be too late for, and in case it dies. A second more,
        // so that the monitor sees it first and can say so.
        set.launch.cpu_seconds = Some(seconds.ceil() as u64 + 1);
    }
    set
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

impl MechanismSet {
    fn add(&mut self, name: &str, why: &str, mechanism: Box<dyn Mechanism>) {
        if !self.is_allowed(name) {
            return self.skip(name, NOT_NAMED);
        }
        if let Err(why) = self.can_attach(&*mechanism) {
            return self.skip(name, why);
        }
        self.mechanisms.push(mechanism);
        self.uses.push(MechanismUse { name: name.to_owned(), used: true, why: why.to_owned() });
    }

    fn try_add(&mut self, name: &str, why: &str, mut mechanism: Box<dyn Mechanism>) {
        if !self.is_allowed(name) {
            return self.skip(name, NOT_NAMED);
        }
        if let Err(why) = self.can_attach(&*mechanism) {
            return self.skip(name, why);
        }
        match mechanism.prepare(&mut self.launch) {
            Ok(()) => {
                let gives = mechanism.provides();
                self.add(name, gives.as_deref().unwrap_or(why), mechanism);
            }
            Err(e) => self.skip(name, &e.to_string()),
        }
    }

    fn can_attach(&self, mechanism: &dyn Mechanism) -> Result<(), &'static str> {
        if self.is_attach { mechanism.can_attach() } else { Ok(()) }
    }

    /// Who tells of births and ends: one of them, for told twice they would count twice.
    fn add_tracker(&mut self, wanted: u8, order: &Order) -> bool {
        let by_bpf = self.add_bpf(wanted, order);
        if by_bpf {
            self.skip(ptrace::NAME, TRACKED_BY_BPF);
        }
        let traces = !by_bpf && wanted >= 2 && self.add_ptrace();
        let tracker = match (by_bpf, traces) {
            (true, _) => Some(TRACKED_BY_BPF),
            (_, true) => Some("ptrace tells of births and ends"),
            _ => None,
        };
        self.add_connector(wanted, tracker) || tracker.is_some()
    }

    fn add_bpf(&mut self, wanted: u8, order: &Order) -> bool {
        if wanted < 2 && !self.is_named(bpf::NAME) {
            self.skip(bpf::NAME, "level 1 was asked for");
            return false;
        }
        if self.is_named(seccomp::NAME) {
            self.skip(bpf::NAME, "`seccomp` needs ptrace, and one tells of births and ends");
            return false;
        }
        let limits = &order.limits;
        // To look at every system call is dearer than to count inside of the program, where that can be.
        let is_static = || order.command.first().is_some_and(|command| seccomp::is_static(command));
        let is_wanted = match self.only {
            Some(_) => self.is_allowed(bpf::NAME) && !self.is_allowed(preload::NAME),
            None => is_static(),
        };
        if wanted >= 3 && !self.is_attach && is_wanted {
            let why = "every process at its birth and end, opens, operations and bytes of each file and \
                       peer; nothing is stopped";
            let mut with_files = Bpf::new(limits, true);
            if with_files.prepare(&mut self.launch).is_ok() {
                self.add(bpf::NAME, why, Box::new(with_files));
                self.counts_files = self.has(bpf::NAME);
                return self.counts_files;
            }
        }
        let why = "every process at its birth and end, without stopping any: number, memory, bytes, status";
        self.try_add(bpf::NAME, why, Box::new(Bpf::new(limits, false)));
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
        if !self.is_allowed(ptrace::NAME) {
            self.skip(ptrace::NAME, NOT_NAMED);
            return false;
        }
        match ptrace::may_trace() {
            Ok(()) => {
                let why = "every process at its birth and end: number, memory, bytes, status";
                self.add(ptrace::NAME, why, Box::new(Ptrace::default()));
                true
            }
            Err(why) => {
                self.skip(ptrace::NAME, &why);
                false
            }
        }
    }

    fn add_taskstats(&mut self, wanted: u8) {
        if wanted < 2 && !self.is_named(taskstats::NAME) {
            return self.skip(taskstats::NAME, "level 1 was asked for");
        }
        let is_tracked = self.has(ptrace::NAME) || self.has(bpf::NAME);
        if is_tracked && !proc::accounts_for_delays() && !self.is_named(taskstats::NAME) {
            return self.skip(taskstats::NAME, proc::NO_DELAYS);
        }
        let why = "what every thread was delayed by: processor, storage, memory";
        self.try_add(taskstats::NAME, why, Box::new(Taskstats::default()));
    }

    /// Counters make each birth dearer: they are there for those who ask.
    fn add_perf(&mut self, wanted: u8) {
        match perf::may_count() {
            Err(why) => self.skip(perf::NAME, &why),
            Ok(()) if wanted < 3 && !self.is_named(perf::NAME) => {
                let why =
                    "instructions and cycles; dear for short processes, so at level 3 or named";
                self.skip(perf::NAME, why);
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
    fn is_allowed(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|n| n == name))
    }

    /// True if it was named, rather than left to be chosen.
    fn is_named(&self, name: &str) -> bool {
        self.only.is_some() && self.is_allowed(name)
    }

    /// It adds files to what level 2 tells; where that is not reached, the level stays as it is.
    fn add_preload(&mut self, wanted: u8) {
        if let Err(why) = preload::is_there() {
            return self.skip(preload::NAME, &why);
        }
        if wanted < 3 && !self.is_named(preload::NAME) {
            return self.skip(preload::NAME, "files and peers one by one: at level 3 or named");
        }
        if self.counts_files {
            return self.skip(preload::NAME, FILES_BY_BPF);
        }
        if self.has(seccomp::NAME) {
            return self.skip(preload::NAME, "`seccomp` tells of the files");
        }
        let why = "opens, operations and bytes of each file and peer, of dynamic programs";
        self.try_add(preload::NAME, why, Box::new(Preload::default()));
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
            return self.skip(name, "files of static programs: at level 3 or named");
        }
        if self.counts_files {
            return self.skip(name, FILES_BY_BPF);
        }
        if !is_static && (!self.is_named(name) || self.is_allowed(preload::NAME)) {
            return self.skip(name, "the program is not static: `preload` tells more of its files");
        }
        let Some(at) = self.mechanisms.iter().position(|m| m.name() == ptrace::NAME) else {
            let why = "without ptrace, calls that a signal interrupts could not be made again";
            return self.skip(name, why);
        };
        let why = "bytes of each file by the positions of descriptors; no program that is started \
                   gets more privileges than it has, unless an administrator starts it";
        self.try_add(name, why, Box::new(Seccomp::default()));
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
                self.skip(name, "no folder is watched: name some with --watch");
            } else if wanted < 3 && !self.is_named(name) {
                let why =
                    "opens in watched folders; dear where there are many, so at level 3 or named";
                self.skip(name, why);
            } else if name == fanotify::NAME && self.level < 2 {
                self.skip(name, "nobody tells of births, so it would not be known whose opens are");
            } else if name == fanotify::NAME {
                let why = "files that the task opens and writes in the watched folders";
                self.try_add(name, why, Box::new(Fanotify::new(folders)));
            } else if self.has(fanotify::NAME) {
                self.skip(name, "`fanotify` tells whose opens they are");
            } else {
                let why = "files that are opened in the watched folders, by whomever";
                self.try_add(name, why, Box::new(Inotify::new(folders)));
            }
        }
    }

    fn add_connector(&mut self, wanted: u8, tracker: Option<&str>) -> bool {
        let name = connector::NAME;
        if tracker.is_some() || wanted < 2 && !self.is_named(name) {
            self.skip(name, tracker.unwrap_or("level 1 was asked for"));
            return false;
        }
        let why = "every process at its birth and end: number and status";
        self.try_add(name, why, Box::new(Connector::default()));
        self.has(name)
    }

    fn skip(&mut self, name: &str, why: &str) {
        self.uses.push(MechanismUse { name: name.to_owned(), used: false, why: why.to_owned() });
    }

    /// A mechanism turned out not to work after all.
    pub(crate) fn disable(&mut self, name: &str, why: &str) {
        self.mechanisms.retain(|m| m.name() != name);
        if let Some(found) = self.uses.iter_mut().find(|u| u.name == name) {
            found.used = false;
            why.clone_into(&mut found.why);
        }
    }

    /// Births and ends are not told by ptrace: the connector tells them, else they are looked for.
    pub(crate) fn fall_back(&mut self, root: Pid, limits: &Limits, ledger: &mut Ledger) {
        if self.has(connector::NAME) {
            return;
        }
        self.uses.retain(|u| u.name != connector::NAME);
        if self.is_attach {
            self.disable(wait4::NAME, NOT_WAITED_FOR);
        }
        if self.add_connector(self.level, None)
            && let Some(connector) = self.mechanisms.last_mut()
            && connector.attach(root, ledger).is_ok()
        {
            return;
        }
        self.level = 1;
        if let Some(found) = self.mechanisms.iter_mut().find(|m| m.name() == procfs::NAME) {
            *found = Box::new(Procfs::new(true, limits));
        }
    }
}
