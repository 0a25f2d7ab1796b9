//! Samples `/proc` of every process. Processes that live between two samples are missed, and peaks
//! are those of the samples. Cheap and always available.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use skopos_model::task::{Completeness, Limits};

use super::certain::CertainMemory;
use super::since_attach::SinceAttach;
use super::tmpfs::TmpfsFiles;
use super::{Mechanism, Sample};
use crate::family;
use crate::ledger::{Ledger, Offer};
use crate::patient::Late;
use crate::proc;
use crate::sys::{Event, Pid};

/// The name in reports.
pub(crate) const NAME: &str = "procfs";

/// The share of the time that reading PSS may take is 1 / this number. The kernel walks page tables
/// for it, which takes some 0.1 s for 10 GB.
const PSS_SHARE: u32 = 100;

/// The most processes that one sample reads: a tenth of a second of work. Further processes are
/// counted, but their memory and bytes are missing from the sample, which the report says.
const MAX_READ: usize = 2048;

/// A forking process locks its page tables. So PSS is not read with more processes than this, or before
/// it is known how many there will be.
const MAX_PSS: usize = 64;
const PSS_AFTER: Duration = Duration::from_millis(100);

pub(crate) struct Procfs {
    /// True if no mechanism tracks processes, so that each sample searches for them.
    searches: bool,
    /// The limit on processes. A search stops once it has found more.
    most: usize,
    /// True if a search has stopped, so that the number of processes is a lower bound.
    is_cut: bool,
    /// The limit on resident memory.
    memory_most: f64,
    certain: CertainMemory,
    /// PSS is limited.
    needs_pss: bool,
    root: Option<Pid>,
    last: Sample,
    greatest: Sample,
    pss_again: Option<Instant>,
    /// Files of tmpfs, and the time of the next look at them if no limit needs them.
    tmpfs: TmpfsFiles,
    tmpfs_again: Option<Instant>,
    /// The time of the next look at the maps of processes.
    maps_again: Option<Instant>,
    since: SinceAttach,
    /// The most processes that a sample found and did not read.
    unread: usize,
}

impl Procfs {
    pub(crate) fn new(searches: bool, limits: &Limits) -> Self {
        Self {
            searches,
            // A limit is a count of processes.
            most: limits.of("processes_max").map_or(usize::MAX, |most| most as usize),
            is_cut: false,
            memory_most: limits.of("resident_bytes_max").unwrap_or(f64::INFINITY),
            certain: CertainMemory::default(),
            needs_pss: limits.of("pss_bytes_max").is_some(),
            root: None,
            last: Sample::default(),
            greatest: Sample::default(),
            pss_again: None,
            tmpfs: TmpfsFiles::new(),
            tmpfs_again: None,
            maps_again: None,
            since: SinceAttach::default(),
            unread: 0,
        }
    }

    /// Finds processes that started or exited. Stops once it has found more than the limit, and returns
    /// the number found so far.
    fn search(&self, ledger: &mut Ledger) -> Result<(), u64> {
        let there: HashSet<Pid> = family::pids(ledger, self.most);
        if there.len() > self.most {
            return Err(there.len() as u64);
        }
        for pid in ledger.live_pids() {
            if Some(pid) != self.root && !there.contains(&pid) {
                ledger.process_exited(pid, None);
            }
        }
        for pid in there {
            let Some(stat) = proc::stat(pid) else { continue };
            if !stat.is_zombie {
                ledger.process_started(pid, stat.parent);
            }
        }
        Ok(())
    }

    /// Searches for processes if no mechanism reports them all. Returns true if there are more than the limit.
    fn finds_too_many(&mut self, now: &mut Sample, ledger: &mut Ledger) -> bool {
        if !self.searches && ledger.untraced == 0 {
            return false;
        }
        let Err(too_many) = self.search(ledger) else { return false };
        now.processes = Some(too_many);
        self.is_cut = true;
        ledger.processes_max = ledger.processes_max.max(too_many);
        true
    }

    /// Keeps a sample as the last one, and its values where they are the greatest.
    fn keep(&mut self, now: &Sample) {
        let most = &mut self.greatest;
        most.resident_bytes = most.resident_bytes.max(now.resident_bytes);
        most.pss_bytes = most.pss_bytes.max(now.pss_bytes);
        most.tmpfs_bytes = most.tmpfs_bytes.max(now.tmpfs_bytes);
        most.virtual_bytes = most.virtual_bytes.max(now.virtual_bytes);
        most.swap_bytes = most.swap_bytes.max(now.swap_bytes);
        self.last = *now;
    }

    /// Returns the bytes in files of tmpfs beyond the resident pages of such files, which `mapped` may be.
    /// Looks at every sample if memory is limited, and as rarely as at page tables otherwise.
    fn tmpfs_bytes(&mut self, pids: &[Pid], mapped: u64) -> Option<u64> {
        let begun = Instant::now();
        if self.memory_most.is_infinite() && self.tmpfs_again.is_some_and(|again| begun < again) {
            return self.last.tmpfs_bytes;
        }
        let bytes = self.tmpfs.look(pids).saturating_sub(mapped);
        self.tmpfs_again = Some(Instant::now() + begun.elapsed() * PSS_SHARE);
        Some(bytes)
    }

    /// Looks at the maps of processes, as rarely as at page tables.
    fn look_at_maps(&mut self, pids: &[Pid], ledger: &mut Ledger) {
        let begun = Instant::now();
        if self.maps_again.is_some_and(|again| begun < again) {
            return;
        }
        pids.iter().take(MAX_PSS).for_each(|pid| ledger.look_for_unseen(*pid));
        self.maps_again = Some(Instant::now() + begun.elapsed() * PSS_SHARE);
    }

    /// Looks at the maps of processes and returns their PSS. Near a limit on memory a sample reads nothing that
    /// the limit does not need: with more processes than processors each file may take the monitor a turn.
    fn look_closer(
        &mut self,
        pids: &[Pid],
        sizes: &[(Pid, u64)],
        resident: u64,
        ledger: &mut Ledger,
    ) -> Option<u64> {
        if resident as f64 >= ONLY_NEEDED * self.memory_most {
            return if self.needs_pss { self.pss(sizes, ledger) } else { None };
        }
        self.look_at_maps(pids, ledger);
        self.pss(sizes, ledger)
    }

    fn pss(&mut self, sizes: &[(Pid, u64)], ledger: &mut Ledger) -> Option<u64> {
        let now = Instant::now();
        if sizes.len() > MAX_PSS || ledger.elapsed() < PSS_AFTER {
            return None;
        }
        if self.pss_again.is_some_and(|again| now < again) {
            return None;
        }
        let all = sizes.iter().map(|(pid, bytes)| ledger.read_pss(*pid, *bytes));
        // A process that has exited has no pages; one that cannot be read leaves the sum unknown.
        let sum: Result<u64, Late> = all.map(|pss| pss.map(Option::unwrap_or_default)).sum();
        self.pss_again = Some(now + now.elapsed() * PSS_SHARE);
        sum.ok()
    }
}

impl Mechanism for Procfs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn attach(&mut self, root: Pid, ledger: &mut Ledger) -> std::io::Result<()> {
        self.root = Some(root);
        ledger.process_started(root, std::process::id() as Pid);
        Ok(())
    }

    fn event(&mut self, event: &Event, ledger: &mut Ledger) {
        let Event::Ended { pid, .. } = event else { return };
        if !self.searches {
            // The mechanism that tracks exits has read the process already, more precisely than in
            // ticks.
            return;
        }
        // A zombie has no memory, but still its times and bytes.
        let stat = proc::stat(*pid);
        ledger.record_usage(*pid, stat.map(|s| s.user_seconds + s.system_seconds), proc::io(*pid));
    }

    fn sample(&mut self, now: &mut Sample, ledger: &mut Ledger) {
        if self.finds_too_many(now, ledger) {
            return;
        }
        let mut pids = ledger.live_pids();
        let processes = pids.len() as u64;
        self.unread = self.unread.max(limit_pids(&mut pids));
        ledger.sort_parents_first(&mut pids);
        let reaped = ledger.reaped;
        let (mut resident, mut virtual_size, mut swap, mut mapped) = (0, 0, 0, 0);
        let mut cpu = (reaped.usage.user + reaped.usage.system).as_secs_f64();
        let mut io = reaped.io;
        let mut since = SinceAttach::of_the_dead(&reaped);
        let mut sizes = Vec::with_capacity(pids.len());
        for &pid in &pids {
            let Some(stat) = proc::stat(pid) else { continue };
            let is_own = !ledger.borrows_memory(pid);
            if is_own {
                resident += stat.resident_bytes;
                sizes.push((pid, stat.resident_bytes));
                virtual_size += stat.virtual_bytes;
            }
            cpu += stat.user_seconds + stat.system_seconds + stat.waited_for_seconds;
            if self.searches {
                ledger.update_threads(pid, |_| stat.threads);
            }
            if let Some(memory) = proc::memory(pid) {
                if is_own {
                    swap += memory.swap_bytes;
                    mapped += memory.shared_bytes;
                    self.certain.add(pid, &stat, &memory);
                }
                ledger.record_memory(pid, memory);
            }
            let of_it = proc::io(pid);
            since.add(&stat, of_it);
            io += of_it.unwrap_or_default();
            ledger.record_usage(pid, Some(stat.user_seconds + stat.system_seconds), of_it);
        }
        if ledger.is_attached() {
            since = since.less(&ledger.baseline);
            (cpu, io) = (since.user_seconds + since.system_seconds, since.io);
            self.since.keep(since);
            ledger.sampled_resident_max = ledger.sampled_resident_max.max(resident);
        }
        let begun = Instant::now();
        let pss = self.look_closer(&pids, &sizes, resident, ledger);
        let tmpfs = self.tmpfs_bytes(&pids, mapped);
        let memory_most = self.memory_most - tmpfs.unwrap_or(0) as f64;
        *now = Sample {
            cpu_seconds: Some(cpu),
            resident_bytes: Some(resident),
            tmpfs_bytes: tmpfs,
            unshared_bytes: unshared(sizes, self.certain.bytes(), memory_most, |pid, bytes| {
                ledger.read_pss(pid, bytes).ok()?
            }),
            pss_bytes: pss,
            virtual_bytes: Some(virtual_size),
            swap_bytes: Some(swap),
            processes: Some(processes),
            threads: Some(pids.iter().map(|pid| ledger.thread_count(*pid)).sum()),
            read_bytes: Some(io.read_bytes).filter(|_| ledger.baseline.without_io == 0),
            written_bytes: Some(io.written_bytes).filter(|_| ledger.baseline.without_io == 0),
            paced: now.paced + begun.elapsed(),
            ..*now
        };
        self.keep(now);
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        if ledger.is_attached() {
            // Processes that are still running are sampled once more.
            if !ledger.live_pids().is_empty() {
                self.sample(&mut Sample::default(), ledger);
            }
            self.since.offer(NAME, ledger, self.unread);
        }
        let completeness = Completeness::Sampled;
        let sampled = "the largest sample; excludes what came and went between two samples";
        let of_numbers = match self.is_cut {
            false => sampled.to_owned(),
            true => format!("{sampled}; a search stops above the limit"),
        };
        let of_memory = match self.unread {
            0 => sampled.to_owned(),
            more => format!(
                "{sampled}; of up to {} processes at one time a sample read {MAX_READ}",
                more + MAX_READ
            ),
        };
        // The peak of one process outlives samples, and bounds the peak of all from below.
        let one = Some(ledger.largest_resident).filter(|one| *one > 0 && !ledger.is_attached());
        let resident = self.greatest.resident_bytes.max(one);
        for (name, value) in [
            ("resident_bytes_max", resident),
            ("virtual_bytes_max", self.greatest.virtual_bytes),
            ("pss_bytes_max", self.greatest.pss_bytes),
            ("tmpfs_bytes_max", self.greatest.tmpfs_bytes),
            ("swap_bytes_max", self.greatest.swap_bytes),
        ] {
            let Some(value) = value else { continue };
            let reason = Some(of_memory.clone());
            let value = value as f64;
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound: None, reason });
        }
        if self.searches {
            for (name, value) in [
                ("processes_max", ledger.processes_max),
                ("processes_total", ledger.processes_total),
                ("threads_max", ledger.threads_max),
                ("threads_total", ledger.threads_total),
            ] {
                let reason = Some(of_numbers.clone());
                let value = value as f64;
                ledger.offers.add(
                    name,
                    Offer { method: NAME, value, completeness, error_bound: None, reason },
                );
            }
        }
    }
}

/// Keeps as many processes as one sample reads, those with the lowest ids: each sample then reads
/// the same ones, and their usage grows from one to the next. Returns the number of the others.
fn limit_pids(pids: &mut Vec<Pid>) -> usize {
    let more = pids.len().saturating_sub(MAX_READ);
    if more > 0 {
        pids.sort_unstable();
        pids.truncate(MAX_READ);
    }
    more
}

/// The share of the time that samples may take is 1 / this number. Slower samples are taken less
/// often.
const SAMPLE_SHARE: u32 = 100;

/// The same if samples enforce a limit: between samples the usage may grow without bound.
const LIMITED_SHARE: u32 = 10;

/// The same if a value will soon exceed its limit.
const URGENT_SHARE: u32 = 2;

/// Returns the pause until the next sample, if one took `took` and `wanted` is the configured
/// interval. `urgent` is the pause that values near their limits ask for.
pub(crate) fn next_pause(
    wanted: Duration,
    took: Duration,
    is_limited: bool,
    urgent: Option<Duration>,
) -> Duration {
    let usual = wanted.max(took * if is_limited { LIMITED_SHARE } else { SAMPLE_SHARE });
    urgent.map_or(usual, |urgent| usual.min(urgent.max(took * URGENT_SHARE)))
}

/// The share of a limit on memory from which on samples read only what the limit needs.
const ONLY_NEEDED: f64 = 0.25;

/// The share of a limit on memory at which shared pages are determined.
const NEAR: f64 = 0.9;

/// Returns the memory of processes with shared pages counted once, if it is near the limit and
/// processes may share pages; `certain` is a lower bound. PSS is read only if nothing else decides. Stops at a sum
/// above the limit. A process whose PSS cannot be read counts nothing.
fn unshared(
    mut sizes: Vec<(Pid, u64)>,
    certain: u64,
    most: f64,
    mut pss: impl FnMut(Pid, u64) -> Option<u64>,
) -> Option<u64> {
    let all: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    if sizes.len() < 2 || (all as f64) < NEAR * most {
        return None;
    }
    // The largest processes first: they may decide it, and the kernel walks the page tables of
    // each.
    sizes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let least = certain.max(sizes.first().map_or(0, |(_, bytes)| *bytes));
    if all as f64 <= most {
        return Some(least);
    }
    let mut sum = 0;
    for (pid, bytes) in sizes {
        if least.max(sum) as f64 > most {
            break;
        }
        sum += pss(pid, bytes).unwrap_or(0);
    }
    Some(least.max(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_reads_the_same_processes_and_reports_how_many_it_skips() {
        let first = MAX_READ as Pid;
        let (mut few, mut many): (Vec<Pid>, Vec<Pid>) =
            ((0..9).collect(), (0..first + 5).rev().collect());
        assert_eq!((limit_pids(&mut few), few.len()), (0, 9));
        assert_eq!(limit_pids(&mut many), 5);
        assert_eq!(many, (0..first).collect::<Vec<_>>());
        let (mut procfs, mut ledger) = (Procfs::new(true, &Limits::default()), Ledger::new());
        (procfs.unread, procfs.greatest.resident_bytes) = (5, Some(7));
        procfs.finish(&mut ledger);
        let reason = ledger.offers.best("resident_bytes_max", "").reason.expect("a reason");
        assert!(reason.contains("of up to 2053 processes"), "{reason}");
        let reason = ledger.offers.best("processes_max", "").reason.expect("a reason");
        assert!(!reason.contains("2053"), "they are counted: {reason}");
    }

    #[test]
    fn forks_that_share_their_pages_count_them_once() {
        let sizes = || vec![(1, 200), (2, 200), (3, 200)];
        let of = |most, pss: fn(Pid, u64) -> Option<u64>| unshared(sizes(), 0, most, pss);
        assert_eq!(of(1000.0, |_, _| Some(67)), None, "far from the limit");
        assert_eq!(of(400.0, |_, _| Some(67)), Some(201));
        assert_eq!(of(400.0, |_, _| None), Some(200), "the largest is certain");
        assert_eq!(of(100.0, |_, _| unreachable!("one is enough")), Some(200));
        assert_eq!(of(400.0, |_, _| Some(201)), Some(402), "two are enough");
        assert_eq!(unshared(vec![(1, 500)], 0, 400.0, |_, _| None), None, "one shares no pages");
    }

    #[test]
    fn nothing_waits_for_a_process_where_counters_decide() {
        let sizes = || vec![(1, 200), (2, 200), (3, 200)];
        let never = |_, _| unreachable!("page tables are not needed");
        assert_eq!(unshared(sizes(), 550, 500.0, never), Some(550), "the sum is certain");
        assert_eq!(unshared(sizes(), 150, 600.0, never), Some(200), "not even the sum exceeds it");
    }
}
