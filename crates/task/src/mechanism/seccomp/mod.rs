//! A `seccomp` filter that suspends system calls which close descriptors or seek, until the monitor
//! has looked at the descriptor. Reads and writes run at full speed. The position of an open file
//! shows how many bytes went through it, so the program may be static and work in a million small
//! writes.
//!
//! The filter outlives the monitor, and a suspended call without an answer would hang. So the
//! filter does not use a tracer but a listener, which two processes hold: the monitor, and a
//! guardian that does nothing until the monitor is gone, and then answers. Only a user who kills
//! both harms the task.
//!
//! If a signal arrives before a call is handled, the kernel interrupts the call. The tracer notices
//! and restarts it, so this mechanism needs `ptrace`, and precedes it in the list of mechanisms: it
//! handles a stopped thread before that is continued.

mod descriptor;
mod filter;
mod positions;
mod program;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use skopos_model::unpoisoned;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use skopos_model::task::{Completeness, FileUse, Files, Missing, ProcessFiles};

use self::positions::{Positions, Uncounted};
use super::files::{self, Processes};
use super::reasons::append_counts;
use super::{Launch, Mechanism};
use crate::ledger::{Ledger, Offer};
use crate::proc::{self, Io};
use crate::sys::seccomp::{self, Filter, Listener};
use crate::sys::{self, Event, Pid};

pub(crate) use program::is_static;

/// The name in reports.
pub(crate) const NAME: &str = "seccomp";

/// Fields that positions do not show.
const NOT_COUNTED: [&str; 8] = [
    "reads",
    "writes",
    "read_sizes",
    "write_sizes",
    "stream_read_bytes",
    "stream_written_bytes",
    "maps",
    "mapped_bytes",
];

#[derive(Default)]
pub(crate) struct Seccomp {
    /// The socket through which the child sends the listener.
    from_child: Option<OwnedFd>,
    positions: Arc<Mutex<Positions>>,
    answers: Option<Answers>,
    has_guardian: bool,
    root: Pid,
    /// The kernel's byte counts of the child at its exec.
    before: Option<Io>,
    processes: Processes,
}

/// The thread that answers calls, and the pipe that stops it.
struct Answers {
    thread: JoinHandle<()>,
    stop: OwnedFd,
}

impl Mechanism for Seccomp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn prepare(&mut self, launch: &mut Launch) -> io::Result<()> {
        let program = filter::program().map_err(io::Error::other)?;
        seccomp::try_on_a_child(&program)?;
        let (from_child, to_monitor) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        launch.filter = Some(Filter { program, to_monitor });
        self.from_child = Some(from_child);
        Ok(())
    }

    fn attach(&mut self, root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        let from_child = self.from_child.take().ok_or(io::ErrorKind::NotConnected)?;
        let listener = Listener::from_child(from_child.as_fd())?;
        // From here on the filter suspends calls of the child. If a later step fails, the guardian
        // answers them; without a guardian they fail only if the monitor dies.
        let (ended, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        self.has_guardian = seccomp::start_guardian(&listener, ended.as_fd()).is_ok();
        self.root = root;
        self.positions = Arc::new(Mutex::new(Positions::of(std::process::id() as Pid, root)));
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let positions = Arc::clone(&self.positions);
        let thread = std::thread::Builder::new().name("seccomp".into()).spawn(move || {
            // Closing this at the end of the thread makes the guardian take over.
            let _alive = alive;
            // A panic of ours must not leave the task waiting.
            let run = AssertUnwindSafe(|| answer(&listener, &stopped, Some(&positions)));
            if catch_unwind(run).is_err() {
                listener.go_on_with_last();
                answer(&listener, &stopped, None);
            }
        })?;
        self.answers = Some(Answers { thread, stop });
        Ok(())
    }

    fn event(&mut self, event: &Event, ledger: &mut Ledger) {
        match *event {
            Event::Stopped { pid, event, .. } => self.stopped(pid, event, ledger),
            Event::Ended { pid, .. } => self.ended(pid, ledger),
        }
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        if self.answers.is_none() {
            return;
        }
        self.stop();
        let positions = std::mem::take(&mut *self.positions());
        let (files, living, uncounted) = positions.into_files();
        for process in living {
            self.keep_process(process, ledger);
        }
        let files = self.report(files, uncounted, ledger);
        let (value, reason) = (files.files_total as f64, Some(files.reason.clone()));
        let completeness = Completeness::AtLeast;
        let offer = Offer { method: NAME, value, completeness, error_bound: None, reason };
        ledger.offers.add("opened_files", offer);
        ledger.files = Some(files);
    }
}

impl Drop for Seccomp {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Seccomp {
    fn positions(&self) -> MutexGuard<'_, Positions> {
        unpoisoned(self.positions.lock())
    }

    /// Stops the thread that answers. From now on the guardian answers the calls of processes that
    /// are still running.
    fn stop(&mut self) {
        if let Some(Answers { thread, stop }) = self.answers.take() {
            drop(stop);
            // A panic in the thread shows as missing bytes.
            let _ = thread.join();
        }
    }

    /// Handles a stopped thread before it is continued.
    fn stopped(&mut self, thread: Pid, event: i32, ledger: &Ledger) {
        match event {
            0 => sys::seccomp::restart(thread, filter::is_filtered),
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let Ok(new) = sys::event_message(thread) else { return };
                let mut positions = self.positions();
                positions.forked(thread);
                positions.add_thread(new as Pid);
            }
            // A new thread may stop before the fork is reported for its parent.
            libc::PTRACE_EVENT_STOP => {
                self.positions().add_thread(thread);
            }
            libc::PTRACE_EVENT_EXEC => {
                let is_start = self.before.is_none() && thread == self.root;
                if is_start {
                    self.before = proc::io(thread);
                }
                self.positions().executed(thread, !is_start);
            }
            libc::PTRACE_EVENT_EXIT => self.ending(thread, ledger),
            _ => {}
        }
    }

    /// Handles the exit of a process that made no suspended call for it: it was killed, or its only
    /// thread exits.
    fn ending(&mut self, thread: Pid, ledger: &Ledger) {
        let process = match ledger.contains(thread) {
            true => thread,
            false => proc::process_of(thread).unwrap_or(thread),
        };
        if !self.positions().is_open(process) {
            return;
        }
        // The lowest bits hold the signal, as in the status of `wait`.
        let is_killed = sys::event_message(thread).is_ok_and(|status| status & 0x7f != 0);
        if is_killed || ledger.thread_count(process) <= 1 {
            let mut positions = self.positions();
            let effect = positions.end_of(process);
            positions.apply(effect);
        }
    }

    fn ended(&mut self, thread: Pid, ledger: &Ledger) {
        let ended = self.positions().ended(thread);
        if let Some(process) = ended {
            self.keep_process(process, ledger);
        }
    }

    fn keep_process(&mut self, mut process: ProcessFiles, ledger: &Ledger) {
        ledger.command_of(process.pid).unwrap_or_default().clone_into(&mut process.command);
        self.processes.push(process);
    }

    fn report(
        &mut self,
        mut files: Vec<FileUse>,
        uncounted: Uncounted,
        ledger: &mut Ledger,
    ) -> Files {
        let sum = |files: &[FileUse], of: fn(&FileUse) -> u64| files.iter().map(of).sum::<u64>();
        let before = self.before.unwrap_or_default();
        let is_known = ledger.reaped.without_io == 0 && self.before.is_some();
        let io = ledger.reaped.io;
        let beyond = |kernel: u64, before: u64, counted: u64| {
            is_known.then(|| kernel.saturating_sub(before) as i64 - counted as i64)
        };
        let mut totals = || {
            let (read, written) = (sum(&files, |f| f.read_bytes), sum(&files, |f| f.written_bytes));
            let of_read = beyond(io.read_bytes, before.read_bytes, read);
            let of_written = beyond(io.written_bytes, before.written_bytes, written);
            if split_read_and_written(&mut files, of_read, of_written) {
                None
            } else {
                Some((of_read, of_written))
            }
        };
        // If bytes could be assigned, the sums are made anew.
        let totals = totals().or_else(&mut totals);
        let (of_read, of_written) = totals.unwrap_or_default();
        let (unattributed_read_bytes, read_more) =
            known_remainder(of_read, &mut ledger.unseen.read);
        let (unattributed_written_bytes, written_more) =
            known_remainder(of_written, &mut ledger.unseen.written);
        let overflowed = files.iter().find(|f| f.kind == "others").map_or(0, |f| f.opens);
        let both = sum(&files, |f| f.read_or_written_bytes);
        let is_all = unattributed_read_bytes == Some(0)
            && unattributed_written_bytes == Some(0)
            && (both, overflowed, uncounted) == (0, 0, Uncounted::default())
            && ledger.live_count() == 0;
        Files {
            completeness: if is_all { Completeness::All } else { Completeness::AtLeast },
            reason: if is_all {
                EXACT.to_owned()
            } else {
                self.missing(both, overflowed, uncounted, read_more + written_more)
            },
            not_counted: NOT_COUNTED.map(str::to_owned).to_vec(),
            unattributed_read_bytes,
            unattributed_written_bytes,
            ..files::listed(NAME, files, Vec::new(), std::mem::take(&mut self.processes))
        }
    }

    /// Describes what is missing.
    fn missing(&self, both: u64, overflowed: u64, uncounted: Uncounted, more: u64) -> String {
        let mut text =
            "excludes bytes that move no position (pread, pwrite, mmap, pipes, sockets, terminals) \
             and files that io_uring closes"
                .to_owned();
        let counts = [
            (both, "bytes went through files that were open for reading and writing"),
            (uncounted.appending, "descriptors appended, so their positions are not counts"),
            (uncounted.unknown_stretches, "seeks for data or holes ended at unknown positions"),
            (uncounted.unseen_exits, "processes were killed before their open files could be read"),
            (
                more,
                "bytes moved positions that the kernel's own count lacks: by splice, io_uring or io_submit",
            ),
            (overflowed, "opens exceeded the number of files that are counted separately"),
            (
                u64::from(!self.has_guardian),
                "time without a guardian, which answers if the monitor dies",
            ),
        ];
        append_counts(&mut text, &counts);
        text
    }
}

/// The note on a complete report.
const EXACT: &str =
    "includes all bytes that the kernel counted; the kernel does not count mapped bytes";

/// Returns what is left of the kernel's count without the bytes by positions, and the bytes that the count lacks
/// for certain. If it lacks any, what is left is unknown.
fn known_remainder(left: Option<i64>, ways: &mut BTreeSet<Missing>) -> (Option<i64>, u64) {
    let Some(left @ ..0) = left else { return (left, 0) };
    if !ways.contains(&Missing::IoUring) && !ways.contains(&Missing::Aio) {
        ways.insert(Missing::Splice);
    }
    (None, left.unsigned_abs())
}

/// Assigns the bytes of files that were open for reading and writing. If the kernel's count leaves
/// no reads unexplained, they were written, and the other way round. Returns true if they were
/// assigned.
fn split_read_and_written(
    files: &mut [FileUse],
    of_read: Option<i64>,
    of_written: Option<i64>,
) -> bool {
    let (Some(of_read), Some(of_written)) = (of_read, of_written) else { return false };
    let both: u64 = files.iter().map(|file| file.read_or_written_bytes).sum();
    let fits = |left: i64| u64::try_from(left).is_ok_and(|left| left >= both);
    let (is_written, is_read) =
        (of_read == 0 && fits(of_written), of_written == 0 && fits(of_read));
    if both == 0 || !is_written && !is_read {
        return false;
    }
    for file in files {
        let moved = std::mem::take(&mut file.read_or_written_bytes);
        *(if is_written { &mut file.written_bytes } else { &mut file.read_bytes }) += moved;
    }
    true
}

/// Answers calls until it is stopped or no process under the filter is left.
fn answer(listener: &Listener, stop: &OwnedFd, positions: Option<&Mutex<Positions>>) {
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(listener.descriptor(), PollFlags::IN),
            PollFd::new(stop, PollFlags::empty()),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let [calls, stop] = fds.map(|fd| fd.revents());
        if calls.contains(PollFlags::IN) {
            let Ok(call) = listener.next() else { continue };
            let Some(positions) = positions else {
                let _ = listener.go_on(&call);
                continue;
            };
            let mut positions = unpoisoned(positions.lock());
            let effect = positions.effect_of(&call);
            // The thread may have been killed meanwhile; then the call is not made.
            if listener.go_on(&call).is_ok() {
                positions.apply(effect);
            }
        } else if !calls.is_empty() || !stop.is_empty() {
            return;
        }
    }
}
