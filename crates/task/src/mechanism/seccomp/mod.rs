//! System calls narrowed by a `seccomp` filter: those that end descriptors and seek wait until they were
//! looked at, those that read and write are not even noticed. What went through an open file is told
//! by its position, so a program may be static and do its work in a million small writes.
//!
//! The filter outlives the monitor, and a call that nobody answers would never be made. So it is no
//! filter that asks a tracer, but one that asks a listener, which two processes hold: the monitor, and
//! a guardian that does nothing until the monitor is gone, and answers then. Only who ends both by hand
//! harms the task.
//!
//! A signal that comes before a call was looked at makes the kernel break it off. The tracer sees that
//! and has it made again, so this needs `ptrace`, and comes before it in the team: a stopped thread is
//! looked at before it goes on.

mod descriptor;
mod filter;
mod positions;
mod program;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use skopos_model::unpoisoned;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use skopos_model::task::{Completeness, FileUse, Files, ProcessFiles};

use self::positions::{Counts, Positions};
use super::files::{self, Processes};
use super::{Launch, Mechanism};
use crate::ledger::{Ledger, Offer};
use crate::proc::{self, Io};
use crate::sys::seccomp::{self, Filter, Listener};
use crate::sys::{self, Event, Pid};

pub(crate) use program::is_static;

/// The name in reports.
pub(crate) const NAME: &str = "seccomp";

/// What positions do not tell.
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
    /// Where the listener comes from.
    from_child: Option<OwnedFd>,
    positions: Arc<Mutex<Positions>>,
    answers: Option<Answers>,
    has_guardian: bool,
    root: Pid,
    /// What the kernel counted for the child before it was the program.
    before: Option<Io>,
    processes: Processes,
}

/// The thread that answers, and what ends it.
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
        // From here on the child asks. If what follows fails, the guardian answers; if there is none,
        // it fails only if the monitor does.
        let (ended, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        self.has_guardian = seccomp::start_guardian(&listener, ended.as_fd()).is_ok();
        self.root = root;
        self.positions = Arc::new(Mutex::new(Positions::of(std::process::id() as Pid, root)));
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let positions = Arc::clone(&self.positions);
        let thread = std::thread::Builder::new().name("seccomp".into()).spawn(move || {
            // Closed, however this ends, it tells the guardian that nobody else answers.
            let _alive = alive;
            // A mistake of ours must not leave the task waiting.
            let look = AssertUnwindSafe(|| answer(&listener, &stopped, Some(&positions)));
            if catch_unwind(look).is_err() {
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
        let (files, living, counts) = positions.into_files();
        for process in living {
            self.keep(process, ledger);
        }
        let files = self.report(files, counts, ledger);
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

    /// From now on the guardian answers, if there is anybody left.
    fn stop(&mut self) {
        if let Some(Answers { thread, stop }) = self.answers.take() {
            drop(stop);
            // It ended of its own mistake at worst, which is told by what is missing.
            let _ = thread.join();
        }
    }

    /// A traced thread stopped, and goes on after this.
    fn stopped(&mut self, thread: Pid, event: i32, ledger: &Ledger) {
        match event {
            0 => sys::seccomp::restart(thread, filter::is_asked),
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let Ok(new) = sys::event_message(thread) else { return };
                let mut positions = self.positions();
                positions.forked(thread);
                positions.met(new as Pid);
            }
            // The new one may stop before who made it is told of.
            libc::PTRACE_EVENT_STOP => {
                self.positions().met(thread);
            }
            libc::PTRACE_EVENT_EXEC => {
                let is_start = self.before.is_none() && thread == self.root;
                if is_start {
                    self.before = proc::io(thread);
                }
                self.positions().became(thread, !is_start);
            }
            libc::PTRACE_EVENT_EXIT => self.ending(thread, ledger),
            _ => {}
        }
    }

    /// A process that ends without being asked: by a signal, or because its only thread does.
    fn ending(&mut self, thread: Pid, ledger: &Ledger) {
        let process = match ledger.contains(thread) {
            true => thread,
            false => proc::process_of(thread).unwrap_or(thread),
        };
        if !self.positions().is_open(process) {
            return;
        }
        // The signal is in the lowest bits, as `wait` has it.
        let is_killed = sys::event_message(thread).is_ok_and(|status| status & 0x7f != 0);
        if is_killed || ledger.thread_count(process) <= 1 {
            let mut positions = self.positions();
            let effect = positions.end_of(process);
            positions.done(effect);
        }
    }

    fn ended(&mut self, thread: Pid, ledger: &Ledger) {
        let ended = self.positions().ended(thread);
        if let Some(process) = ended {
            self.keep(process, ledger);
        }
    }

    fn keep(&mut self, mut process: ProcessFiles, ledger: &Ledger) {
        ledger.command_of(process.pid).unwrap_or_default().clone_into(&mut process.command);
        self.processes.push(process);
    }

    fn report(&mut self, mut files: Vec<FileUse>, counts: Counts, ledger: &Ledger) -> Files {
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
            if tell_apart(&mut files, of_read, of_written) {
                None
            } else {
                Some((of_read, of_written))
            }
        };
        // Once told apart they add up anew.
        let totals = totals().or_else(&mut totals);
        let (unattributed_read_bytes, unattributed_written_bytes) = totals.unwrap_or_default();
        let overflowed = files.iter().find(|f| f.kind == "others").map_or(0, |f| f.opens);
        let both = sum(&files, |f| f.read_or_written_bytes);
        let is_all = unattributed_read_bytes == Some(0)
            && unattributed_written_bytes == Some(0)
            && (both, overflowed, counts) == (0, 0, Counts::default())
            && ledger.live_count() == 0;
        Files {
            completeness: if is_all { Completeness::All } else { Completeness::AtLeast },
            reason: if is_all { EXACT.to_owned() } else { self.missing(both, overflowed, counts) },
            not_counted: NOT_COUNTED.map(str::to_owned).to_vec(),
            unattributed_read_bytes,
            unattributed_written_bytes,
            ..files::listed(NAME, files, Vec::new(), std::mem::take(&mut self.processes))
        }
    }

    /// What is not in it, in words.
    fn missing(&self, both: u64, overflowed: u64, counts: Counts) -> String {
        let mut text =
            "bytes that move no position (pread, pwrite, mmap, pipes, sockets, terminals) and \
                        files that io_uring closes are not in it"
                .to_owned();
        for (count, what) in [
            (both, "bytes went through files that were open for reading and writing"),
            (counts.appending, "descriptors appended, so that their position is no count"),
            (counts.unknown_stretches, "seeks for data or holes ended where nobody knows"),
            (
                counts.unseen_ends,
                "processes were killed before their open files could be looked at",
            ),
            (overflowed, "opens found no room for a file of their own"),
            (u64::from(!self.has_guardian), "time nobody would have answered had the monitor died"),
        ] {
            if count > 0 {
                text += &format!("; {count} {what}");
            }
        }
        text
    }
}

/// Where nothing is missing.
const EXACT: &str =
    "all bytes that the kernel counted are in it; what was mapped it does not count";

/// What went through files that were open for both was written if nothing is left that could have been
/// read, and the other way round. True if it was decided.
fn tell_apart(files: &mut [FileUse], of_read: Option<i64>, of_written: Option<i64>) -> bool {
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

/// Answers until it is told to stop or nobody is left who asks.
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
            let Ok(asked) = listener.next() else { continue };
            let Some(positions) = positions else {
                let _ = listener.go_on(&asked);
                continue;
            };
            let mut positions = unpoisoned(positions.lock());
            let effect = positions.effect_of(&asked);
            // One that was killed meanwhile makes no call.
            if listener.go_on(&asked).is_ok() {
                positions.done(effect);
            }
        } else if !calls.is_empty() || !stop.is_empty() {
            return;
        }
    }
}
