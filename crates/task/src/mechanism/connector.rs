//! The proc connector: the kernel reports each fork, exec and exit on the machine
//! (`linux/cn_proc.h`), to any user since Linux 6.6 and to administrators before. So every process
//! of the task is known without stopping any. An exited process may be gone when its exit is
//! reported, so its memory is known only from samples.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;

use skopos_model::task::Completeness;

use super::reasons::{NO_KERNEL_IDS, lost_messages, still_running};
use super::{Launch, Mechanism};
use crate::bytes::u32_at;
use crate::family;
use crate::ledger::{Ledger, Offer};
use crate::proc;
use crate::sys::netlink::{self, Netlink};
use crate::sys::{Pid, Status};

/// The name in reports.
pub(crate) const NAME: &str = "connector";

/// `CN_IDX_PROC`, which is also its group and its value.
const PROC: u32 = 1;
/// `PROC_CN_MCAST_LISTEN`.
const LISTEN: u32 = 1;
/// `NLMSG_DONE`, the type of all messages.
const DONE: u16 = 3;
/// Size of `struct cn_msg`.
const CONNECTOR_HEADER: usize = 20;
/// Size of the common part of `struct proc_event`.
const EVENT_HEADER: usize = 16;

/// Kinds of events.
const FORK: u32 = 1;
const EXEC: u32 = 2;
const EXIT: u32 = 0x8000_0000;

/// The reason why an ordinary user cannot listen.
const REFUSED: &str = "before Linux 6.6 the kernel reports process starts to administrators only";

/// The most threads that a process starts before threads are no longer reported: each message costs the task a
/// microsecond, and waking the monitor for it some more.
const MAX_FOLLOWED: u32 = 256;

/// The reason why numbers of threads are incomplete.
const LEADERS_ONLY: &str =
    "a process started more than 256 threads: threads after that are not counted";

/// The most messages that are read at once. A busy machine may send messages without end.
const MAX_AT_ONCE: usize = 4096;

#[derive(Default)]
pub(crate) struct Connector {
    socket: Option<Netlink>,
    /// The thread ids of each process of the task. For an attached process, some starts and exits
    /// that are already known are reported again.
    processes: HashMap<Pid, HashSet<Pid>>,
    /// Number of threads that each process of the task has started.
    started: HashMap<Pid, u32>,
    /// A process has started more threads than are followed.
    is_crowded: bool,
    /// Only starts and exits of first threads are reported any more.
    leaders_only: bool,
    /// Number of times that messages were lost.
    lost: u64,
}

/// An event that the kernel reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessEvent {
    Forked { parent: Pid, thread: Pid, process: Pid },
    Executed { process: Pid },
    Exited { thread: Pid, process: Pid, status: Status },
}

impl Connector {
    fn handle(&mut self, event: ProcessEvent, ledger: &mut Ledger) {
        match event {
            ProcessEvent::Forked { process, thread, .. } if process != thread => {
                if let Some(threads) =
                    self.processes.get_mut(&process).filter(|_| !self.leaders_only)
                {
                    threads.insert(thread);
                    let count = threads.len() as u64;
                    ledger.update_threads(process, |_| count);
                    let started = self.started.entry(process).or_default();
                    *started += 1;
                    self.is_crowded |= *started == MAX_FOLLOWED;
                }
            }
            ProcessEvent::Forked { parent, process, .. } => {
                if self.processes.contains_key(&parent) && !self.processes.contains_key(&process) {
                    self.processes.insert(process, [process].into());
                    ledger.process_started(process, parent);
                }
            }
            ProcessEvent::Executed { process } => {
                if let Some(threads) = self.processes.get_mut(&process) {
                    // The other threads are gone, and the one that called exec has the id of the
                    // process now.
                    *threads = [process].into();
                    ledger.update_threads(process, |_| 1);
                    ledger.process_executed(process);
                }
            }
            ProcessEvent::Exited { thread, process, status } => {
                let Some(threads) = self.processes.get_mut(&process) else { return };
                if !threads.remove(&thread) {
                    return;
                }
                if self.leaders_only && proc::stat(process).is_some_and(|stat| !stat.is_zombie) {
                    // Its other threads run on. Their exits are not reported.
                    return;
                }
                let count = threads.len() as u64;
                if count == 0 {
                    self.processes.remove(&process);
                    self.started.remove(&process);
                    handle_exit(process, status, ledger);
                } else {
                    ledger.update_threads(process, |_| count);
                }
            }
        }
    }
}

impl Connector {
    /// From now on the kernel drops reports of all threads but the first of each process.
    fn forget_threads(&mut self, socket: &Netlink) {
        if socket.filter(&leaders()).is_err() {
            // All are reported, as before.
            return;
        }
        self.leaders_only = true;
        for (process, threads) in &mut self.processes {
            // A process whose first thread has exited has others, whose exits are not reported any more.
            threads.retain(|thread| thread == process);
        }
    }
}

/// The offset of an event in a packet.
const EVENT_AT: u32 = 36;

/// Instructions of the kernel's socket filters: load a word, which is taken as big-endian, copy it to the other
/// register, compare with a number or with the other register, and return.
const LOAD: u16 = 0x20;
const COPY: u16 = 0x07;
const IS: u16 = 0x15;
const IS_SAME: u16 = 0x1d;
const RETURN: u16 = 0x06;

/// Returns a filter that passes all messages but those of threads that are not the first of their process.
fn leaders() -> [libc::sock_filter; 13] {
    let word = |index: u32| EVENT_AT + EVENT_HEADER as u32 + 4 * index;
    // Code, number of instructions to skip if it is so and if not, and a number.
    [
        (LOAD, 0, 0, EVENT_AT),
        (IS, 1, 0, FORK.to_be()),
        (IS, 4, 9, EXIT.to_be()),
        // The thread and the process that started.
        (LOAD, 0, 0, word(2)),
        (COPY, 0, 0, 0),
        (LOAD, 0, 0, word(3)),
        (IS_SAME, 5, 4, 0),
        // The thread and the process that exited.
        (LOAD, 0, 0, word(0)),
        (COPY, 0, 0, 0),
        (LOAD, 0, 0, word(1)),
        (IS_SAME, 1, 0, 0),
        (RETURN, 0, 0, 0),
        (RETURN, 0, 0, u32::MAX),
    ]
    .map(|(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
}

/// Handles the exit of a process. If its parent has not reaped it yet, its usage can still be read.
/// Children of the monitor are handled when the monitor reaps them.
fn handle_exit(process: Pid, status: Status, ledger: &mut Ledger) {
    if let Some(stat) = proc::stat(process) {
        if stat.parent == std::process::id() as Pid {
            return;
        }
        ledger.record_usage(
            process,
            Some(stat.user_seconds + stat.system_seconds),
            proc::io(process),
        );
    }
    ledger.process_exited(process, Some(status));
}

/// Parses the body of a message.
fn parse(body: &[u8]) -> Option<ProcessEvent> {
    let event = body.get(CONNECTOR_HEADER..)?;
    let word = |index: usize| Some(u32_at(event, EVENT_HEADER + 4 * index)?.cast_signed());
    Some(match u32_at(event, 0)? {
        FORK => ProcessEvent::Forked { parent: word(1)?, thread: word(2)?, process: word(3)? },
        EXEC => ProcessEvent::Executed { process: word(1)? },
        EXIT => {
            let code = word(2)?;
            let status = match code & 0x7f {
                0 => Status::Exited(code >> 8 & 0xff),
                signal => Status::Signalled(signal),
            };
            ProcessEvent::Exited { thread: word(0)?, process: word(1)?, status }
        }
        _ => return None,
    })
}

impl Mechanism for Connector {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        if !netlink::has_kernel_ids() {
            return Err(io::Error::other(NO_KERNEL_IDS));
        }
        let socket = Netlink::open(libc::NETLINK_CONNECTOR, PROC).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => io::Error::other(REFUSED),
            _ => e,
        })?;
        let mut body = Vec::new();
        for word in [PROC, PROC, 0, 0, size_of::<u32>() as u32, LISTEN] {
            body.extend(word.to_ne_bytes());
        }
        socket.send(DONE, &body)?;
        self.socket = Some(socket);
        Ok(())
    }

    fn attach(&mut self, root: Pid, ledger: &mut Ledger) -> io::Result<()> {
        self.processes.insert(root, [root].into());
        ledger.process_started(root, std::process::id() as Pid);
        if ledger.is_attached() {
            // Starts from here on are reported; processes that are already running are searched
            // for.
            for pid in family::unended(ledger).into_iter().map(|member| member.pid) {
                let Some(stat) = proc::stat(pid) else { continue };
                // The exit of a zombie thread may have been reported before the socket was open.
                let is_alive = |thread: &Pid| proc::stat(*thread).is_some_and(|s| !s.is_zombie);
                let threads: HashSet<Pid> =
                    proc::threads(pid).into_iter().filter(is_alive).collect();
                if threads.is_empty() {
                    continue;
                }
                let count = threads.len() as u64;
                self.processes.insert(pid, threads);
                ledger.process_started(pid, stat.parent);
                ledger.update_threads(pid, |_| count);
            }
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(Netlink::descriptor)
    }

    fn readable(&mut self, ledger: &mut Ledger) {
        let Some(mut socket) = self.socket.take() else { return };
        let lost = socket.drain(MAX_AT_ONCE, |message| {
            if let Some(event) = parse(message.body) {
                self.handle(event, ledger);
            }
        });
        self.lost += lost;
        if self.is_crowded && !self.leaders_only {
            self.forget_threads(&socket);
        }
        self.socket = Some(socket);
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        let left = ledger.live_pids().len();
        let reason = match self.lost {
            0 => still_running(left),
            times => Some(lost_messages(times)),
        };
        let completeness = if reason.is_none() { Completeness::All } else { Completeness::AtLeast };
        let error_bound = reason.is_none().then_some(0.0);
        for (name, value) in [
            ("processes_max", ledger.processes_max),
            ("processes_total", ledger.processes_total),
            ("threads_max", ledger.threads_max),
            ("threads_total", ledger.threads_total),
        ] {
            let (value, mut reason) = (value as f64, reason.clone());
            let (mut completeness, mut error_bound) = (completeness, error_bound);
            if self.leaders_only && name.starts_with("threads") {
                (completeness, error_bound) = (Completeness::AtLeast, None);
                reason = reason.or(Some(LEADERS_ONLY.to_owned()));
            }
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound, reason });
        }
        self.socket = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u32, words: &[i32]) -> Vec<u8> {
        let mut body = vec![0; CONNECTOR_HEADER];
        body.extend(kind.to_ne_bytes());
        body.extend([0; 12]);
        body.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        body
    }

    #[test]
    fn messages_are_parsed_and_truncated_ones_are_not() {
        let fork = message(FORK, &[5, 4, 9, 8]);
        let born = ProcessEvent::Forked { parent: 4, thread: 9, process: 8 };
        assert_eq!(parse(&fork), Some(born));
        assert!((0..fork.len()).all(|end| parse(&fork[..end]).is_none()));
        let ended = |code, status| {
            let event = parse(&message(EXIT, &[8, 8, code, 17, 4, 4]));
            assert_eq!(event, Some(ProcessEvent::Exited { thread: 8, process: 8, status }));
        };
        ended(3 << 8, Status::Exited(3));
        ended(11, Status::Signalled(11));
        assert_eq!(parse(&message(4, &[8, 8, 0, 0])), None, "a change of user");
    }

    /// The first of ids that no process has.
    const FAR: Pid = 10_000_000;

    #[test]
    fn a_repeated_report_of_an_attached_task_counts_once() {
        let (mut connector, mut ledger) = (Connector::default(), Ledger::new());
        let (process, second) = (FAR, FAR + 1);
        connector.processes.insert(process, [process, second].into());
        ledger.process_started(process, 1);
        ledger.update_threads(process, |_| 2);
        let end_of = |thread| ProcessEvent::Exited { thread, process, status: Status::Exited(0) };
        for (event, threads) in [
            // Its exit was reported before its process was searched for threads.
            (end_of(FAR + 7), 2),
            (ProcessEvent::Forked { parent: 1, thread: second, process }, 2),
            (ProcessEvent::Forked { parent: process, thread: process, process }, 2),
            (end_of(process), 1),
            (end_of(process), 1),
            // The second thread calls exec for the process.
            (ProcessEvent::Executed { process }, 1),
            (end_of(process), 0),
        ] {
            connector.handle(event, &mut ledger);
            assert_eq!(ledger.thread_count(process), threads, "{event:?}");
        }
        assert!(!ledger.contains(process) && connector.processes.is_empty());
        assert_eq!((ledger.threads_max, ledger.processes_total), (2, 1));
    }

    #[test]
    fn descendants_are_known_and_exit_with_their_last_thread() {
        let (mut connector, mut ledger) = (Connector::default(), Ledger::new());
        connector.attach(FAR, &mut ledger).expect("it cannot fail");
        let end_of =
            |thread, process| ProcessEvent::Exited { thread, process, status: Status::Exited(0) };
        let ended = |process| end_of(process, process);
        for event in [
            ProcessEvent::Forked { parent: 1, thread: FAR + 9, process: FAR + 9 },
            ProcessEvent::Forked { parent: FAR, thread: FAR + 1, process: FAR + 1 },
            ProcessEvent::Forked { parent: FAR, thread: FAR + 2, process: FAR + 1 },
            ended(FAR),
            // Its parent is gone, and it still belongs to the task.
            ProcessEvent::Forked { parent: FAR + 1, thread: FAR + 3, process: FAR + 3 },
            ended(FAR + 1),
        ] {
            connector.handle(event, &mut ledger);
        }
        let mut living = ledger.live_pids();
        living.sort_unstable();
        assert_eq!(living, [FAR + 1, FAR + 3]);
        assert_eq!((ledger.processes_total, ledger.processes_max, ledger.threads_max), (3, 2, 3));
        connector.handle(end_of(FAR + 2, FAR + 1), &mut ledger);
        assert_eq!(ledger.live_pids(), [FAR + 3]);
        connector.finish(&mut ledger);
        let reading = ledger.offers.best("processes_total", "");
        assert_eq!((reading.value, reading.completeness), (Some(3.0), Completeness::AtLeast));
    }
}
