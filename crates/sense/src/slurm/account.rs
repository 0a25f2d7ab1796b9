//! The bytes that the processes of one job read and wrote: a sum that does not fall when they end.
//!
//! The kernel adds the counts of a process to those of its parent when the parent waits for it
//! (`wait_task_zombie` in kernel/exit.c). So if a process is gone and its parent, or the parent's
//! parent, is there and belongs to the job, nothing is lost, and the last seen counts of the
//! process are dropped. Without such an ancestor they are kept. Its work after it was last seen is
//! then lost, so the sum is a lower bound.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::parse;

/// rchar, wchar, read_bytes, write_bytes (Documentation/filesystems/proc.rst, 3.3).
pub(super) type Counts = [u64; 4];
const KEYS: [&[u8]; 4] = [b"rchar", b"wchar", b"read_bytes", b"write_bytes"];

/// The number of generations in which an ancestor is looked for. Process trees of jobs are a few
/// levels deep.
const MAX_LEVELS: usize = 64;

/// One process, as it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// In clock ticks since the boot. It distinguishes two processes with the same id.
    started: u64,
    parent: u32,
    counts: Counts,
}

impl Process {
    /// Reads `/proc/PID/stat` and `/proc/PID/io`. Returns `None` if the process has ended, or its
    /// files may not be read.
    pub(super) fn read(proc: &Path, pid: u32) -> Option<Self> {
        let folder = proc.join(pid.to_string());
        let stat = fs::read(folder.join("stat")).ok()?;
        // The name stands in parentheses and may contain any bytes. "S PPID" follows it, and the
        // 20th word after it is the time of the start.
        let name_end = stat.iter().rposition(|&b| b == b')')?;
        let mut words = parse::words(stat.get(name_end + 1..)?);
        let parent = words.nth(1).and_then(parse::u64).and_then(|n| u32::try_from(n).ok())?;
        let started = words.nth(17).and_then(parse::u64)?;
        let io = fs::read(folder.join("io")).ok()?;
        let mut counts = [0; KEYS.len()];
        for (count, key) in counts.iter_mut().zip(KEYS) {
            let mut lines = parse::lines(&io).filter_map(|line| parse::split_once(line, b':'));
            let (_, value) = lines.find(|(name, _)| *name == key)?;
            *count = parse::u64(parse::trim(value))?;
        }
        Some(Self { started, parent, counts })
    }
}

/// The sum of one job.
#[derive(Debug, Default)]
pub(super) struct Account {
    processes: BTreeMap<u32, Process>,
    /// Counts of processes that are gone and that no ancestor accounts for.
    ended: Counts,
    /// The last result. An ancestor counts its children a moment after they are gone.
    last_result: Counts,
}

impl Account {
    /// Updates the sum with the processes that are there now, and returns it.
    pub(super) fn update(&mut self, now: BTreeMap<u32, Process>) -> Counts {
        for (pid, gone) in &self.processes {
            let is_gone = now.get(pid).is_none_or(|p| p.started != gone.started);
            if is_gone && !self.has_living_ancestor(gone, &now) {
                add(&mut self.ended, &gone.counts);
            }
        }
        let mut sum = self.ended;
        now.values().for_each(|process| add(&mut sum, &process.counts));
        for (last, sum) in self.last_result.iter_mut().zip(sum) {
            *last = sum.max(*last);
        }
        self.processes = now;
        self.last_result
    }

    /// Returns true if an ancestor that was there before is still there.
    fn has_living_ancestor(&self, gone: &Process, now: &BTreeMap<u32, Process>) -> bool {
        let mut parent = gone.parent;
        for _ in 0..MAX_LEVELS {
            let Some(before) = self.processes.get(&parent) else { return false };
            if now.get(&parent).is_some_and(|p| p.started == before.started) {
                return true;
            }
            parent = before.parent;
        }
        false
    }
}

fn add(sum: &mut Counts, counts: &Counts) {
    for (sum, count) in sum.iter_mut().zip(counts) {
        *sum = sum.saturating_add(*count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes processes from `pid parent bytes`. Each starts at the time of its pid.
    fn processes(list: &[(u32, u32, u64)]) -> BTreeMap<u32, Process> {
        let process = |&(pid, parent, bytes): &(u32, u32, u64)| {
            (pid, Process { started: pid.into(), parent, counts: [bytes; 4] })
        };
        list.iter().map(process).collect()
    }

    fn check(polls: &[&[(u32, u32, u64)]], expected: &[u64]) {
        let mut account = Account::default();
        let sums: Vec<_> = polls.iter().map(|poll| account.update(processes(poll))[0]).collect();
        assert_eq!(sums, expected);
    }

    #[test]
    fn an_ended_process_counts_in_the_parent_that_waited_for_it() {
        check(&[&[(1, 0, 10), (2, 1, 100)], &[(1, 0, 115)], &[(1, 0, 120)]], &[110, 115, 120]);
    }

    #[test]
    fn the_sum_does_not_fall_while_the_parent_has_not_waited_yet() {
        check(&[&[(1, 0, 10), (2, 1, 100)], &[(1, 0, 10)], &[(1, 0, 130)]], &[110, 110, 130]);
    }

    #[test]
    fn without_a_parent_in_the_job_the_last_seen_counts_are_kept() {
        check(&[&[(1, 0, 10), (2, 99, 100)], &[(1, 0, 11)], &[]], &[110, 111, 111]);
    }

    #[test]
    fn an_ended_branch_counts_in_the_rest_of_the_tree() {
        let tree = &[(1, 0, 1), (2, 1, 10), (3, 2, 100)];
        check(&[tree, &[(1, 0, 115)]], &[111, 115]);
        check(&[tree, &[]], &[111, 111]);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let mut account = Account::default();
        account.update(processes(&[(5, 99, 100)]));
        let again = Process { started: 9, parent: 99, counts: [7; 4] };
        assert_eq!(account.update([(5, again)].into())[0], 107);
    }

    #[test]
    fn a_ring_of_parents_ends() {
        check(&[&[(1, 2, 1), (2, 1, 1)], &[]], &[2, 2]);
    }
}
