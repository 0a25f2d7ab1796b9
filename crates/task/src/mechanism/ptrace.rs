//! `ptrace` events: every process and thread stops for a moment when it is born, when it becomes
//! another program and before it ends, and nowhere else. So none is missed, however short it lives,
//! and each is asked for its memory and bytes when they are final and still there.
//!
//! Needs only to be allowed to trace one's own children. A tracer that dies leaves them running. A
//! set-user-id program that is started under it does not get its privileges, unless the tracer may
//! trace anybody; that is the kernel's rule.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::fs;
use std::io;

use skopos_model::task::Completeness;

use super::{Mechanism, pages};
use crate::ledger::{Ledger, Offer};
use crate::proc;
use crate::sys::{self, Event, Pid};

/// The name in reports.
pub(crate) const NAME: &str = "ptrace";

/// Of what is counted whenever a thread wakes.
const WITH_STOPS: &str = "what threads waited after each stop by the monitor is in it";

#[derive(Default)]
pub(crate) struct Ptrace {
    /// The process of each thread that is traced.
    threads: HashMap<Pid, Pid>,
    /// Processes that had more than one thread at any time.
    threaded: HashSet<Pid>,
    /// Those that were met before their parent told of them: some have ended by then.
    early: HashSet<Pid>,
    /// Time ready without a processor, of threads that ended.
    delay_nanos: u64,
    /// The same of threads that ran before, and the storage delay of processes, until then.
    before: HashMap<Pid, (u64, f64)>,
    /// Why some processes that ran before cannot be traced.
    refused: Option<String>,
    /// Threads whose delay could not be read.
    without_delay: u64,
    /// True if the kernel counts the time for which storage was waited for.
    accounts_for_delays: bool,
    io_delay_seconds: f64,
}

impl Ptrace {
    /// A process is there that has not run yet.
    fn forked(&mut self, process: Pid, parent: Pid, ledger: &mut Ledger) {
        if self.threads.insert(process, process).is_none() {
            ledger.process_forked(process, parent);
        }
    }

    /// A thread is there; of an unknown one it is looked up whose.
    fn meet(&mut self, thread: Pid, parent: Option<Pid>, ledger: &mut Ledger) {
        if self.threads.contains_key(&thread) {
            return;
        }
        // A look into the parent's list of threads is cheaper than the thread's own status.
        let in_parent =
            parent.filter(|p| fs::exists(format!("/proc/{p}/task/{thread}")).unwrap_or(false));
        let Some(process) = in_parent.or_else(|| proc::process_of(thread)) else { return };
        self.threads.insert(thread, process);
        if process == thread {
            let parent = parent.or_else(|| Some(proc::stat(process)?.parent));
            ledger.process_started(process, parent.unwrap_or(0));
        } else {
            self.threaded.insert(process);
            ledger.update_threads(process, |threads| threads + 1);
        }
    }

    /// Its parent tells of a thread. Where it was met and has ended already, it is not met again: the
    /// parent stands still, so it has not been reaped.
    fn told_of(&mut self, new: Pid, parent: Option<Pid>, event: c_int, ledger: &mut Ledger) {
        let was_met = self.early.remove(&new);
        let is_over = || proc::stat(new).is_none_or(|stat| stat.is_zombie);
        if was_met && !self.threads.contains_key(&new) && is_over() {
            return;
        }
        match parent {
            // Whose end is told by SIGCHLD is a process; of others it is looked up.
            Some(parent) if event != libc::PTRACE_EVENT_CLONE => self.forked(new, parent, ledger),
            parent => self.meet(new, parent, ledger),
        }
    }

    fn stopped(
        &mut self,
        thread: Pid,
        signal: c_int,
        event: c_int,
        ledger: &mut Ledger,
    ) -> io::Result<()> {
        ledger.stops += 1;
        match event {
            // Before a signal is delivered: it is.
            0 => return sys::go_on(thread, signal),
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let new = sys::event_message(thread)? as Pid;
                self.told_of(new, self.threads.get(&thread).copied(), event, ledger);
                if event == libc::PTRACE_EVENT_VFORK {
                    ledger.mark_borrowed_memory(new);
                }
            }
            libc::PTRACE_EVENT_EXEC => self.became(thread, ledger),
            libc::PTRACE_EVENT_EXIT => self.ending(thread, ledger),
            libc::PTRACE_EVENT_STOP => {
                if !self.threads.contains_key(&thread) {
                    self.early.insert(thread);
                }
                self.meet(thread, None, ledger);
                if matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
                    return sys::stay_stopped(thread);
                }
            }
            _ => {}
        }
        sys::go_on(thread, 0)
    }

    /// Begins to trace all that run already. What a traced process starts is traced from its birth, so
    /// once all threads of one are, its children are those that are there and no more will be missed.
    fn join(&mut self, root: Pid, ledger: &mut Ledger) -> io::Result<()> {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let mut waiting = vec![root];
        let mut met = HashSet::new();
        while let Some(process) = waiting.pop() {
            if !met.insert(process) || process == std::process::id() as Pid {
                continue;
            }
            let mut is_new = true;
            while is_new {
                is_new = false;
                for thread in proc::threads(process) {
                    // One that was born to a traced one is traced, and is told of.
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
                            self.refused.get_or_insert(format!("at least one is not seen: {why}"));
                            continue;
                        }
                    }
                    let delay = proc::schedstat(thread).map_or(0, |(_, delay)| delay);
                    let storage = proc::stat(thread).map_or(0.0, |stat| stat.io_delay_seconds);
                    self.before.insert(thread, (delay, storage));
                    let parent = proc::stat(process).map(|stat| stat.parent);
                    self.meet(
                        thread,
                        if thread == process { parent } else { Some(process) },
                        ledger,
                    );
                }
            }
            waiting.extend(proc::children(process));
        }
        if self.threads.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    /// All other threads of the process are gone, and this one has the process' id.
    fn became(&mut self, process: Pid, ledger: &mut Ledger) {
        if self.threaded.remove(&process) {
            self.threads.retain(|thread, of| *of != process || *thread == process);
        }
        self.threads.insert(process, process);
        ledger.update_threads(process, |_| 1);
        ledger.process_executed(process);
    }

    /// A thread is about to end. Its process is asked when its first thread ends, and when one ends
    /// after that.
    fn ending(&mut self, thread: Pid, ledger: &mut Ledger) {
        let spent = proc::schedstat(thread);
        let before = self.before.remove(&thread).unwrap_or_default();
        match spent {
            Some((_, delay)) => self.delay_nanos += delay.saturating_sub(before.0),
            None => self.without_delay += 1,
        }
        let Some(process) = self.threads.get(&thread).copied() else { return };
        if thread != process {
            // Who joins it goes on after this stop only, so it is never counted beside the next one.
            self.threads.remove(&thread);
            ledger.update_threads(process, |threads| threads.saturating_sub(1));
            if self.threads.contains_key(&process) {
                return;
            }
        }
        if let Some(memory) = proc::memory(process) {
            ledger.record_memory(process, memory);
        }
        // The scheduler's count is of a thread.
        let exact = spent.filter(|_| !self.threaded.contains(&process));
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
        ledger.record_usage(process, cpu, proc::io(process));
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
            return self.join(root, ledger);
        }
        sys::seize(root)?;
        self.meet(root, Some(std::process::id() as Pid), ledger);
        Ok(())
    }

    fn event(&mut self, event: &Event, ledger: &mut Ledger) {
        match *event {
            // One that was killed while it was stopped cannot go on, and its end follows.
            Event::Stopped { pid, signal, event } => {
                let _ = self.stopped(pid, signal, event, ledger);
            }
            Event::Ended { pid, .. } => {
                // One that was killed may end without a stop before.
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
        let all = if self.refused.is_some() { Completeness::AtLeast } else { all };
        let missing = (left > 0).then(|| format!("{left} processes of the task run on"));
        let missing = self.refused.take().or(missing);
        let unmeasured = (ledger.unmeasured > 0).then(|| {
            format!("{} processes ended before their memory could be read", ledger.unmeasured)
        });
        let of_memory = if unmeasured.is_some() { Completeness::AtLeast } else { all };
        let (resident, virtual_size) = ledger.peak_sums();
        // Each had its peak at some time of its own: together they held at least as much as the
        // greatest of them, and at most the sum.
        let page = rustix::param::page_size() as u64;
        let batch = pages::behind() * page * ledger.processes_max;
        let spread = resident.saturating_sub(ledger.largest_resident) + batch;
        let lived_before = ledger.is_attached().then(|| {
            let found = ledger.baseline.processes;
            format!("peaks of {found} processes that ran before are those of their whole life")
        });
        let unmeasured = unmeasured.or(lived_before);
        // What they held before is no bound for what they held since.
        let looked = resident.saturating_sub(ledger.sampled_resident_max) + batch;
        let spread = if ledger.is_attached() { looked } else { spread };
        let delay = self.delay_nanos as f64 / 1e9;
        let woken = missing.clone().or(Some(WITH_STOPS.to_owned()));
        let of_delay = if self.without_delay > 0 { Completeness::AtLeast } else { all };
        for (name, value, completeness, error_bound, reason) in [
            ("processes_max", ledger.processes_max as f64, all, Some(0.0), &missing),
            ("processes_total", ledger.processes_total as f64, all, Some(0.0), &missing),
            ("threads_max", ledger.threads_max as f64, all, Some(0.0), &missing),
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

/// Why a process or thread that runs may not be traced.
fn refused(thread: Pid) -> io::Error {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let user = rustix::process::geteuid().as_raw().cast_signed();
    io::Error::other(match (proc::tracer_of(thread), proc::user_of(thread)) {
        (Some(tracer), _) => {
            let by = proc::process_of(tracer).unwrap_or(tracer);
            format!("{thread} is traced by process {by}, and there is one tracer at a time")
        }
        (_, Some(owner)) if owner != user && user != 0 => {
            format!("{thread} is of the user {owner}: only that user and root may trace it")
        }
        _ if !matches!(scope.trim(), "" | "0") => format!(
            "kernel.yama.ptrace_scope is {}: of ordinary users only a parent may trace, so start the \
             task with `skopos run`, or attach as root",
            scope.trim()
        ),
        _ => format!(
            "the kernel forbids to trace {thread}: it has privileges that this user has not, or a \
             container's filter is in the way"
        ),
    })
}

/// Whether this process may trace its children.
pub(crate) fn may_trace() -> Result<(), String> {
    // Yama: 0 and 1 allow it to parents, 2 to administrators, 3 to nobody.
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "3" => Err("kernel.yama.ptrace_scope is 3: nobody may trace".to_owned()),
        "2" if !rustix::process::geteuid().is_root() => {
            Err("kernel.yama.ptrace_scope is 2: only administrators may trace".to_owned())
        }
        _ => Ok(()),
    }
}
