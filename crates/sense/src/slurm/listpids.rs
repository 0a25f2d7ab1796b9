//! Parses the output of `scontrol listpids`: the processes of each job on this node. scontrol asks
//! the steps on this node, and not the controller.

use std::collections::{BTreeMap, BTreeSet};

use crate::parse;

/// The most jobs of one node: one for each processor of the largest nodes that jobs share.
pub(super) const MAX_JOBS: usize = 256;

/// The most processes of all jobs together. Their files are read at each poll, at about 20 us each.
const MAX_PROCESSES: usize = 8192;

/// The part of a job that runs here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LocalJob {
    pub(super) pids: Vec<u32>,
    /// Tasks of steps: pairs of step and local task. The batch script counts as a task if there is
    /// no other.
    pub(super) tasks: u64,
}

/// The parts of all jobs that run here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LocalJobs {
    pub(super) jobs: BTreeMap<u32, LocalJob>,
    /// Number of jobs and processes beyond the limits.
    pub(super) left_out: usize,
}

/// Parses a heading "PID JOBID STEPID LOCALID GLOBALID" and a line for each process, with `-` where
/// the process itself is not a task. Returns `None` without the heading: scontrol then failed
/// earlier.
pub(super) fn parse(text: &[u8]) -> Option<LocalJobs> {
    let mut lines = parse::lines(text);
    let heading: Vec<_> = parse::words(lines.next()?).take(4).collect();
    if heading != [&b"PID"[..], b"JOBID", b"STEPID", b"LOCALID"] {
        return None;
    }
    let mut listed = LocalJobs::default();
    let mut processes = 0;
    let mut tasks: BTreeMap<u32, BTreeSet<(&[u8], u32)>> = BTreeMap::new();
    for line in lines {
        let mut words = parse::words(line);
        let mut number = || words.next().and_then(parse::u64).and_then(|n| u32::try_from(n).ok());
        let (Some(pid), Some(job)) = (number(), number()) else { continue };
        let is_new = !listed.jobs.contains_key(&job);
        if processes == MAX_PROCESSES || is_new && listed.jobs.len() == MAX_JOBS {
            listed.left_out += 1;
            continue;
        }
        processes += 1;
        listed.jobs.entry(job).or_default().pids.push(pid);
        let step = words.next().unwrap_or_default();
        let task = words.next().and_then(parse::u64).and_then(|n| u32::try_from(n).ok());
        if let Some(task) = task {
            tasks.entry(job).or_default().insert((step, task));
        }
    }
    for (job, tasks) in tasks {
        let of_steps = tasks.iter().filter(|(step, _)| step.iter().all(u8::is_ascii_digit)).count();
        let all = tasks.len().min(1);
        if let Some(local) = listed.jobs.get_mut(&job) {
            local.tasks = if of_steps > 0 { of_steps } else { all } as u64;
        }
    }
    Some(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &[u8] = include_bytes!("../../tests/data/slurm/listpids.txt");

    fn jobs(text: &[u8]) -> Vec<(u32, Vec<u32>, u64)> {
        let listed = parse(text).expect("it has the heading");
        listed.jobs.into_iter().map(|(job, local)| (job, local.pids, local.tasks)).collect()
    }

    #[test]
    fn processes_and_tasks_by_job() {
        assert_eq!(jobs(RECORDED), [(3, vec![30134], 1), (5, vec![30232, 30242, 30235, 30262], 1)]);
        let two =
            b"PID JOBID STEPID LOCALID GLOBALID\n1 7 0 0 4\n2 7 0 1 5\n3 7 1 0 0\n4 7 0 1 5\n";
        assert_eq!(jobs(two), [(7, vec![1, 2, 3, 4], 3)]);
        let batch = b"PID JOBID STEPID LOCALID GLOBALID\n1 7 batch 0 0\n2 7 extern 0 0\n";
        assert_eq!(jobs(batch), [(7, vec![1, 2], 1)]);
    }

    #[test]
    fn no_steps_are_a_heading_and_an_error_has_none() {
        assert_eq!(jobs(b"PID      JOBID    STEPID   LOCALID GLOBALID\n"), []);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"scontrol: error\n"), None);
    }

    #[test]
    fn odd_lines_are_skipped_and_too_many_are_counted() {
        let odd =
            b"PID JOBID STEPID LOCALID GLOBALID\n\nx 1\n5\n5 x\n-1 2 3\n5 99999999999 0 0 0\n6 8\n";
        assert_eq!(jobs(odd), [(8, vec![6], 0)]);
        let mut many = b"PID JOBID STEPID LOCALID GLOBALID\n".to_vec();
        (0..300).for_each(|n| many.extend(format!("{n} {n} 0 0 0\n").bytes()));
        let listed = parse(&many).expect("it has the heading");
        assert_eq!((listed.jobs.len(), listed.left_out), (MAX_JOBS, 44));
    }
}
