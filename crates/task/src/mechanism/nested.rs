//! Monitors inside the task: each sends a summary of its measurements to the monitors above it.
//!
//! A monitor listens on an abstract socket whose name contains its process id. A monitor that
//! starts or ends connects to each of its ancestors, sends one message, and disconnects. So nothing
//! depends on the environment, which a task may clear, and a killed monitor leaves no file behind.
//! Any process can use such a name, so both sides ask the kernel for the peer: an ancestor gets the
//! message if it belongs to the same user or root, and a message is accepted from descendants of
//! the same user or root. Root accepts messages from all its descendants.
//!
//! The measurements of a monitor inside are part of those here, so they are never added. A value
//! that it observed for certain is a lower bound of the whole, which is used if the whole is not
//! known completely.

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

/// The most monitors that are listed. Of later ones only the number is kept.
const MAX_LISTED: usize = 100;

/// The longest message: a few readings and a truncated command line.
const MAX_MESSAGE: usize = 16 * 1024;

/// The most characters of a command line that are sent, as for a process.
const MAX_COMMAND: usize = 512;

/// The most ancestors that get a message: more would be a loop of monitors that start each other.
const MAX_ANCESTORS: usize = 64;

/// Time that a monitor waits until its message is taken. After that the message is lost, and the
/// monitor is listed without its measurements: no task waits for a report.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// The most connections that are accepted at once, and the backlog of the socket.
const MAX_AT_ONCE: usize = 64;

/// The most connections without a message that are kept. A monitor sends at once, so the oldest
/// silent connection is not one of a monitor.
const MAX_SILENT: usize = 64;

/// Resources that a message contains.
const SENT_RESOURCES: [&str; 12] = [
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

/// Resources for which the value of a part is not a bound of the whole.
const NOT_A_BOUND: [&str; 1] = ["wall_seconds"];

#[derive(Default)]
pub(crate) struct NestedMonitors {
    listener: Option<OwnedFd>,
    /// Accepted connections without a message so far, in the order of their arrival.
    silent: VecDeque<(OwnedFd, Pid)>,
    listed: Vec<Nested>,
    left_out: u64,
    /// The greatest value of each resource that a monitor observed for certain.
    lower_bounds: BTreeMap<&'static str, f64>,
}

fn address(monitor: Pid) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("skopos-run-{monitor}").as_bytes())?)
}

fn socket(more: SocketFlags) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | more;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

impl NestedMonitors {
    fn handle_message(&mut self, bytes: &[u8], sender: Pid) {
        let Ok(message) = serde_json::from_slice::<Nested>(bytes) else { return };
        // The kernel's process id replaces the one in the message.
        let message = Nested { pid: sender, ..message };
        for (name, reading) in &message.resources {
            let Some(known) = resource(name).filter(|r| !NOT_A_BOUND.contains(&r.name)) else {
                continue;
            };
            if let Some(sure) = lower_bound(known.name, reading) {
                let greatest = self.lower_bounds.entry(known.name).or_default();
                *greatest = greatest.max(sure);
            }
        }
        let runs = |one: &&mut Nested| one.pid == sender && one.end_seconds.is_none();
        let has_room = self.listed.len() < MAX_LISTED;
        match self.listed.iter_mut().find(runs) {
            Some(begun) => *begun = message,
            None if has_room => self.listed.push(message),
            // It was counted when it began.
            None => self.left_out += u64::from(message.end_seconds.is_none()),
        }
    }

    /// Accepts a connection. Returns false if there is none.
    fn accept(&mut self, ledger: &Ledger) -> io::Result<bool> {
        let Some(listener) = &self.listener else { return Ok(false) };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let connection = match net::accept_with(listener, flags) {
            Ok(connection) => connection,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let peer = sockets::peer(connection.as_fd())?;
        if self.is_accepted(peer, geteuid(), ledger) {
            if self.silent.len() == MAX_SILENT {
                self.silent.pop_front();
            }
            self.silent.push_back((connection, peer.pid));
        }
        // Reads all connections, since an earlier message of a monitor must be handled before this
        // one.
        self.read_silent();
        Ok(true)
    }

    /// Reads the messages that have arrived.
    fn read_silent(&mut self) {
        for (connection, pid) in std::mem::take(&mut self.silent) {
            let mut bytes = [0; MAX_MESSAGE];
            match net::recv(&connection, &mut bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                    self.silent.push_back((connection, pid));
                }
                Ok((_, length)) if length <= MAX_MESSAGE => {
                    self.handle_message(&bytes[..length], pid)
                }
                _ => {}
            }
        }
    }

    /// True for a process of the task that belongs to a user who may send a message to `own`. The
    /// ancestors of a vanished process are unknown: its message is accepted from the same user, who
    /// could do worse than send a false message.
    fn is_accepted(&self, peer: Peer, own: Uid, ledger: &Ledger) -> bool {
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

/// Iterates over the ancestors of a process, beginning with its parent.
fn ancestors(pid: Pid) -> impl Iterator<Item = Pid> {
    let parent = |pid: &Pid| proc::stat(*pid).map(|stat| stat.parent).filter(|parent| *parent > 0);
    std::iter::successors(parent(&pid), parent).take(MAX_ANCESTORS)
}

/// Sums of peaks of processes at different times. Incomplete sums are not lower bounds of the
/// memory held at one time.
const SUMS_OF_PEAKS: [&str; 2] = ["resident_bytes_max", "virtual_bytes_max"];

/// Returns the least that a value can be for certain.
fn lower_bound(name: &str, reading: &Reading) -> Option<f64> {
    let value = reading.value?;
    match reading.completeness {
        Completeness::None => None,
        // The value was observed.
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

    /// Reads messages. A connection that has no message yet is read with the next event.
    fn readable(&mut self, ledger: &mut Ledger) {
        self.read_silent();
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
        for (name, least) in std::mem::take(&mut self.lower_bounds) {
            ledger.offers.raise_lower_bound(
                name,
                least,
                NAME,
                "a monitor inside the task observed this value",
            );
        }
        ledger.nested = (std::mem::take(&mut self.listed), self.left_out);
        self.silent.clear();
        self.listener = None;
    }
}

/// Sends a message to the monitors above this one.
pub(crate) fn announce(mut message: Nested) {
    for pid in ancestors(message.pid) {
        let Ok(text) = serde_json::to_vec(&message) else { return };
        // Most ancestors are not monitors, and the connection fails.
        if send_to(pid, &text, geteuid()).is_ok() {
            // This monitor ran directly inside the first ancestor that takes the message.
            message.inside_of.get_or_insert(pid);
        }
    }
}

/// Sends a message to a monitor of the user `own` or of root.
fn send_to(monitor: Pid, text: &[u8], own: Uid) -> io::Result<()> {
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

/// Returns the message of a monitor whose task has begun.
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

/// Returns the message of a monitor whose task has ended.
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
        resources: SENT_RESOURCES.iter().filter_map(of).collect(),
        ..begun(&summary.task, summary.level, summary.start_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(pid: Pid, end_seconds: Option<f64>, memory: f64, bound: f64) -> Vec<u8> {
        let reading = Reading {
            missing: Vec::new(),
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
    fn the_list_is_bounded_and_certain_values_raise_the_whole() {
        let (mut inside, mut ledger) = (NestedMonitors::default(), Ledger::new());
        for pid in 1..=150 {
            inside.handle_message(&message(pid, None, 0.0, 0.0), pid);
            inside.handle_message(&message(pid, Some(2.0), f64::from(pid), 10.0), pid);
        }
        inside.handle_message(b"nonsense", 7);
        inside.handle_message(&message(3, None, 0.0, 0.0), 3);
        assert_eq!(inside.listed.len(), MAX_LISTED);
        assert!(inside.listed.iter().all(|one| one.exit_type == ExitType::Normal));
        assert_eq!(inside.left_out, 51, "50, and one with a reused id");
        inside.finish(&mut ledger);
        let reading = ledger.offers.best("resident_bytes_max", "");
        assert_eq!((reading.value, reading.completeness), (Some(140.0), Completeness::AtLeast));
        assert_eq!(ledger.nested.1, 51);
    }

    #[test]
    fn a_part_of_a_sum_of_peaks_is_not_a_lower_bound() {
        let reading = |completeness, error_bound| Reading {
            missing: Vec::new(),
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
            assert_eq!(lower_bound("read_bytes", &reading), of_sum, "{completeness:?}");
            assert_eq!(lower_bound("resident_bytes_max", &reading), of_peaks, "{completeness:?}");
        }
    }

    #[test]
    fn a_stranger_is_ignored_and_a_silent_connection_blocks_nothing() {
        let (mut inside, mut ledger) = (NestedMonitors::default(), Ledger::new());
        inside.prepare(&mut Launch::default()).expect("a socket");
        let own = std::process::id() as Pid;
        let connect = || {
            let socket = socket(SocketFlags::empty()).expect("a socket");
            net::connect(&socket, &address(own).expect("an address")).expect("connected");
            socket
        };
        // This process is not a descendant of itself.
        send_to(own, &message(1, None, 0.0, 0.0), geteuid()).expect("sent");
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
        send_to(own, &message(1, None, 0.0, 0.0), geteuid()).expect("sent");
        inside.readable(&mut ledger);
        assert_eq!(inside.listed[0].pid, own, "the id that the kernel reports");
        assert_eq!(inside.listed.len(), 1);
        // A connection with a late message is read, and before a later connection, although nothing
        // read in between.
        let last = silent.last().expect("there are some");
        net::send(last, &message(1, Some(2.0), 0.0, 0.0), SendFlags::empty()).expect("sent");
        send_to(own, &message(1, None, 0.0, 0.0), geteuid()).expect("sent");
        drop(silent);
        assert!(inside.accept(&ledger).expect("it is there"));
        inside.finish(&mut ledger);
        let ends: Vec<_> = ledger.nested.0.iter().map(|one| one.end_seconds).collect();
        assert_eq!(ends, [Some(2.0), None]);
        assert!(inside.silent.is_empty());
    }

    #[test]
    fn messages_are_accepted_from_descendants_of_the_same_user_or_root() {
        let (inside, mut ledger) = (NestedMonitors::default(), Ledger::new());
        let (root, one, other) = (Uid::ROOT, Uid::from_raw(1001), Uid::from_raw(1002));
        ledger.process_started(7, 1);
        for (pid, user, own, is_accepted) in [
            (7, one, one, true),
            (7, root, one, true),
            (7, other, one, false),
            (7, other, root, true),
            (1, one, one, false),
            (Pid::MAX, one, one, true),
            (Pid::MAX, root, one, false),
            (0, one, one, false),
        ] {
            let message = inside.is_accepted(Peer { pid, user }, own, &ledger);
            assert_eq!(message, is_accepted, "{pid} of {user:?} to {own:?}");
        }
    }

    #[test]
    fn a_foreign_owner_of_the_name_gets_no_message() {
        let listener = socket(SocketFlags::NONBLOCK).expect("a socket");
        // No process has this id, so another process listens.
        let foreign = Pid::MAX - std::process::id() as Pid;
        net::bind(&listener, &address(foreign).expect("an address")).expect("bound");
        net::listen(&listener, 1).expect("it listens");
        let refused = send_to(foreign, b"secret", geteuid()).expect_err("it is not that process");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let connection = net::accept(&listener).expect("it connected");
        let mut bytes = [0; 8];
        let (_, length) = net::recv(connection, &mut bytes, RecvFlags::empty()).expect("it went");
        assert_eq!(length, 0, "{bytes:?}");
    }
}
