//! What the processes of one job read and wrote: a sum that does not fall when they end.
//!
//! The kernel adds what a process did to its parent's counts when the parent waits for it
//! (`wait_task_zombie` in kernel/exit.c). So of a process that is gone nothing is lost as long as its
//! parent, or the parent's parent, is there and belongs to the job: its last seen counts are dropped.
//! Without such an ancestor they are kept. What it did after it was last seen is then lost: the sum is
//! a lower bound.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::parse;

/// rchar, wchar, read_bytes, write_bytes (Documentation/filesystems/proc.rst, 3.3).
pub(super) type Counts = [u64; 4];
const KEYS: [&[u8]; 4] = [b"rchar", b"wchar", b"read_bytes", b"write_bytes"];

/// How far up an ancestor is looked for. Process trees of jobs are a few levels deep.
const MAX_LEVELS: usize = 64;

/// One process as it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// In clock ticks since the boot: what tells two of one number apart.
    started: u64,
    parent: u32,
    counts: Counts,
}

impl Process {
    /// Reads `/proc/PID/stat` and `/proc/PID/io`. `None` if it has ended, or is not ours to read.
    pub(super) fn read(proc: &Path, pid: u32) -> Option<Self> {
        let folder = proc.join(pid.to_string());
        let stat = fs::read(folder.join("stat")).ok()?;
        // The name stands in parentheses and may hold any; "S PPID" follows it, and the 20th word
        // after it is the time of the start.
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
    /// Of processes that are gone and that no ancestor accounts for.
    ended: Counts,
    /// What was told last: an ancestor counts its children a moment after they are gone.
    told: Counts,
}

impl Account {
    /// Takes the processes that are there now; returns the sum.
    pub(super) fn update(&mut self, now: BTreeMap<u32, Process>) -> Counts {
        for (pid, gone) in &self.processes {
            let is_gone = now.get(pid).is_none_or(|p| p.started != gone.started);
            if is_gone && !self.has_heir(gone, &now) {
                add(&mut self.ended, &gone.counts);
            }
        }
        let mut sum = self.ended;
        now.values().for_each(|process| add(&mut sum, &process.counts));
        for (told, sum) in self.told.iter_mut().zip(sum) {
            *told = sum.max(*told);
        }
        self.processes = now;
        self.told
    }

    /// True if an ancestor that was there before is still there.
    fn has_heir(&self, gone: &Process, now: &BTreeMap<u32, Process>) -> bool {
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

    /// `pid parent bytes`, started at its pid.
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
    fn a_process_that_ends_lives_on_in_the_parent_that_waited_for_it() {
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
    fn a_whole_branch_that_ends_lives_on_in_what_is_left_of_the_tree() {
        let tree = &[(1, 0, 1), (2, 1, 10), (3, 2, 100)];
        check(&[tree, &[(1, 0, 115)]], &[111, 115]);
        check(&[tree, &[]], &[111, 111]);
    }

    #[test]
    fn a_number_that_is_given_again_is_another_process() {
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
