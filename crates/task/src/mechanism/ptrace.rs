//! `ptrace` events: every process and thread stops for a moment when it starts, when it calls exec
//! and before it exits, and nowhere else. So none is missed, however short it lives, and its memory
//! and bytes are read when they are final and still present.
//!
//! Needs only the permission to trace one's own children. If the tracer dies, the task runs on. By
//! the kernel's rule, a set-user-id program that starts under a tracer does not gain its
//! privileges, unless the tracer may trace any process.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::fs;
use std::io;

use skopos_model::task::Completeness;

use super::reasons::still_running;
use super::{Mechanism, pages};
use crate::ledger::{Ledger, Offer};
use crate::proc;
use crate::sys::{self, Event, Pid};

/// The name in reports.
pub(crate) const NAME: &str = "ptrace";

/// The most threads of a process that are followed. Each costs three stops; a program that starts thousands,
/// one for each piece of work, would take three times as long.
const MAX_FOLLOWED: u32 = 256;

/// The maps of a process that ran this long are looked at when it exits: a look takes some 20 µs, and in a
/// shorter time a process moves little.
const LOOK_AFTER_SECONDS: f64 = 0.01;

/// The note on delays, which are counted whenever a thread wakes.
const WITH_STOPS: &str = "includes the wait of threads after each stop by the monitor";

#[derive(Default)]
pub(crate) struct Ptrace {
    /// The process of each thread that is traced.
    threads: HashMap<Pid, Pid>,
    /// Processes that have ever had more than one thread, with the number of threads that they started.
    threaded: HashMap<Pid, u32>,
    /// Number of processes that started more threads than are followed.
    crowded: u64,
    /// Threads that stopped before their parent reported them. Some of them have exited by then.
    early: HashSet<Pid>,
    /// Time ready without a processor, of exited threads.
    delay_nanos: u64,
    /// The same of threads that ran before the attach, and the storage delay of their processes,
    /// both until the attach.
    before: HashMap<Pid, (u64, f64)>,
    /// The reason why some processes of an attached task cannot be traced.
    refused: Option<String>,
    /// Number of threads whose delay could not be read.
    without_delay: u64,
    /// True if the kernel accounts for the wait for storage.
    accounts_for_delays: bool,
    io_delay_seconds: f64,
}

impl Ptrace {
    /// Adds a process that has not run yet.
    fn add_forked(&mut self, process: Pid, parent: Pid, ledger: &mut Ledger) {
        if self.threads.insert(process, process).is_none() {
            ledger.process_forked(process, parent);
        }
    }

    /// Adds a thread, and looks up its process if that is unknown. Returns false for a thread that is not
    /// followed.
    fn add_thread(&mut self, thread: Pid, parent: Option<Pid>, ledger: &mut Ledger) -> bool {
        if self.threads.contains_key(&thread) {
            return true;
        }
        // Checking the parent's list of threads is cheaper than reading the thread's status.
        let in_parent =
            parent.filter(|p| fs::exists(format!("/proc/{p}/task/{thread}")).unwrap_or(false));
        let Some(process) = in_parent.or_else(|| proc::process_of(thread)) else { return true };
        if process == thread {
            self.threads.insert(thread, process);
            let parent = parent.or_else(|| Some(proc::stat(process)?.parent));
            ledger.process_started(process, parent.unwrap_or(0));
            return true;
        }
        if self.is_crowded(process) {
            return false;
        }
        self.threads.insert(thread, process);
        *self.threaded.entry(process).or_default() += 1;
        ledger.update_threads(process, |threads| threads + 1);
        if self.is_crowded(process) {
            self.crowded += 1;
            // Samples search for the processes that later threads start.
            ledger.untraced += 1;
        }
        true
    }

    /// True for a process that has started as many threads as are followed.
    fn is_crowded(&self, process: Pid) -> bool {
        self.threaded.get(&process).is_some_and(|started| *started >= MAX_FOLLOWED)
    }

    /// Handles a parent's report of a new thread. If that thread was seen early and has exited, it
    /// is not added again: its parent is stopped, so it has not been reaped.
    fn handle_new_thread(
        &mut self,
        new: Pid,
        parent: Option<Pid>,
        event: c_int,
        ledger: &mut Ledger,
    ) {
        let was_early = self.early.remove(&new);
        let has_exited = || proc::stat(new).is_none_or(|stat| stat.is_zombie);
        if was_early && !self.threads.contains_key(&new) && has_exited() {
            return;
        }
        match parent {
            // A clone that signals its exit by SIGCHLD is reported as a fork, and is a process.
            // Other clones are looked up.
            Some(parent) if event != libc::PTRACE_EVENT_CLONE => {
                self.add_forked(new, parent, ledger)
            }
            parent => {
                self.add_thread(new, parent, ledger);
            }
        }
    }

    fn handle_stop(
        &mut self,
        thread: Pid,
        signal: c_int,
        event: c_int,
        ledger: &mut Ledger,
    ) -> io::Result<()> {
        ledger.stops += 1;
        match event {
            // A stop before the delivery of a signal: the signal is delivered.
            0 => return sys::go_on(thread, signal),
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let new = sys::event_message(thread)? as Pid;
                self.handle_new_thread(new, self.threads.get(&thread).copied(), event, ledger);
                if event == libc::PTRACE_EVENT_VFORK {
                    ledger.mark_borrowed_memory(new);
                }
                if self.threads.get(&thread).is_some_and(|process| self.is_crowded(*process)) {
                    sys::leave_new_threads(thread)?;
                }
            }
            libc::PTRACE_EVENT_EXEC => {
                // The program runs on while its command line is read. It cannot exit before its next stop.
                let result = sys::go_on(thread, 0);
                self.handle_exec(thread, ledger);
                return result;
            }
            libc::PTRACE_EVENT_EXIT => self.handle_exit_stop(thread, ledger),
            libc::PTRACE_EVENT_STOP => {
                if !self.threads.contains_key(&thread) {
                    self.early.insert(thread);
                }
                if !self.add_thread(thread, None, ledger) {
                    return sys::release(thread);
                }
                if matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
                    return sys::stay_stopped(thread);
                }
            }
            _ => {}
        }
        sys::go_on(thread, 0)
    }

    /// Begins to trace all running threads. Threads that a traced process starts are traced
    /// automatically. So once all threads of a process are traced, its list of children is complete
    /// and none will be missed.
    fn attach_running(&mut self, root: Pid, ledger: &mut Ledger) -> io::Result<()> {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let mut waiting = vec![root];
        let mut visited = HashSet::new();
        while let Some(process) = waiting.pop() {
            if !visited.insert(process) || process == std::process::id() as Pid {
                continue;
            }
            let mut is_new = true;
            while is_new {
                is_new = false;
                for thread in proc::threads(process) {
                    // A child of a traced thread is traced, and will be reported.
                    if self.threads.contains_key(&thread) || proc::tracer_of(thread) == Some(own) {
                        continue;
                    }
                    match sys::seize(thread) {
                        Ok(()) => is_new = true,
                        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => continue,
                        Err(_) if self.threads.is_empty() => return Err(refused(thread)),
                        Err(_) => {
                            ledger.untraced += 1;
                            let why = refused(thread);
                            self.refused
                                .get_or_insert(format!("at least one process is missing: {why}"));
                            continue;
                        }
                    }
                    let delay = proc::schedstat(thread).map_or(0, |(_, delay)| delay);
                    let storage = proc::stat(thread).map_or(0.0, |stat| stat.io_delay_seconds);
                    self.before.insert(thread, (delay, storage));
                    let parent = proc::stat(process).map(|stat| stat.parent);
                    self.add_thread(
                        thread,
                        if thread == process { parent } else { Some(process) },
                        ledger,
                    );
                    // Threads that ran before the attach are followed all the same.
                    self.threaded.entry(process).and_modify(|started| *started = 0);
                }
            }
            waiting.extend(proc::children(process));
        }
        if self.threads.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    /// Handles an exec: all other threads of the process are gone, and this one has the id of the
    /// process.
    fn handle_exec(&mut self, process: Pid, ledger: &mut Ledger) {
        if self.threaded.remove(&process).is_some() {
            self.threads.retain(|thread, of| *of != process || *thread == process);
        }
        self.threads.insert(process, process);
        ledger.update_threads(process, |_| 1);
        ledger.process_executed(process);
    }

    /// Handles the stop of a thread before its exit. Its process is read when the main thread
    /// exits, and whenever a thread exits after that.
    fn handle_exit_stop(&mut self, thread: Pid, ledger: &mut Ledger) {
        let spent = proc::schedstat(thread);
        let before = self.before.remove(&thread).unwrap_or_default();
        match spent {
            Some((_, delay)) => self.delay_nanos += delay.saturating_sub(before.0),
            None => self.without_delay += 1,
        }
        let Some(process) = self.threads.get(&thread).copied() else { return };
        if thread != process {
            // A thread that joins this one continues only after this stop, so this one is never
            // counted together with the next.
            self.threads.remove(&thread);
            ledger.update_threads(process, |threads| threads.saturating_sub(1));
            if self.threads.contains_key(&process) {
                return;
            }
        }
        if let Some(memory) = proc::memory(process) {
            ledger.record_memory(process, memory);
        }
        if ledger.age_seconds(process) > LOOK_AFTER_SECONDS {
            ledger.look_for_unseen(process);
        }
        // The scheduler's count is that of one thread.
        let exact = spent.filter(|_| !self.threaded.contains_key(&process));
        let is_wanted =
            exact.is_none() || self.accounts_for_delays || ledger.ignores_children(process);
        let stat = if is_wanted { proc::stat(process) } else { None };
        if let Some(stat) = stat {
            self.io_delay_seconds += (stat.io_delay_seconds - before.1).max(0.0);
            ledger.record_waited_faults(process, stat.waited_for_faults);
        }
        let cpu = exact
            .map(|(nanos, _)| nanos as f64 / 1e9)
            .or(stat.map(|s| s.user_seconds + s.system_seconds));
        let io = proc::io(process);
        ledger.record_usage(process, cpu, io);
        if io.is_some() {
            ledger.mark_final_io(process);
        }
    }
}

impl Mechanism for Ptrace {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn attach(&mut self, root: Pid, ledger: &mut Ledger) -> io::Result<()> {
        self.accounts_for_delays = proc::accounts_for_delays();
        if ledger.is_attached() {
            return self.attach_running(root, ledger);
        }
        sys::seize(root)?;
        self.add_thread(root, Some(std::process::id() as Pid), ledger);
        Ok(())
    }

    fn event(&mut self, event: &Event, ledger: &mut Ledger) {
        match *event {
            // A thread that was killed while it was stopped cannot be continued, and its exit
            // follows.
            Event::Stopped { pid, signal, event } => {
                let _ = self.handle_stop(pid, signal, event, ledger);
            }
            Event::Ended { pid, .. } => {
                // A killed thread may exit without a stop.
                if let Some(process) = self.threads.remove(&pid).filter(|process| *process != pid) {
                    ledger.update_threads(process, |threads| threads.saturating_sub(1));
                }
                self.threaded.remove(&pid);
            }
        }
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        let left = ledger.live_pids().len();
        let all = if left == 0 { Completeness::All } else { Completeness::AtLeast };
        let missing = still_running(left);
        let crowded = (self.crowded > 0).then(|| {
            format!(
                "{} processes started more than {MAX_FOLLOWED} threads: later threads are not followed, and \
                 processes that those start are found by samples only",
                self.crowded
            )
        });
        self.refused = self.refused.take().or(crowded);
        let all = if self.refused.is_some() { Completeness::AtLeast } else { all };
        let missing = self.refused.take().or(missing);
        let unmeasured = (ledger.unmeasured > 0).then(|| {
            format!("{} processes exited before their memory could be read", ledger.unmeasured)
        });
        let of_memory = if unmeasured.is_some() { Completeness::AtLeast } else { all };
        let (resident, virtual_size) = ledger.peak_sums();
        // Each process had its peak at a time of its own: together they held at least as much as
        // the greatest peak, and at most the sum.
        let page = rustix::param::page_size() as u64;
        let batch = pages::max_lag() * page * ledger.processes_max;
        let spread = resident.saturating_sub(ledger.largest_resident) + batch;
        let lived_before = ledger.is_attached().then(|| {
            let count = ledger.baseline.processes;
            format!("the peaks of {count} processes include their time before the attach")
        });
        let unmeasured = unmeasured.or(lived_before);
        // Memory that they held before the attach does not bound what they held since.
        let attach_spread = resident.saturating_sub(ledger.sampled_resident_max) + batch;
        let spread = if ledger.is_attached() { attach_spread } else { spread };
        let delay = self.delay_nanos as f64 / 1e9;
        let woken = missing.clone().or(Some(WITH_STOPS.to_owned()));
        let of_delay = if self.without_delay > 0 { Completeness::AtLeast } else { all };
        for (name, value, completeness, error_bound, reason) in [
            ("processes_max", ledger.processes_max as f64, all, Some(0.0), &missing),
            ("processes_total", ledger.processes_total as f64, all, Some(0.0), &missing),
            ("threads_max", ledger.threads_max as f64, all, Some(0.0), &missing),
            ("threads_total", ledger.threads_total as f64, all, Some(0.0), &missing),
            ("resident_bytes_max", resident as f64, of_memory, Some(spread as f64), &unmeasured),
            ("virtual_bytes_max", virtual_size as f64, of_memory, None, &unmeasured),
            ("cpu_delay_seconds", delay, of_delay, None, &woken),
            ("io_delay_seconds", self.io_delay_seconds, all, None, &missing),
        ] {
            if name == "io_delay_seconds" && !self.accounts_for_delays {
                ledger.offers.mark_unavailable(name, proc::NO_DELAYS);
                continue;
            }
            let reason = reason.clone();
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound, reason });
        }
    }
}

/// Returns the reason why a running thread cannot be traced.
fn refused(thread: Pid) -> io::Error {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let user = rustix::process::geteuid().as_raw().cast_signed();
    io::Error::other(match (proc::tracer_of(thread), proc::user_of(thread)) {
        (Some(tracer), _) => {
            let by = proc::process_of(tracer).unwrap_or(tracer);
            format!("process {by} traces {thread} already, and only one tracer is possible")
        }
        (_, Some(owner)) if owner != user && user != 0 => {
            format!("{thread} belongs to user {owner}: only that user and root may trace it")
        }
        _ if !matches!(scope.trim(), "" | "0") => format!(
            "kernel.yama.ptrace_scope is {}: an ordinary user may trace children only, so start the \
             task with `skopos run`, or attach as root",
            scope.trim()
        ),
        _ => format!(
            "the kernel does not allow to trace {thread}: it has privileges that this user lacks, or \
             a container's filter forbids it"
        ),
    })
}

/// Describes what a traced task cannot do. The kernel grants the privileges of a set-user-id program if the tracer
/// may trace any process.
pub(crate) fn lost() -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => "debuggers do not work in the task",
        false => {
            "debuggers do not work in the task, and set-user-id programs do not gain their privileges"
        }
    }
}

/// Checks whether this process may trace its children.
pub(crate) fn may_trace() -> Result<(), String> {
    // Yama: 0 and 1 allow it to parents, 2 to administrators, 3 to no process.
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "3" => Err("kernel.yama.ptrace_scope is 3: tracing is disabled".to_owned()),
        "2" if !rustix::process::geteuid().is_root() => {
            Err("kernel.yama.ptrace_scope is 2: only administrators may trace".to_owned())
        }
        _ => Ok(()),
    }
}
