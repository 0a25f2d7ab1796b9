//! Monitors inside the task: each tells those above it what it measured, shortly.
//!
//! A monitor listens on a datagram socket of an abstract name with its process id in it, and a monitor
//! that starts or ends sends one message to each of its ancestors. So nothing is passed on by the
//! environment, which a task may clear, and no file is left behind by one that is killed. The kernel says
//! who sent a message: only what descends from this monitor is heard.
//!
//! What a monitor inside measured is in what is measured here, so nothing of it is added. But what it saw
//! for sure is a lower bound for the whole, where that is not known completely.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::fs::Uid;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg, sockopt,
};
use skopos_model::task::{Completeness, ExitType, Identity, Nested, Reading, Summary, resource};

use super::{Launch, Mechanism};
use crate::proc;
use crate::seen::Seen;
use crate::sys::Pid;

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

/// How long a message waits where many come at once. Then it is lost, and the monitor is listed without
/// what it measured: no task waits for a report.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// Messages that are taken at once.
const MAX_AT_ONCE: usize = 64;

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
pub(crate) struct Inside {
    socket: Option<UnixDatagram>,
    listed: Vec<Nested>,
    left_out: u64,
    /// The greatest value that any of them saw for sure, of each resource.
    sure: BTreeMap<&'static str, f64>,
}

fn address(monitor: Pid) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("skopos-run-{monitor}"))
}

impl Inside {
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

    fn receive(&mut self, seen: &Seen) -> io::Result<bool> {
        let Some(socket) = &self.socket else { return Ok(false) };
        let mut bytes = [0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut about = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        let got = match recvmsg(socket, &mut parts, &mut about, RecvFlags::DONTWAIT) {
            Ok(got) => got,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let sender = about.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(of) => Some(of),
            _ => None,
        });
        if let Some(sender) = sender
            && !got.flags.contains(ReturnFlags::TRUNC)
        {
            let (pid, length) = (sender.pid.as_raw_nonzero().get(), got.bytes);
            let is_known = self.listed.iter().any(|one| one.pid == pid);
            if is_known || is_inside(pid, sender.uid, seen) {
                self.heard(&bytes[..length], pid);
            }
        }
        Ok(true)
    }
}

/// True for a process of the task. Of one that is gone nobody knows where it came from: then it is one
/// of the same user, who could do more than tell what is not so.
fn is_inside(pid: Pid, user: Uid, seen: &Seen) -> bool {
    let own = std::process::id() as Pid;
    let is_gone = || proc::stat(pid).is_none() && user == rustix::process::geteuid();
    seen.knows(pid) || ancestors(pid).any(|ancestor| ancestor == own) || is_gone()
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

impl Mechanism for Inside {
    fn name(&self) -> &'static str {
        NAME
    }

    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        let socket = UnixDatagram::bind_addr(&address(std::process::id() as Pid)?)?;
        socket.set_nonblocking(true)?;
        sockopt::set_socket_passcred(&socket, true)?;
        self.socket = Some(socket);
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(|socket| socket.as_fd())
    }

    fn readable(&mut self, seen: &mut Seen) {
        for _ in 0..MAX_AT_ONCE {
            match self.receive(seen) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    self.socket = None;
                    return;
                }
            }
        }
    }

    fn finish(&mut self, seen: &mut Seen) {
        self.readable(seen);
        for (name, least) in std::mem::take(&mut self.sure) {
            seen.raise(name, least, NAME, "a monitor inside the task saw this much");
        }
        seen.nested = (std::mem::take(&mut self.listed), self.left_out);
        self.socket = None;
    }
}

/// Tells the monitors above this one.
pub(crate) fn tell(mut told: Nested) {
    let Ok(socket) = UnixDatagram::unbound() else { return };
    if socket.set_write_timeout(Some(MAX_WAIT)).is_err() {
        return;
    }
    for pid in ancestors(told.pid) {
        let Ok(address) = address(pid) else { continue };
        let Ok(text) = serde_json::to_vec(&told) else { return };
        // Most are no monitors, and nobody hears.
        if socket.send_to_addr(&text, &address).is_ok() {
            // The first that hears is the one that this one is directly inside of.
            told.inside_of.get_or_insert(pid);
        }
    }
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
pub(crate) fn over(summary: &Summary) -> Nested {
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
        let (mut inside, mut seen) = (Inside::default(), Seen::new());
        for pid in 1..=150 {
            inside.heard(&message(pid, None, 0.0, 0.0), pid);
            inside.heard(&message(pid, Some(2.0), f64::from(pid), 10.0), pid);
        }
        inside.heard(b"nonsense", 7);
        inside.heard(&message(3, None, 0.0, 0.0), 3);
        assert_eq!(inside.listed.len(), MAX_LISTED);
        assert!(inside.listed.iter().all(|one| one.exit_type == ExitType::Normal));
        assert_eq!(inside.left_out, 51, "50, and one that had the id of another");
        inside.finish(&mut seen);
        let reading = seen.reading("resident_bytes_max", "");
        assert_eq!((reading.value, reading.completeness), (Some(140.0), Completeness::AtLeast));
        assert_eq!(seen.nested.1, 51);
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
    fn a_stranger_is_not_heard() {
        let (mut inside, mut seen) = (Inside::default(), Seen::new());
        inside.prepare(&mut Launch::default()).expect("a socket");
        let to = address(std::process::id() as Pid).expect("an address");
        let socket = UnixDatagram::unbound().expect("a socket");
        // This process is no descendant of itself.
        socket.send_to_addr(&message(1, None, 0.0, 0.0), &to).expect("sent");
        inside.readable(&mut seen);
        assert!(inside.listed.is_empty());
        seen.born(std::process::id() as Pid, 1);
        socket.send_to_addr(&message(1, None, 0.0, 0.0), &to).expect("sent");
        inside.readable(&mut seen);
        assert_eq!(inside.listed[0].pid, std::process::id() as Pid, "as the kernel says");
    }
}
