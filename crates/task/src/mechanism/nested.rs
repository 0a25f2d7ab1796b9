//! Monitors inside the task: each tells those above it what it measured, shortly.
//!
//! A monitor listens on a socket of an abstract name with its process id in it, and a monitor that starts or
//! ends connects to each of its ancestors, sends one message and goes. So nothing is passed on by the
//! environment, which a task may clear, and no file is left behind by one that is killed. Anybody may take
//! such a name, so both ask the kernel who the other is: an ancestor is told if it is of the same user or
//! root's, and heard is what descends from this monitor and is of the same user or root's. Root hears all
//! that descends from it.
//!
//! What a monitor inside measured is in what is measured here, so nothing of it is added. But what it saw
//! for sure is a lower bound for the whole, where that is not known completely.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::Uid;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::geteuid;
use skopos_model::task::{Completeness, ExitType, Identity, Nested, Reading, Summary, resource};

use super::{Launch, Mechanism};
use crate::ledger::Ledger;
use crate::proc;
use crate::sys::Pid;
use crate::sys::sockets::{self, Peer};

/// The name in reports.
pub(crate) const NAME: &str = "nested";

/// The most monitors that are listed; of more those that ended last are counted only.
const MAX_LISTED: usize = 100;

/// The longest message: a few readings and a command line that is cut.
const MAX_MESSAGE: usize = 16 * 1024;

/// The most of a command line that is told: as much as of a process.
const MAX_COMMAND: usize = 512;

/// The most ancestors that are told: more are a loop of monitors that start each other.
const MAX_ANCESTORS: usize = 64;

/// How long a monitor waits to be heard where many come at once. Then it is lost, and the monitor is listed without
/// what it measured: no task waits for a report.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// Connections that are taken at once, and that wait for it.
const MAX_AT_ONCE: usize = 64;

/// The most connections that are kept though nothing was said yet: a monitor speaks at once, so of more
/// the one that has been silent for longest is none.
const MAX_SILENT: usize = 64;

/// What is told of each.
const TOLD: [&str; 12] = [
    "wall_seconds",
    "cpu_seconds",
    "resident_bytes_max",
    "pss_bytes_max",
    "virtual_bytes_max",
    "swap_bytes_max",
    "processes_max",
    "processes_total",
    "threads_max",
    "read_bytes",
    "written_bytes",
    "opened_files",
];

/// Of these the value of a part says nothing about the whole.
const NO_BOUND: [&str; 1] = ["wall_seconds"];

#[derive(Default)]
pub(crate) struct NestedMonitors {
    listener: Option<OwnedFd>,
    /// Those that may speak and have not yet, in the order in which they came.
    silent: VecDeque<(OwnedFd, Pid)>,
    listed: Vec<Nested>,
    left_out: u64,
    /// The greatest value that any of them saw for sure, of each resource.
    sure: BTreeMap<&'static str, f64>,
}

fn address(monitor: Pid) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("skopos-run-{monitor}").as_bytes())?)
}

fn socket(more: SocketFlags) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | more;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

impl NestedMonitors {
    fn heard(&mut self, message: &[u8], sender: Pid) {
        let Ok(told) = serde_json::from_slice::<Nested>(message) else { return };
        // Whoever sends is who it says that it is.
        let told = Nested { pid: sender, ..told };
        for (name, reading) in &told.resources {
            let Some(known) = resource(name).filter(|r| !NO_BOUND.contains(&r.name)) else {
                continue;
            };
            if let Some(sure) = sure(known.name, reading) {
                let greatest = self.sure.entry(known.name).or_default();
                *greatest = greatest.max(sure);
            }
        }
        let runs = |one: &&mut Nested| one.pid == sender && one.end_seconds.is_none();
        let has_room = self.listed.len() < MAX_LISTED;
        match self.listed.iter_mut().find(runs) {
            Some(begun) => *begun = told,
            None if has_room => self.listed.push(told),
            // It was counted when it began.
            None => self.left_out += u64::from(told.end_seconds.is_none()),
        }
    }

    /// Takes a connection. False if there is none.
    fn accept(&mut self, ledger: &Ledger) -> io::Result<bool> {
        let Some(listener) = &self.listener else { return Ok(false) };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let connection = match net::accept_with(listener, flags) {
            Ok(connection) => connection,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let peer = sockets::peer(connection.as_fd())?;
        if self.is_believed(peer, geteuid(), ledger) {
            if self.silent.len() == MAX_SILENT {
                self.silent.pop_front();
            }
            self.silent.push_back((connection, peer.pid));
        }
        // All of them, since what a monitor said by an earlier connection came before this one.
        self.listen();
        Ok(true)
    }

    /// Hears those that have spoken by now.
    fn listen(&mut self) {
        for (connection, pid) in std::mem::take(&mut self.silent) {
            let mut bytes = [0; MAX_MESSAGE];
            match net::recv(&connection, &mut bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                    self.silent.push_back((connection, pid));
                }
                Ok((_, length)) if length <= MAX_MESSAGE => self.heard(&bytes[..length], pid),
                _ => {}
            }
        }
    }

    /// True for a process of the task, of a user who may tell `own` something. Of a process that is gone
    /// nobody knows where it came from: then it is one of the same user, who could do more than tell what
    /// is not so.
    fn is_believed(&self, peer: Peer, own: Uid, ledger: &Ledger) -> bool {
        let Peer { pid, user } = peer;
        let may_tell = user == own || user.is_root() || own.is_root();
        let monitor = std::process::id() as Pid;
        let is_known = || self.listed.iter().any(|one| one.pid == pid) || ledger.contains(pid);
        let is_gone = || proc::stat(pid).is_none() && user == own;
        let is_inside =
            || is_known() || ancestors(pid).any(|ancestor| ancestor == monitor) || is_gone();
        pid > 0 && may_tell && is_inside()
    }
}

/// The parent of a process, its parent, and so on.
fn ancestors(pid: Pid) -> impl Iterator<Item = Pid> {
    let parent = |pid: &Pid| proc::stat(*pid).map(|stat| stat.parent).filter(|parent| *parent > 0);
    std::iter::successors(parent(&pid), parent).take(MAX_ANCESTORS)
}

/// Sums of peaks that each process had at a moment of its own: of less than all processes they are no lower
/// bound for what was held at one time.
const SUMS_OF_PEAKS: [&str; 2] = ["resident_bytes_max", "virtual_bytes_max"];

/// The least that a value is for sure.
fn sure(name: &str, reading: &Reading) -> Option<f64> {
    let value = reading.value?;
    match reading.completeness {
        Completeness::None => None,
        // It was seen.
        Completeness::Sampled => Some(value),
        Completeness::All => Some((value - reading.error_bound?).max(0.0)),
        Completeness::AtLeast => (!SUMS_OF_PEAKS.contains(&name)).then_some(value),
    }
}

impl Mechanism for NestedMonitors {
    fn name(&self) -> &'static str {
        NAME
    }

    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        let listener = socket(SocketFlags::NONBLOCK)?;
        net::bind(&listener, &address(std::process::id() as Pid)?)?;
        net::listen(&listener, MAX_AT_ONCE as i32)?;
        self.listener = Some(listener);
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(|listener| listener.as_fd())
    }

    /// A connection that has nothing to say yet wakes nobody: it is heard with whatever happens next.
    fn readable(&mut self, ledger: &mut Ledger) {
        self.listen();
        for _ in 0..MAX_AT_ONCE {
            match self.accept(ledger) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    self.listener = None;
                    return;
                }
            }
        }
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        self.readable(ledger);
        for (name, least) in std::mem::take(&mut self.sure) {
            ledger.offers.raise_lower_bound(
                name,
                least,
                NAME,
                "a monitor inside the task saw this much",
            );
        }
        ledger.nested = (std::mem::take(&mut self.listed), self.left_out);
        self.silent.clear();
        self.listener = None;
    }
}

/// Tells the monitors above this one.
pub(crate) fn announce(mut told: Nested) {
    for pid in ancestors(told.pid) {
        let Ok(text) = serde_json::to_vec(&told) else { return };
        // Most are no monitors, and nobody hears.
        if say(pid, &text, geteuid()).is_ok() {
            // The first that hears is the one that this one is directly inside of.
            told.inside_of.get_or_insert(pid);
        }
    }
}

/// Sends a message to a monitor that `own` or root runs.
fn say(monitor: Pid, text: &[u8], own: Uid) -> io::Result<()> {
    let socket = socket(SocketFlags::empty())?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(MAX_WAIT))?;
    net::connect(&socket, &address(monitor)?)?;
    let peer = sockets::peer(socket.as_fd())?;
    if peer.pid != monitor || !(peer.user == own || peer.user.is_root()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    net::send(&socket, text, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A monitor whose task has begun.
pub(crate) fn begun(task: &Identity, level: u8, start_seconds: f64) -> Nested {
    let cut = |text: &str| text.chars().take(MAX_COMMAND).collect();
    Nested {
        pid: std::process::id() as Pid,
        inside_of: None,
        class: cut(&task.class),
        command: cut(&task.command.join(" ")),
        level,
        start_seconds,
        end_seconds: None,
        exit_type: ExitType::Unknown,
        status: None,
        signal: None,
        resources: BTreeMap::new(),
    }
}

/// A monitor whose task is over.
pub(crate) fn ended(summary: &Summary) -> Nested {
    let of = |name: &&str| {
        let reading = summary.resources.get(*name).filter(|r| r.value.is_some())?;
        Some(((*name).to_owned(), Reading { reason: None, ..reading.clone() }))
    };
    Nested {
        end_seconds: Some(summary.end_seconds),
        exit_type: summary.ended.exit_type,
        status: summary.ended.status,
        signal: summary.ended.signal,
        resources: TOLD.iter().filter_map(of).collect(),
        ..begun(&summary.task, summary.level, summary.start_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(pid: Pid, end_seconds: Option<f64>, memory: f64, bound: f64) -> Vec<u8> {
        let reading = Reading {
            value: Some(memory),
            unit: "bytes".into(),
            method: "ptrace".into(),
            completeness: Completeness::All,
            error_bound: Some(bound),
            reason: None,
        };
        let over = if end_seconds.is_some() { ExitType::Normal } else { ExitType::Unknown };
        serde_json::to_vec(&Nested {
            pid,
            inside_of: None,
            class: "c".into(),
            command: "c".into(),
            level: 2,
            start_seconds: 1.0,
            end_seconds,
            exit_type: over,
            status: end_seconds.map(|_| 0),
            signal: None,
            resources: [("resident_bytes_max".to_owned(), reading)].into(),
        })
        .expect("JSON")
    }

    #[test]
    fn what_is_listed_is_bounded_and_what_was_seen_for_sure_raises_the_whole() {
        let (mut inside, mut ledger) = (NestedMonitors::default(), Ledger::new());
        for pid in 1..=150 {
            inside.heard(&message(pid, None, 0.0, 0.0), pid);
            inside.heard(&message(pid, Some(2.0), f64::from(pid), 10.0), pid);
        }
        inside.heard(b"nonsense", 7);
        inside.heard(&message(3, None, 0.0, 0.0), 3);
        assert_eq!(inside.listed.len(), MAX_LISTED);
        assert!(inside.listed.iter().all(|one| one.exit_type == ExitType::Normal));
        assert_eq!(inside.left_out, 51, "50, and one that had the id of another");
        inside.finish(&mut ledger);
        let reading = ledger.offers.best("resident_bytes_max", "");
        assert_eq!((reading.value, reading.completeness), (Some(140.0), Completeness::AtLeast));
        assert_eq!(ledger.nested.1, 51);
    }

    #[test]
    fn a_lower_bound_is_sure_and_a_part_of_a_sum_of_peaks_is_not() {
        let reading = |completeness, error_bound| Reading {
            value: Some(100.0),
            unit: String::new(),
            method: "ptrace".into(),
            completeness,
            error_bound,
            reason: None,
        };
        for (completeness, bound, of_sum, of_peaks) in [
            (Completeness::All, Some(10.0), Some(90.0), Some(90.0)),
            (Completeness::All, None, None, None),
            (Completeness::AtLeast, None, Some(100.0), None),
            (Completeness::Sampled, None, Some(100.0), Some(100.0)),
            (Completeness::None, None, None, None),
        ] {
            let reading = reading(completeness, bound);
            assert_eq!(sure("read_bytes", &reading), of_sum, "{completeness:?}");
            assert_eq!(sure("resident_bytes_max", &reading), of_peaks, "{completeness:?}");
        }
    }

    #[test]
    fn a_stranger_is_not_heard_and_who_is_silent_holds_up_nobody() {
        let (mut inside, mut ledger) = (NestedMonitors::default(), Ledger::new());
        inside.prepare(&mut Launch::default()).expect("a socket");
        let own = std::process::id() as Pid;
        let connect = || {
            let socket = socket(SocketFlags::empty()).expect("a socket");
            net::connect(&socket, &address(own).expect("an address")).expect("connected");
            socket
        };
        // This process is no descendant of itself.
        say(own, &message(1, None, 0.0, 0.0), geteuid()).expect("sent");
        inside.readable(&mut ledger);
        assert!(inside.listed.is_empty());
        ledger.process_started(own, 1);
        let silent: Vec<OwnedFd> = (0..MAX_SILENT + 5)
            .map(|_| {
                let socket = connect();
                inside.readable(&mut ledger);
                socket
            })
            .collect();
        assert_eq!(inside.silent.len(), MAX_SILENT);
        say(own, &message(1, None, 0.0, 0.0), geteuid()).expect("sent");
        inside.readable(&mut ledger);
        assert_eq!(inside.listed[0].pid, own, "as the kernel says");
        assert_eq!(inside.listed.len(), 1);
        // Who came and spoke later is heard all the same, and before who came after it, though nobody
        // listened in between.
        let last = silent.last().expect("there are some");
        net::send(last, &message(1, Some(2.0), 0.0, 0.0), SendFlags::empty()).expect("sent");
        say(own, &message(1, None, 0.0, 0.0), geteuid()).expect("sent");
        drop(silent);
        assert!(inside.accept(&ledger).expect("it is there"));
        inside.finish(&mut ledger);
        let ends: Vec<_> = ledger.nested.0.iter().map(|one| one.end_seconds).collect();
        assert_eq!(ends, [Some(2.0), None]);
        assert!(inside.silent.is_empty());
    }

    #[test]
    fn who_is_heard_descends_and_is_of_the_same_user_or_root() {
        let (inside, mut ledger) = (NestedMonitors::default(), Ledger::new());
        let (root, one, other) = (Uid::ROOT, Uid::from_raw(1001), Uid::from_raw(1002));
        ledger.process_started(7, 1);
        for (pid, user, own, is_believed) in [
            (7, one, one, true),
            (7, root, one, true),
            (7, other, one, false),
            (7, other, root, true),
            (1, one, one, false),
            (Pid::MAX, one, one, true),
            (Pid::MAX, root, one, false),
            (0, one, one, false),
        ] {
            let told = inside.is_believed(Peer { pid, user }, own, &ledger);
            assert_eq!(told, is_believed, "{pid} of {user:?} to {own:?}");
        }
    }

    #[test]
    fn a_name_that_another_has_taken_is_told_nothing() {
        let listener = socket(SocketFlags::NONBLOCK).expect("a socket");
        // No process has this id, so somebody else listens.
        let nobody = Pid::MAX - std::process::id() as Pid;
        net::bind(&listener, &address(nobody).expect("an address")).expect("bound");
        net::listen(&listener, 1).expect("it listens");
        let refused = say(nobody, b"secret", geteuid()).expect_err("it is not that process");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let connection = net::accept(&listener).expect("it connected");
        let mut bytes = [0; 8];
        let (_, length) = net::recv(connection, &mut bytes, RecvFlags::empty()).expect("it went");
        assert_eq!(length, 0, "{bytes:?}");
    }
}
