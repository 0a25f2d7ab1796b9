//! What the mechanisms have seen of the task so far: its processes, and what each of them offers as
//! the value of a resource.

mod guilty;
mod peaks;
mod settle;
mod told;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use skopos_model::task::{Completeness, Files, Nested, Process, Reading, resource};

use self::guilty::told;
use self::peaks::Peaks;
use crate::attach::Before;
use crate::family::Member;
use crate::proc::{self, Io, Memory};
use crate::sys::{Pid, Status, Usage};

/// The most processes that a report lists: what a person scrolls through, and 100,000 short ones do
/// not fill memory. Those that used most stay.
const MAX_LISTED: usize = 1000;

/// All that is known of the task.
pub(crate) struct Seen {
    started: Instant,
    /// The same on the monotonic clock.
    started_nanos: u64,
    live: HashMap<Pid, Live>,
    ended: Vec<Process>,
    /// Of those that ended, who read most and who wrote most: bytes, and its name.
    blamed: [(u64, String); 2],
    left_out: u64,
    pub(crate) processes_total: u64,
    pub(crate) processes_max: u64,
    pub(crate) threads_max: u64,
    threads: u64,
    resident: Peaks,
    virtual_size: Peaks,
    /// The greatest peak of one process.
    pub(crate) greatest_resident: u64,
    /// Processes that ended before anybody looked at their memory.
    pub(crate) unmeasured: u64,
    /// Ids of those that ended, if somebody asks for them: at most as many as there are ids.
    dead: Option<HashSet<Pid>>,
    /// What those used that were reaped here, with all that they had waited for.
    pub(crate) reaped: Reaped,
    /// A process ignored its children, and what those used is in no sum.
    pub(crate) has_unwaited: bool,
    /// Births are told, so it is known who has children.
    pub(crate) is_told: bool,
    /// Each resource's offers.
    offers: BTreeMap<&'static str, Vec<Offer>>,
    /// Why nobody who would have measured a resource could.
    unknown: BTreeMap<&'static str, String>,
    /// How often a process was stopped to look at it.
    pub(crate) stops: u64,
    /// Processes that ended, with their command lines, for whoever takes them away; `None` if nobody does.
    pub(crate) ends: Option<Vec<(Pid, String)>>,
    /// What was done with each file, if somebody counted it.
    pub(crate) files: Option<Files>,
    /// Monitors inside the task, and how many more there were.
    pub(crate) nested: (Vec<Nested>, u64),
    /// The task ran before its monitor did.
    is_found: bool,
    /// What its processes had used by then, all together.
    pub(crate) before: Before,
    /// Processes came and went while that was read, so it may be too little.
    pub(crate) is_torn: bool,
    /// Threads that cannot be traced while others of the task are.
    pub(crate) untraced: u64,
    /// Watched folders that were not there at any look.
    pub(crate) never_there: Vec<String>,
    /// The most resident memory that a look found.
    pub(crate) looked_resident: u64,
}

/// What is known of a living process.
#[derive(Debug, Default)]
struct Live {
    process: Process,
    /// The program's name, in brackets; empty until it is asked for.
    name: String,
    threads: u64,
    memory: Option<Memory>,
    io: Option<Io>,
    /// What its children used that have ended: they are its to wait for.
    children: Reaped,
    /// Their bytes alone, as they were told last: they are in those of the process once it has waited.
    children_io: Io,
    has_children: bool,
    /// Page faults of the children that it had waited for when it was about to end.
    waited_for_faults: Option<u64>,
    /// It runs in its parent's memory, as a child of `vfork` does until it is another program.
    is_guest: bool,
    /// It has become another program since it was born.
    has_become: bool,
    /// When it started, in ticks since the machine did, where others may reap it.
    started: Option<u64>,
    /// What it had used before the task was found.
    before: Before,
}

/// Sums over the processes that were reaped here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reaped {
    pub(crate) usage: Usage,
    pub(crate) io: Io,
    /// Processes whose counts of bytes could not be read.
    pub(crate) without_io: u64,
}

/// A value of a resource, as one mechanism measured it.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) method: &'static str,
    pub(crate) value: f64,
    pub(crate) completeness: Completeness,
    pub(crate) error_bound: Option<f64>,
    pub(crate) reason: Option<String>,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            started_nanos: told::monotonic_nanos(),
            live: HashMap::new(),
            ended: Vec::new(),
            blamed: Default::default(),
            left_out: 0,
            processes_total: 0,
            processes_max: 0,
            threads_max: 0,
            threads: 0,
            resident: Peaks::default(),
            virtual_size: Peaks::default(),
            greatest_resident: 0,
            unmeasured: 0,
            dead: None,
            reaped: Reaped::default(),
            has_unwaited: false,
            is_told: false,
            offers: BTreeMap::new(),
            unknown: BTreeMap::new(),
            stops: 0,
            ends: None,
            files: None,
            nested: (Vec::new(), 0),
            is_found: false,
            before: Before::default(),
            is_torn: false,
            untraced: 0,
            never_there: Vec::new(),
            looked_resident: 0,
        }
    }

    /// The task begins now: what came before was the monitor's.
    pub(crate) fn begin(&mut self) {
        (self.started, self.started_nanos) = (Instant::now(), told::monotonic_nanos());
        for live in self.live.values_mut() {
            live.process.start_seconds = 0.0;
        }
    }

    /// Of a task that was running before.
    pub(crate) fn found() -> Self {
        Self { is_found: true, ..Self::new() }
    }

    /// True if the task was running before.
    pub(crate) fn is_found(&self) -> bool {
        self.is_found
    }

    /// Since the task was started.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A process is there.
    pub(crate) fn born(&mut self, pid: Pid, parent: Pid) {
        if self.live.contains_key(&pid) {
            return;
        }
        let name = proc::name(pid).unwrap_or_default();
        if let Some(live) = self.live.get_mut(&parent).filter(|live| live.name.is_empty()) {
            live.name = proc::name(parent).unwrap_or_default();
        }
        // One that has just been forked is what its parent is. To read a command line the kernel takes
        // a lock that its process holds while it forks; among thousands that fork, the holder may not
        // run for seconds.
        let parent_is = self.live.get(&parent).filter(|live| live.name == name);
        let command = match parent_is {
            Some(live) => live.process.command.clone(),
            None => proc::command(pid).unwrap_or_else(|| name.clone()),
        };
        self.enter(pid, parent, name, command, self.elapsed().as_secs_f64());
    }

    /// A process is there that has not run yet: it is what its parent is, and nothing is read of it.
    pub(crate) fn forked(&mut self, pid: Pid, parent: Pid) {
        match self.live.get(&parent) {
            Some(_) if self.live.contains_key(&pid) => {}
            Some(live) => {
                let (name, command) = (live.name.clone(), live.process.command.clone());
                self.enter(pid, parent, name, command, self.elapsed().as_secs_f64());
            }
            None => self.born(pid, parent),
        }
    }

    fn enter(&mut self, pid: Pid, parent: Pid, name: String, command: String, start_seconds: f64) {
        let process = Process { pid, parent, command, start_seconds, ..Process::default() };
        if let Some(parent) = self.live.get_mut(&parent) {
            parent.has_children = true;
        }
        let mut live = Live { process, name, ..Live::default() };
        live.threads = 1;
        live.started = self.is_found.then(|| proc::stat(pid)).flatten().map(|s| s.started_ticks);
        self.live.insert(pid, live);
        self.resident.born(pid);
        self.virtual_size.born(pid);
        self.processes_total += 1;
        self.processes_max = self.processes_max.max(self.live.len() as u64);
        self.set_threads(self.threads + 1);
    }

    /// What a process had used before the task was found.
    pub(crate) fn had_used(&mut self, pid: Pid, before: Before) {
        if let Some(live) = self.live.get_mut(&pid) {
            live.before = before;
        }
    }

    /// It has become another program.
    pub(crate) fn became(&mut self, pid: Pid) {
        if let Some(live) = self.live.get_mut(&pid) {
            if live.is_guest {
                live.memory = None;
            }
            (live.is_guest, live.has_become) = (false, true);
            live.name.clear();
            live.process.command = proc::command(pid).unwrap_or_default();
        }
    }

    /// It runs in the memory of its parent, where that is counted already, until it is another program:
    /// which it may be before this is told.
    pub(crate) fn guest(&mut self, pid: Pid) {
        if let Some(live) = self.live.get_mut(&pid) {
            live.is_guest = !live.has_become;
            if live.is_guest {
                live.memory = Some(Memory::default());
            }
        }
    }

    /// True for one whose memory is its parent's.
    pub(crate) fn is_guest(&self, pid: Pid) -> bool {
        self.live.get(&pid).is_some_and(|live| live.is_guest)
    }

    /// Threads of a process, as events count them or a look finds them.
    pub(crate) fn threads_of(&mut self, pid: Pid, change: impl FnOnce(u64) -> u64) {
        if let Some(live) = self.live.get_mut(&pid) {
            let (before, after) = (live.threads, change(live.threads));
            live.threads = after;
            let total = (self.threads + after).saturating_sub(before);
            self.set_threads(total);
        }
    }

    fn set_threads(&mut self, threads: u64) {
        self.threads = threads;
        self.threads_max = self.threads_max.max(threads);
    }

    /// How many threads a process has.
    pub(crate) fn thread_count(&self, pid: Pid) -> u64 {
        self.live.get(&pid).map_or(0, |live| live.threads)
    }

    /// Its memory, as it is now or was at its largest. What was larger before stays.
    pub(crate) fn memory(&mut self, pid: Pid, now: Memory) {
        if let Some(live) = self.live.get_mut(&pid) {
            let before = live.memory.unwrap_or_default();
            let ignores_children = now.ignores_children;
            let now = if live.is_guest { Memory::default() } else { now };
            live.memory = Some(Memory {
                virtual_bytes_max: now.virtual_bytes_max.max(before.virtual_bytes_max),
                resident_bytes_max: now.resident_bytes_max.max(before.resident_bytes_max),
                swap_bytes: now.swap_bytes.max(before.swap_bytes),
                ignores_children,
            });
        }
    }

    /// What it used by now, its waited-for children included where the kernel does so.
    pub(crate) fn used(&mut self, pid: Pid, cpu_seconds: Option<f64>, io: Option<Io>) {
        if let Some(live) = self.live.get_mut(&pid) {
            let (process, before) = (&mut live.process, live.before);
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

    /// True for one with children that are added to nothing.
    pub(crate) fn ignores_children(&self, pid: Pid) -> bool {
        let ignores = |live: &Live| live.memory.is_some_and(|memory| memory.ignores_children);
        self.live.get(&pid).is_some_and(|live| live.has_children && ignores(live))
    }

    /// It is about to end, and has waited for children with so many page faults in all.
    pub(crate) fn waited_for(&mut self, pid: Pid, faults: u64) {
        if let Some(live) = self.live.get_mut(&pid) {
            live.waited_for_faults = Some(faults);
        }
    }

    /// It ended, and its parent hears of it: the kernel adds what it used to what its parent used, if
    /// that waits for it.
    pub(crate) fn is_for_parent(&mut self, pid: Pid, usage: Usage) {
        let Some((io, parent)) = self.live.get(&pid).map(|l| (l.io, l.process.parent)) else {
            return;
        };
        if let Some(parent) = self.live.get_mut(&parent) {
            parent.children.add(usage, io);
        }
    }

    /// It is gone.
    pub(crate) fn ended(&mut self, pid: Pid, status: Option<Status>) {
        self.ended_at(pid, status, self.elapsed().as_secs_f64());
    }

    fn ended_at(&mut self, pid: Pid, status: Option<Status>, end_seconds: f64) {
        let Some(live) = self.live.remove(&pid) else { return };
        if let Some(dead) = &mut self.dead {
            dead.insert(pid);
        }
        self.adopt_unwaited(&live);
        self.blame(&live);
        let Live { mut process, threads, memory, .. } = live;
        self.threads -= threads.min(self.threads);
        process.end_seconds = Some(end_seconds);
        match status {
            Some(Status::Exited(code)) => process.status = Some(code),
            Some(Status::Signalled(signal)) => process.signal = Some(signal),
            None => {}
        }
        self.unmeasured += u64::from(memory.is_none());
        let peaks = memory.unwrap_or_default();
        self.greatest_resident = self.greatest_resident.max(peaks.resident_bytes_max);
        process.resident_bytes_max = memory.map(|m| m.resident_bytes_max);
        self.resident.ended(pid, peaks.resident_bytes_max);
        self.virtual_size.ended(pid, peaks.virtual_bytes_max);
        if let Some(ends) = &mut self.ends {
            ends.push((pid, process.command.clone()));
        }
        self.list(process);
    }

    /// Remembers the process that read and the one that wrote most, and that its parent did not.
    fn blame(&mut self, live: &Live) {
        for (most, of) in self.blamed.iter_mut().zip([Io::read, Io::written]) {
            let bytes = of(&live.own_io());
            if bytes > most.0 {
                *most = (bytes, told(&live.process));
            }
        }
        if let Some(parent) = self.live.get_mut(&live.process.parent) {
            parent.children_io += live.io.unwrap_or_default();
        }
    }

    /// Adds what the children of one used that had no interest in them.
    fn adopt_unwaited(&mut self, live: &Live) {
        if !live.memory.is_some_and(|memory| memory.ignores_children) {
            return;
        }
        match live.waited_for_faults {
            // Not one was waited for: every process has page faults.
            Some(0) => self.reaped.merge(&live.children),
            _ => self.has_unwaited |= live.has_children || !self.is_told,
        }
    }

    /// A dead one that nobody traced had no interest in its children; whether it had any is known where
    /// births are told.
    pub(crate) fn ignored_children(&mut self, pid: Pid) {
        let has_children = |live: &Live| live.has_children;
        self.has_unwaited |= !self.is_told || self.live.get(&pid).is_some_and(has_children);
    }

    /// Keeps a process that ended; of too many those that used least go.
    fn list(&mut self, process: Process) {
        self.ended.push(process);
        if self.ended.len() < 2 * MAX_LISTED {
            return;
        }
        self.ended.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        self.left_out += (self.ended.len() - MAX_LISTED) as u64;
        self.ended.truncate(MAX_LISTED);
    }

    /// True for a living process of the task.
    pub(crate) fn knows(&self, pid: Pid) -> bool {
        self.live.contains_key(&pid)
    }

    /// From now on it is known of processes too that ended.
    pub(crate) fn remember_the_dead(&mut self) {
        self.dead.get_or_insert_default();
    }

    /// True for a process of the task that lives, or was remembered when it ended.
    pub(crate) fn knew(&self, pid: Pid) -> bool {
        self.knows(pid) || self.dead.as_ref().is_some_and(|dead| dead.contains(&pid))
    }

    /// The process that started it.
    pub(crate) fn parent_of(&self, pid: Pid) -> Option<Pid> {
        self.live.get(&pid).map(|live| live.process.parent)
    }

    /// The bytes of a living process, as they were told last.
    pub(crate) fn io_of(&self, pid: Pid) -> Option<Io> {
        self.live.get(&pid)?.io
    }

    /// The command line of a living process.
    pub(crate) fn command_of(&self, pid: Pid) -> Option<&str> {
        self.live.get(&pid).map(|live| live.process.command.as_str())
    }

    /// Those that are not there any more, though nobody has told of their end so far.
    pub(crate) fn gone(&self) -> Vec<Pid> {
        let is_gone = |pid: &Pid| proc::stat(*pid).is_none_or(|stat| stat.is_zombie);
        self.live.keys().copied().filter(is_gone).collect()
    }

    /// Forgets those that are gone and whose end nobody told.
    pub(crate) fn bury(&mut self, gone: Vec<Pid>) {
        for pid in gone {
            self.ended(pid, None);
        }
    }

    /// How many live.
    pub(crate) fn count(&self) -> u64 {
        self.live.len() as u64
    }

    /// Living processes.
    pub(crate) fn living(&self) -> Vec<Pid> {
        self.live.keys().copied().collect()
    }

    /// Living processes, so named that others with their ids are not meant.
    pub(crate) fn living_since(&self) -> Vec<Member> {
        self.live.iter().map(|(pid, live)| Member { pid: *pid, started: live.started }).collect()
    }

    /// How a process ended that is not there any more, if somebody told.
    pub(crate) fn status_of(&self, pid: Pid) -> Option<Status> {
        let process = self.ended.iter().rev().find(|process| process.pid == pid)?;
        let signal = process.signal.map(Status::Signalled);
        process.status.map(Status::Exited).or(signal)
    }

    /// When a process ended that is not there any more.
    pub(crate) fn end_of(&self, pid: Pid) -> Option<f64> {
        self.ended.iter().rev().find(|process| process.pid == pid)?.end_seconds
    }

    /// The monitor lets go of a task that runs on: the peaks of its processes count as they are.
    pub(crate) fn let_go(&mut self) {
        for pid in self.living() {
            if let Some(memory) = proc::memory(pid) {
                self.memory(pid, memory);
            }
            let memory = self.live.get(&pid).and_then(|live| live.memory);
            let peaks = memory.unwrap_or_default();
            self.unmeasured += u64::from(memory.is_none());
            self.greatest_resident = self.greatest_resident.max(peaks.resident_bytes_max);
            if let Some(live) = self.live.get_mut(&pid) {
                live.process.resident_bytes_max = memory.map(|m| m.resident_bytes_max);
            }
            self.resident.ended(pid, peaks.resident_bytes_max);
            self.virtual_size.ended(pid, peaks.virtual_bytes_max);
        }
    }

    /// The greatest sums of the peaks of processes that were there at one time: resident, virtual.
    /// Complete once all have ended.
    pub(crate) fn greatest_sums(&self) -> (u64, u64) {
        (self.resident.greatest(), self.virtual_size.greatest())
    }

    /// A mechanism offers its value of a resource. Nothing bounds what is missing: only a whole value
    /// is off by so much at most.
    pub(crate) fn offer(&mut self, name: &'static str, offer: Offer) {
        let is_whole = offer.completeness == Completeness::All;
        let error_bound = offer.error_bound.filter(|_| is_whole);
        if offer.value.is_finite() {
            let offer = Offer { error_bound, ..offer };
            self.offers.entry(name).or_default().push(offer);
        }
    }

    /// A mechanism that measures a resource elsewhere cannot here; the first reason counts.
    pub(crate) fn cannot(&mut self, name: &'static str, why: impl Into<String>) {
        self.unknown.entry(name).or_insert_with(|| why.into());
    }

    /// A lower bound that was seen for sure: it counts where nobody knows all, and only less.
    pub(crate) fn raise(
        &mut self,
        name: &'static str,
        least: f64,
        method: &'static str,
        reason: &str,
    ) {
        let best = self.reading(name, "");
        let is_less = best.value.is_none_or(|value| value < least);
        if is_less && best.completeness != Completeness::All {
            let (completeness, reason) = (Completeness::AtLeast, Some(reason.to_owned()));
            let offer = Offer { method, value: least, completeness, error_bound: None, reason };
            self.offers.insert(name, vec![offer]);
        }
    }

    /// The best offer for a resource: the most complete one; of those that cover all the one with the
    /// smallest bound, of those that know of at least so much the one that knows of most; then the one
    /// that was made first.
    pub(crate) fn reading(&self, name: &'static str, why_none: &str) -> Reading {
        let unit = resource(name).map_or("", |r| r.unit);
        let bound = |o: &Offer| o.error_bound.unwrap_or(f64::INFINITY);
        let offers = self.offers.get(name).map_or(&[][..], Vec::as_slice);
        // `min_by` keeps the first of equals.
        let better = |a: &&Offer, b: &&Offer| {
            let by_cover = b.completeness.cmp(&a.completeness);
            by_cover.then_with(|| match a.completeness {
                Completeness::AtLeast => b.value.total_cmp(&a.value),
                _ => bound(a).total_cmp(&bound(b)),
            })
        };
        let best = offers.iter().min_by(better);
        let Some(best) = best else {
            return Reading::unknown(unit, self.unknown.get(name).map_or(why_none, String::as_str));
        };
        Reading {
            value: Some(best.value),
            unit: unit.to_owned(),
            method: best.method.to_owned(),
            completeness: best.completeness,
            error_bound: best.error_bound,
            reason: best.reason.clone(),
        }
    }

    /// All processes in the order of their start, and how many more there were.
    pub(crate) fn into_processes(mut self) -> (Vec<Process>, u64) {
        let mut all = std::mem::take(&mut self.ended);
        all.extend(self.live.into_values().map(|live| live.process));
        all.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        let more = all.len().saturating_sub(MAX_LISTED) as u64;
        all.truncate(MAX_LISTED);
        all.sort_by(|a, b| a.start_seconds.total_cmp(&b.start_seconds).then(a.pid.cmp(&b.pid)));
        (all, self.left_out + more)
    }
}

impl Live {
    /// What it moved itself, without its children that ended. One that ignores them has nothing of them.
    fn own_io(&self) -> Io {
        let io = self.io.unwrap_or_default().since(self.before.io);
        match self.memory.is_some_and(|memory| memory.ignores_children) {
            true => io,
            false => io.since(self.children_io),
        }
    }
}

/// What a process counts when a list is full: a second of a core as much as a gigabyte of memory.
fn weight(process: &Process) -> f64 {
    let memory = process.resident_bytes_max.unwrap_or(0) as f64 / 1e9;
    process.cpu_seconds.unwrap_or(0.0) + memory
}

impl Reaped {
    /// What was not waited for, once it is known that nobody did.
    fn merge(&mut self, others: &Self) {
        let without_io = self.without_io + others.without_io;
        self.add(others.usage, Some(others.io));
        self.without_io = without_io;
    }

    /// One more was reaped here.
    pub(crate) fn add(&mut self, usage: Usage, io: Option<Io>) {
        let sum = &mut self.usage;
        sum.user += usage.user;
        sum.system += usage.system;
        sum.minor_faults += usage.minor_faults;
        sum.major_faults += usage.major_faults;
        sum.voluntary_switches += usage.voluntary_switches;
        sum.involuntary_switches += usage.involuntary_switches;
        match io {
            Some(io) => self.io += io,
            None => self.without_io += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(method: &'static str, completeness: Completeness, error_bound: Option<f64>) -> Offer {
        Offer { method, value: 1.0, completeness, error_bound, reason: None }
    }

    #[test]
    fn the_most_complete_offer_is_taken_then_the_tightest() {
        let mut seen = Seen::new();
        assert_eq!(seen.reading("cpu_seconds", "nobody").reason.as_deref(), Some("nobody"));
        for (next, expected) in [
            (offer("a", Completeness::Sampled, Some(0.0)), "a"),
            (offer("b", Completeness::All, None), "b"),
            (offer("c", Completeness::All, Some(2.0)), "c"),
            (offer("d", Completeness::All, Some(2.0)), "c"),
            (offer("e", Completeness::AtLeast, Some(0.0)), "c"),
        ] {
            seen.offer("cpu_seconds", next);
            assert_eq!(seen.reading("cpu_seconds", "").method, expected);
        }
        for (next, expected) in [("e", 1.0), ("f", 3.0), ("g", 2.0)] {
            let at_least = offer(next, Completeness::AtLeast, Some(0.0));
            seen.offer("user_seconds", Offer { value: expected, ..at_least });
        }
        let most = seen.reading("user_seconds", "");
        assert_eq!((most.value, most.error_bound), (Some(3.0), None), "more may be missing");
        seen.offer("cores", Offer { value: f64::NAN, ..offer("x", Completeness::All, None) });
        assert_eq!(seen.reading("cores", "none").value, None);
    }

    #[test]
    fn what_came_before_the_task_is_not_in_its_time() {
        let mut seen = Seen::new();
        std::thread::sleep(Duration::from_millis(20));
        // An id that no process has: nothing is read of it.
        seen.born(10_000_001, 1);
        let before = Instant::now();
        seen.begin();
        assert!(seen.elapsed() <= before.elapsed());
        assert_eq!(seen.into_processes().0[0].start_seconds, 0.0);
    }

    #[test]
    fn a_hundred_thousand_processes_leave_a_bounded_list() {
        let mut seen = Seen::new();
        for pid in 1..=100_000 {
            // Ids that no process has: nothing is read of them.
            let pid = pid + 10_000_000;
            seen.born(pid, 1);
            seen.used(pid, Some(f64::from(pid % 977)), None);
            seen.ended(pid, Some(Status::Exited(0)));
        }
        assert_eq!((seen.processes_total, seen.processes_max), (100_000, 1));
        let (listed, left_out) = seen.into_processes();
        assert_eq!((listed.len() as u64 + left_out, listed.len()), (100_000, MAX_LISTED));
        assert!(listed.iter().all(|p| p.cpu_seconds > Some(960.0)), "those that used most");
    }
}
