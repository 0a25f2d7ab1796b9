//! The ledger of a task: an account of each process, and the values that mechanisms offer for each
//! resource.

mod clock;
mod exited;
mod heaviest;
mod live;
mod offers;
mod peaks;
mod reaped;
mod reported;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use skopos_model::task::{Files, Nested, Process};

use self::clock::Clock;
use self::exited::Exited;
use self::live::{Live, label};
use self::peaks::Peaks;
use crate::baseline::Baseline;
use crate::member::Member;
use crate::membership::Membership;
use crate::patient::{COMMAND_TIMEOUT, Late, PatientReader};
use crate::proc::{self, Io, Memory};
use crate::sys::{Pid, Status, Usage};
use crate::unseen::Unseen;

pub(crate) use offers::{Offer, Offers};
pub(crate) use reaped::Reaped;

/// The account of one task.
pub(crate) struct Ledger {
    clock: Clock,
    live: HashMap<Pid, Live>,
    exited: Exited,
    /// Of the exited processes, the one that read most and the one that wrote most: bytes and label.
    top_movers: [(u64, String); 2],
    pub(crate) processes_total: u64,
    pub(crate) processes_max: u64,
    pub(crate) threads_max: u64,
    /// Threads that started, as far as they were seen.
    pub(crate) threads_total: u64,
    threads: u64,
    resident: Peaks,
    virtual_size: Peaks,
    /// The greatest resident peak of one process.
    pub(crate) largest_resident: u64,
    /// Number of processes that exited before their memory was read.
    pub(crate) unmeasured: u64,
    /// Ids of exited processes, if a mechanism needs them: at most as many as there are ids.
    exited_pids: Option<HashSet<Pid>>,
    /// Usage of the processes that were reaped here, including the children that they waited for.
    pub(crate) reaped: Reaped,
    /// A process ignored SIGCHLD, so the usage of its children is in no sum.
    pub(crate) has_unwaited: bool,
    /// A mechanism reports every process start, so it is known which processes have children.
    pub(crate) tracks_processes: bool,
    pub(crate) offers: Offers,
    /// Number of times that a process was stopped to measure it.
    pub(crate) stops: u64,
    /// Exited processes with their command lines, for the mechanism that takes them; `None` if no
    /// mechanism does.
    pub(crate) exits: Option<Vec<(Pid, String)>>,
    /// The usage of each file, if it was counted.
    pub(crate) files: Option<Files>,
    /// Monitors inside the task, and the number of those left out.
    pub(crate) nested: (Vec<Nested>, u64),
    is_attached: bool,
    /// Tells the processes of the task from others below the monitor.
    pub(crate) membership: Membership,
    /// Ways of input and output of the task that byte counts leave out.
    pub(crate) unseen: Unseen,
    /// Number of children that exited beside strangers, without evidence that they were of the task.
    pub(crate) unassigned: u64,
    /// The usage of all processes together at the time of the attach.
    pub(crate) baseline: Baseline,
    /// Processes started or exited while the baseline was read, so it may be too small.
    pub(crate) baseline_is_torn: bool,
    /// Number of threads that cannot be traced while others of the task are.
    pub(crate) untraced: u64,
    /// Watched folders that no sample found.
    pub(crate) missing_folders: Vec<String>,
    /// The most resident memory that a sample found.
    pub(crate) sampled_resident_max: u64,
    /// The reader of files that a task which may fork without end keeps locked.
    pub(crate) patient: Option<PatientReader>,
    /// Processes whose command lines were not read in time.
    late_commands: Vec<Pid>,
}

/// The most command lines that are read again. Of further processes the report has the names.
const MAX_LATE_COMMANDS: usize = 1024;

/// The least speed at which the kernel walks page tables, in bytes of resident memory per nanosecond: a fifth
/// of 0.1 s for 10 GB.
const PSS_BYTES_PER_NANO: u64 = 20;

impl Ledger {
    /// Creates the ledger of a task that the monitor starts.
    pub(crate) fn new() -> Self {
        Self {
            clock: Clock::start(),
            live: HashMap::new(),
            exited: Exited::default(),
            top_movers: Default::default(),
            processes_total: 0,
            processes_max: 0,
            threads_max: 0,
            threads: 0,
            resident: Peaks::default(),
            virtual_size: Peaks::default(),
            largest_resident: 0,
            unmeasured: 0,
            exited_pids: None,
            reaped: Reaped::default(),
            has_unwaited: false,
            tracks_processes: false,
            offers: Offers::default(),
            stops: 0,
            exits: None,
            files: None,
            nested: (Vec::new(), 0),
            is_attached: false,
            membership: Membership::default(),
            unassigned: 0,
            unseen: Unseen::default(),
            threads_total: 0,
            baseline: Baseline::default(),
            baseline_is_torn: false,
            untraced: 0,
            missing_folders: Vec::new(),
            sampled_resident_max: 0,
            patient: None,
            late_commands: Vec::new(),
        }
    }

    /// Creates the ledger of a task that was running before the monitor.
    pub(crate) fn for_attached() -> Self {
        Self { is_attached: true, ..Self::new() }
    }

    /// Sets the facts by which processes of the task are told from others. Beside strangers the ids of
    /// exited processes are kept: an orphan that has exited is known by its id.
    pub(crate) fn set_membership(&mut self, membership: Membership) {
        if membership.has_strangers() {
            self.keep_exited_pids();
        }
        self.membership = membership;
    }

    /// True if the task was running before the monitor.
    pub(crate) fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// Starts the task's time now: the time before belongs to the monitor.
    pub(crate) fn restart_clock(&mut self) {
        self.clock = Clock::start();
        for live in self.live.values_mut() {
            live.process.start_seconds = 0.0;
        }
    }

    /// Time since the task started.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// Adds a process that was found or has just started.
    pub(crate) fn process_started(&mut self, pid: Pid, parent: Pid) {
        if self.live.contains_key(&pid) {
            return;
        }
        let name = proc::name(pid).unwrap_or_default();
        if let Some(live) = self.live.get_mut(&parent).filter(|live| live.name.is_empty()) {
            live.name = proc::name(parent).unwrap_or_default();
        }
        // A process that has just forked runs its parent's program. To read a command line the kernel
        // takes a lock that the process holds while it forks; among thousands that fork, the holder
        // may not run for seconds.
        let is_late = self.late_commands.contains(&parent);
        let same_program = self.live.get(&parent).filter(|live| live.name == name && !is_late);
        let command = match same_program.map(|live| live.process.command.clone()) {
            Some(command) => command,
            None => self.read_command(pid).unwrap_or_else(|| name.clone()),
        };
        self.insert(pid, parent, name, command, self.elapsed().as_secs_f64());
    }

    /// Adds a process that has not run yet. It runs its parent's program, so nothing is read of it.
    pub(crate) fn process_forked(&mut self, pid: Pid, parent: Pid) {
        match self.live.get(&parent) {
            Some(_) if self.live.contains_key(&pid) => {}
            Some(live) => {
                let (name, command) = (live.name.clone(), live.process.command.clone());
                self.insert(pid, parent, name, command, self.elapsed().as_secs_f64());
            }
            None => self.process_started(pid, parent),
        }
    }

    fn insert(&mut self, pid: Pid, parent: Pid, name: String, command: String, start_seconds: f64) {
        let process = Process { pid, parent, command, start_seconds, ..Process::default() };
        if let Some(parent) = self.live.get_mut(&parent) {
            parent.has_children = true;
        }
        let mut live = Live { process, name, ..Live::default() };
        live.threads = 1;
        live.started = self.is_attached.then(|| proc::stat(pid)).flatten().map(|s| s.started_ticks);
        self.live.insert(pid, live);
        self.resident.started(pid);
        self.virtual_size.started(pid);
        self.processes_total += 1;
        self.processes_max = self.processes_max.max(self.live.len() as u64);
        self.threads_total += 1;
        self.set_threads(self.threads + 1);
    }

    /// Sets the usage of a process before the attach.
    pub(crate) fn set_baseline(&mut self, pid: Pid, baseline: Baseline) {
        if let Some(live) = self.live.get_mut(&pid) {
            live.baseline = baseline;
        }
    }

    /// Records that a process called exec.
    pub(crate) fn process_executed(&mut self, pid: Pid) {
        if !self.live.contains_key(&pid) {
            return;
        }
        let command = self.read_command(pid).unwrap_or_default();
        if let Some(live) = self.live.get_mut(&pid) {
            live.leave_borrowed_memory();
            live.name.clear();
            live.process.command = command;
        }
    }

    /// Returns the command line of a process, or its name in brackets if the command line cannot be
    /// read in time.
    fn read_command(&mut self, pid: Pid) -> Option<String> {
        let Some(reader) = &mut self.patient else { return proc::command(pid) };
        reader.read(COMMAND_TIMEOUT, move || proc::command(pid)).unwrap_or_else(|Late| {
            if self.late_commands.len() < MAX_LATE_COMMANDS {
                self.late_commands.push(pid);
            }
            proc::name(pid)
        })
    }

    /// Reads command lines that were not read in time, until one is late again. Takes about as long as one
    /// late command line.
    pub(crate) fn read_late_commands(&mut self) {
        let Some(reader) = &mut self.patient else { return };
        let begun = Instant::now();
        while let Some(pid) = self.late_commands.pop() {
            let Some(live) = self.live.get_mut(&pid) else { continue };
            match reader.read(COMMAND_TIMEOUT, move || proc::command(pid)) {
                Ok(Some(command)) => live.process.command = command,
                Ok(None) => {}
                Err(Late) => self.late_commands.push(pid),
            }
            if begun.elapsed() >= COMMAND_TIMEOUT || self.late_commands.last() == Some(&pid) {
                return;
            }
        }
    }

    /// Returns the proportional set size of a process of `resident` bytes; `None` if it has exited.
    pub(crate) fn read_pss(&mut self, pid: Pid, resident: u64) -> Result<Option<u64>, Late> {
        let Some(reader) = &mut self.patient else { return Ok(proc::pss_bytes(pid)) };
        let walk = Duration::from_nanos(resident / PSS_BYTES_PER_NANO);
        reader.read(COMMAND_TIMEOUT + walk, move || proc::pss_bytes(pid))
    }

    /// Looks at a process for ways of input and output that byte counts leave out. The maps of a process
    /// that runs in the memory of another, such as the monitor's child before its exec, show the files of
    /// the other.
    pub(crate) fn look_for_unseen(&mut self, pid: Pid) {
        if self.borrows_memory(pid) {
            return;
        }
        let found = match &mut self.patient {
            None => Ok(Unseen::of(pid)),
            Some(reader) => reader.read(COMMAND_TIMEOUT, move || Unseen::of(pid)),
        };
        // A process that forks without end is ended by a limit.
        self.unseen.merge(found.unwrap_or_default());
    }

    /// Time since a process started, or was found.
    pub(crate) fn age_seconds(&self, pid: Pid) -> f64 {
        let begun = self.live.get(&pid).map(|live| live.process.start_seconds);
        begun.map_or(0.0, |begun| self.elapsed().as_secs_f64() - begun)
    }

    /// Records that a process runs in its parent's memory, which is counted for the parent, until its
    /// exec. The exec may have been recorded before.
    pub(crate) fn mark_borrowed_memory(&mut self, pid: Pid) {
        if let Some(live) = self.live.get_mut(&pid) {
            live.borrows_memory = !live.has_executed;
            if live.borrows_memory {
                live.memory = Some(Memory::default());
            }
        }
    }

    /// True for a process that runs in its parent's memory.
    pub(crate) fn borrows_memory(&self, pid: Pid) -> bool {
        self.live.get(&pid).is_some_and(|live| live.borrows_memory)
    }

    /// Changes the thread count of a process, from an event or from a sample.
    pub(crate) fn update_threads(&mut self, pid: Pid, change: impl FnOnce(u64) -> u64) {
        if let Some(live) = self.live.get_mut(&pid) {
            let (before, after) = (live.threads, change(live.threads));
            live.threads = after;
            self.threads_total += after.saturating_sub(before);
            let total = (self.threads + after).saturating_sub(before);
            self.set_threads(total);
        }
    }

    fn set_threads(&mut self, threads: u64) {
        self.threads = threads;
        self.threads_max = self.threads_max.max(threads);
    }

    /// The number of threads of a process.
    pub(crate) fn thread_count(&self, pid: Pid) -> u64 {
        self.live.get(&pid).map_or(0, |live| live.threads)
    }

    /// Records the memory of a process, its present size or its peak. A larger earlier value stays.
    pub(crate) fn record_memory(&mut self, pid: Pid, now: Memory) {
        if let Some(live) = self.live.get_mut(&pid) {
            let before = live.memory.unwrap_or_default();
            let ignores_children = now.ignores_children;
            let now = if live.borrows_memory { Memory::default() } else { now };
            live.memory = Some(Memory {
                virtual_bytes_max: now.virtual_bytes_max.max(before.virtual_bytes_max),
                resident_bytes_max: now.resident_bytes_max.max(before.resident_bytes_max),
                swap_bytes: now.swap_bytes.max(before.swap_bytes),
                ignores_children,
                ..now
            });
        }
    }

    /// Records the usage of a process so far, including the children that it waited for where the
    /// kernel adds them.
    pub(crate) fn record_usage(&mut self, pid: Pid, cpu_seconds: Option<f64>, io: Option<Io>) {
        if let Some(live) = self.live.get_mut(&pid) {
            let (process, before) = (&mut live.process, live.baseline);
            let since = |seconds: f64| (seconds - before.own_seconds).max(0.0);
            process.cpu_seconds = cpu_seconds.map(since).or(process.cpu_seconds);
            live.io = io.or(live.io);
            if let Some(io) = io.filter(|_| before.without_io == 0) {
                let io = io.since(before.io);
                process.read_bytes = Some(io.read_bytes);
                process.written_bytes = Some(io.written_bytes);
            }
        }
    }

    /// True for a process that has children and ignores SIGCHLD, so that the kernel adds their usage
    /// nowhere.
    pub(crate) fn ignores_children(&self, pid: Pid) -> bool {
        let ignores = |live: &Live| live.memory.is_some_and(|memory| memory.ignores_children);
        self.live.get(&pid).is_some_and(|live| live.has_children && ignores(live))
    }

    /// Records the page faults of all children that a process has waited for by the time it exits.
    pub(crate) fn record_waited_faults(&mut self, pid: Pid, faults: u64) {
        if let Some(live) = self.live.get_mut(&pid) {
            live.waited_for_faults = Some(faults);
        }
    }

    /// Records the usage of an exited process with its parent, to which the kernel adds it if the
    /// parent waits.
    pub(crate) fn credit_parent(&mut self, pid: Pid, usage: Usage) {
        let Some(live) = self.live.get(&pid) else { return };
        let (seen, parent) = (live.io, live.process.parent);
        let io = seen.filter(|_| live.io_is_final);
        if let Some(parent) = self.live.get_mut(&parent) {
            parent.children.add(usage, io, seen);
        }
    }

    /// Records that the bytes of a process are those at its end.
    pub(crate) fn mark_final_io(&mut self, pid: Pid) {
        if let Some(live) = self.live.get_mut(&pid) {
            live.io_is_final = live.io.is_some();
        }
    }

    /// Records the kernel's maximum of the resident size of an exited process, which outlives each exec.
    /// The peak of the last program is known already; a greater maximum is that of an earlier program,
    /// unless a child or the parent explains it. The memory that a process has of its parent until its
    /// first exec counts for the parent.
    ///
    /// Without a tracer, exits of other processes are not seen, so the maximum may be that of a child.
    pub(crate) fn record_earlier_programs(&mut self, pid: Pid, most: u64, is_traced: bool) {
        let Some(live) = self.live.get(&pid) else { return };
        let parent = live.process.parent;
        let known = live.memory.map_or(0, |memory| memory.resident_bytes_max);
        let is_explained = live.borrows_memory || most <= known.max(live.children_resident_max);
        if let Some(parent) = self.live.get_mut(&parent) {
            parent.children_resident_max = parent.children_resident_max.max(most);
        }
        if is_explained || most <= self.resident_of_parent(parent) {
            return;
        }
        if is_traced {
            if let Some(memory) = self.live.get_mut(&pid).and_then(|live| live.memory.as_mut()) {
                memory.resident_bytes_max = memory.resident_bytes_max.max(most);
            }
        } else {
            self.largest_resident = self.largest_resident.max(most);
        }
    }

    /// The greatest resident size of a parent so far. That of a parent that is gone is at most the greatest
    /// of all.
    fn resident_of_parent(&self, parent: Pid) -> u64 {
        let now = proc::memory(parent).map(|memory| memory.resident_bytes_max);
        let is_monitor = parent == std::process::id() as Pid;
        now.unwrap_or(if is_monitor { u64::MAX } else { self.largest_resident })
    }

    /// Records that a process exited just now.
    pub(crate) fn process_exited(&mut self, pid: Pid, status: Option<Status>) {
        self.exited_at(pid, status, self.elapsed().as_secs_f64());
    }

    fn exited_at(&mut self, pid: Pid, status: Option<Status>, end_seconds: f64) {
        let Some(live) = self.live.remove(&pid) else { return };
        if let Some(exited) = &mut self.exited_pids {
            exited.insert(pid);
        }
        self.add_unwaited_children(&live);
        self.update_top_movers(&live);
        let Live { mut process, threads, memory, .. } = live;
        self.threads -= threads.min(self.threads);
        process.end_seconds = Some(end_seconds);
        match status {
            Some(Status::Exited(code)) => process.status = Some(code),
            Some(Status::Signalled(signal)) => process.signal = Some(signal),
            None => {}
        }
        process.resident_bytes_max = self.close_peaks(pid, memory);
        if let Some(exits) = &mut self.exits {
            exits.push((pid, process.command.clone()));
        }
        self.exited.push(process);
    }

    /// Adds the peaks of a process, which are final, to the sums. Returns its resident peak.
    fn close_peaks(&mut self, pid: Pid, memory: Option<Memory>) -> Option<u64> {
        self.unmeasured += u64::from(memory.is_none());
        let peaks = memory.unwrap_or_default();
        self.largest_resident = self.largest_resident.max(peaks.resident_bytes_max);
        self.resident.ended(pid, peaks.resident_bytes_max);
        self.virtual_size.ended(pid, peaks.virtual_bytes_max);
        memory.map(|m| m.resident_bytes_max)
    }

    /// Remembers the process that read most and the one that wrote most, without the bytes of the
    /// children that each waited for.
    fn update_top_movers(&mut self, live: &Live) {
        for (most, of) in self.top_movers.iter_mut().zip([Io::read, Io::written]) {
            let bytes = of(&live.own_io());
            if bytes > most.0 {
                *most = (bytes, label(&live.process));
            }
        }
        if let Some(parent) = self.live.get_mut(&live.process.parent) {
            parent.children_io += live.io.unwrap_or_default();
        }
    }

    /// Adds the usage of the children of a process that ignored SIGCHLD.
    fn add_unwaited_children(&mut self, live: &Live) {
        if !live.memory.is_some_and(|memory| memory.ignores_children) {
            return;
        }
        match live.waited_for_faults {
            // It waited for none of them: every process has page faults.
            Some(0) => self.reaped.merge(&live.children),
            _ => self.has_unwaited |= live.has_children || !self.tracks_processes,
        }
    }

    /// Records that an exited process, which was not traced, ignored SIGCHLD. Whether it had children
    /// is known only if process starts are tracked.
    pub(crate) fn record_ignored_children(&mut self, pid: Pid) {
        let has_children = |live: &Live| live.has_children;
        self.has_unwaited |=
            !self.tracks_processes || self.live.get(&pid).is_some_and(has_children);
    }

    /// True for a living process of the task.
    pub(crate) fn contains(&self, pid: Pid) -> bool {
        self.live.contains_key(&pid)
    }

    /// Keeps the ids of exited processes from now on.
    pub(crate) fn keep_exited_pids(&mut self) {
        self.exited_pids.get_or_insert_default();
    }

    /// True for a process of the task that lives, or whose id was kept when it exited.
    pub(crate) fn ever_contained(&self, pid: Pid) -> bool {
        self.contains(pid) || self.exited_pids.as_ref().is_some_and(|exited| exited.contains(&pid))
    }

    /// The parent of a living process.
    pub(crate) fn parent_of(&self, pid: Pid) -> Option<Pid> {
        self.live.get(&pid).map(|live| live.process.parent)
    }

    /// The bytes of a living process, if they are those at its end.
    pub(crate) fn final_io_of(&self, pid: Pid) -> Option<Io> {
        self.live.get(&pid).filter(|live| live.io_is_final)?.io
    }

    /// The last known bytes of a living process.
    pub(crate) fn io_of(&self, pid: Pid) -> Option<Io> {
        self.live.get(&pid)?.io
    }

    /// The command line of a living process.
    pub(crate) fn command_of(&self, pid: Pid) -> Option<&str> {
        self.live.get(&pid).map(|live| live.process.command.as_str())
    }

    /// Processes that have exited, although no mechanism has reported their exit so far.
    pub(crate) fn vanished(&self) -> Vec<Pid> {
        let is_gone = |pid: &Pid| proc::stat(*pid).is_none_or(|stat| stat.is_zombie);
        self.live.keys().copied().filter(is_gone).collect()
    }

    /// Removes processes that vanished and whose exit was not reported meanwhile.
    pub(crate) fn remove_vanished(&mut self, vanished: Vec<Pid>) {
        for pid in vanished {
            self.process_exited(pid, None);
        }
    }

    /// The number of living processes.
    pub(crate) fn live_count(&self) -> u64 {
        self.live.len() as u64
    }

    /// The ids of living processes.
    pub(crate) fn live_pids(&self) -> Vec<Pid> {
        self.live.keys().copied().collect()
    }

    /// Sorts living processes so that each comes after its parent. The kernel adds the counts of a
    /// child to those of the parent that waits for it, so a sum over processes that are read in this
    /// order counts no child twice.
    pub(crate) fn sort_parents_first(&self, pids: &mut [Pid]) {
        let mut depths: HashMap<Pid, usize> = HashMap::with_capacity(pids.len());
        for &pid in pids.iter() {
            let (mut path, mut next) = (Vec::new(), pid);
            let known = loop {
                if let Some(depth) = depths.get(&next) {
                    break *depth;
                }
                let Some(live) = self.live.get(&next).filter(|_| path.len() <= self.live.len())
                else {
                    break 0;
                };
                path.push(next);
                next = live.process.parent;
            };
            depths.extend(path.into_iter().rev().zip(known + 1..));
        }
        pids.sort_unstable_by_key(|pid| depths.get(pid).copied());
    }

    /// Living processes with their start times, which tell them from later ones with the same ids.
    pub(crate) fn live_members(&self) -> Vec<Member> {
        self.live.iter().map(|(pid, live)| Member { pid: *pid, started: live.started }).collect()
    }

    /// The exit status of an exited process, if it was reported.
    pub(crate) fn status_of(&self, pid: Pid) -> Option<Status> {
        self.exited.status_of(pid)
    }

    /// The time at which an exited process ended.
    pub(crate) fn end_seconds_of(&self, pid: Pid) -> Option<f64> {
        self.exited.last(pid)?.end_seconds
    }

    /// Closes the accounts of a task that runs on without the monitor: the present peaks of its
    /// processes count.
    pub(crate) fn detach(&mut self) {
        for pid in self.live_pids() {
            if let Some(memory) = proc::memory(pid) {
                self.record_memory(pid, memory);
            }
            let memory = self.live.get(&pid).and_then(|live| live.memory);
            let resident_bytes_max = self.close_peaks(pid, memory);
            if let Some(live) = self.live.get_mut(&pid) {
                live.process.resident_bytes_max = resident_bytes_max;
            }
        }
    }

    /// The greatest sums of the peaks of processes that lived at one time: resident and virtual
    /// bytes. Complete once all processes have exited.
    pub(crate) fn peak_sums(&self) -> (u64, u64) {
        (self.resident.greatest(), self.virtual_size.greatest())
    }

    /// Returns all processes by start time, and the number of those left out.
    pub(crate) fn into_processes(self) -> (Vec<Process>, u64) {
        self.exited.into_list(self.live.into_values().map(|live| live.process))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::time::Instant;

    use skopos_model::task::Missing;

    use super::exited::MAX_LISTED;
    use super::*;

    #[test]
    fn time_before_the_task_is_not_counted() {
        let mut ledger = Ledger::new();
        std::thread::sleep(Duration::from_millis(20));
        // No process has this id, so nothing is read of it.
        ledger.process_started(10_000_001, 1);
        let before = Instant::now();
        ledger.restart_clock();
        assert!(ledger.elapsed() <= before.elapsed());
        assert_eq!(ledger.into_processes().0[0].start_seconds, 0.0);
    }

    #[test]
    fn files_that_the_monitor_maps_are_not_the_task_s() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mapped");
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(path);
        let file = file.expect("a file");
        file.set_len(4096).expect("a page");
        let (mode, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a page that nothing points to.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), 4096, mode, kind, file.as_raw_fd(), 0) };
        assert_ne!(map, libc::MAP_FAILED);
        // The child of a monitor has the monitor's maps until its exec, as this process has its own.
        let child = std::process::id() as Pid;
        let mut ledger = Ledger::new();
        ledger.process_started(child, 1);
        ledger.mark_borrowed_memory(child);
        ledger.look_for_unseen(child);
        assert!(ledger.unseen.is_empty());
        ledger.process_executed(child);
        ledger.look_for_unseen(child);
        assert!(ledger.unseen.written.contains(&Missing::Mmap));
        // SAFETY: the mapping of above, which nothing uses any more.
        assert_eq!(unsafe { libc::munmap(map, 4096) }, 0);
    }

    #[test]
    fn parents_are_read_before_their_children() {
        // No process has these ids, so nothing is read of them.
        let pid = |n: Pid| 10_000_000 + n;
        let mut ledger = Ledger::new();
        for (child, parent) in [(1, 2), (2, 5), (3, 2), (5, 4), (4, 0), (6, 0)] {
            ledger.process_started(pid(child), pid(parent));
        }
        let mut pids = ledger.live_pids();
        ledger.sort_parents_first(&mut pids);
        let place = |n| pids.iter().position(|one| *one == pid(n)).expect("it lives");
        assert_eq!(pids.len(), 6);
        for (child, parent) in [(1, 2), (2, 5), (3, 2), (5, 4)] {
            assert!(place(parent) < place(child), "{pids:?}");
        }
    }

    #[test]
    fn a_hundred_thousand_processes_leave_a_bounded_list() {
        let mut ledger = Ledger::new();
        for pid in 1..=100_000 {
            // No process has these ids, so nothing is read of them.
            let pid = pid + 10_000_000;
            ledger.process_started(pid, 1);
            ledger.record_usage(pid, Some(f64::from(pid % 977)), None);
            ledger.process_exited(pid, Some(Status::Exited(0)));
        }
        assert_eq!((ledger.processes_total, ledger.processes_max), (100_000, 1));
        let (listed, left_out) = ledger.into_processes();
        assert_eq!((listed.len() as u64 + left_out, listed.len()), (100_000, MAX_LISTED));
        assert!(listed.iter().all(|p| p.cpu_seconds > Some(960.0)), "the greatest users stay");
    }
}
