//! The jobs that run on this node, as far as it knows.
//!
//! A hub tells of the jobs whose start names this node. A job whose control group is here runs here, whether a hub knows it or
//! not, unless a hub says that it has ended or runs elsewhere.

use std::collections::BTreeSet;

use skopos_model::job::JobId;
use skopos_wire::{JobsOfNode, MAX_JOBS_OF_NODE};

/// The jobs of this node.
#[derive(Debug, Default)]
pub(super) struct JobsHere {
    /// The answer of the hub, of which jobs that have ended since are removed.
    told: JobsOfNode,
    /// The ids of the jobs that have facts of their own.
    seen: BTreeSet<String>,
}

impl JobsHere {
    /// Notes the jobs that have facts of their own now. A job that had facts and has none has ended, until the hub says
    /// otherwise: the hub may be away.
    pub(super) fn see(&mut self, seen: BTreeSet<String>) {
        let is_over = |id: &str| self.seen.contains(id) && !seen.contains(id);
        self.told.running.retain(|id| !is_over(id.job()));
        self.seen = seen;
    }

    /// Returns the ids of the jobs that have facts of their own.
    pub(super) fn seen(&self) -> &BTreeSet<String> {
        &self.seen
    }

    /// Notes the answer of the hub.
    pub(super) fn learn(&mut self, told: JobsOfNode) {
        self.told = told;
    }

    /// Returns the jobs that run here, and the number of further ones, which are left out. A job of which only the id is known
    /// is its first run.
    pub(super) fn jobs(&self) -> (Vec<JobId>, u64) {
        let JobsOfNode { running, elsewhere, left_out: no_room } = &self.told;
        let is_new = |id: &&String| {
            !elsewhere.contains(id) && !running.iter().any(|running| running.job() == *id)
        };
        let new = self.seen.iter().filter(is_new).filter_map(|id| JobId::new(id.as_str(), 0).ok());
        let mut jobs: Vec<JobId> = running.iter().cloned().chain(new).collect();
        let left_out = jobs.len().saturating_sub(MAX_JOBS_OF_NODE);
        jobs.truncate(MAX_JOBS_OF_NODE);
        (jobs, no_room.saturating_add(left_out as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn a_job_runs_here_if_the_hub_says_so_or_its_group_is_here() {
        let mut here = JobsHere::default();
        let jobs = |here: &JobsHere| {
            let (jobs, left_out) = here.jobs();
            assert_eq!(left_out, 0);
            jobs.iter().map(JobId::to_string).collect::<Vec<_>>()
        };
        here.see(ids(&["7", "8"]));
        assert_eq!(jobs(&here), ["7", "8"], "the hub is away");
        let id = |job: &str, generation| JobId::new(job, generation).expect("an id");
        let told = JobsOfNode {
            running: vec![id("7", 1), id("run/9", 0)],
            elsewhere: vec!["8".to_owned()],
            left_out: 0,
        };
        here.learn(told.clone());
        assert_eq!(jobs(&here), ["7.g1", "run/9"]);
        here.see(ids(&["7", "8"]));
        assert_eq!(jobs(&here), ["7.g1", "run/9"]);
        // The group of a job is gone while the hub is away. A job that never had one goes on.
        here.see(ids(&["8"]));
        assert_eq!(jobs(&here), ["run/9"]);
        here.learn(told);
        assert_eq!(jobs(&here), ["7.g1", "run/9"], "the hub knows better");
        here.learn(JobsOfNode::default());
        here.see(ids(&[]));
        assert_eq!(jobs(&here), [""; 0]);
    }

    #[test]
    fn jobs_beyond_the_bound_are_counted() {
        let mut here = JobsHere::default();
        let names = |from: usize, to: usize| (from..to).map(|at| at.to_string());
        here.see(names(0, MAX_JOBS_OF_NODE).collect());
        let id = |job: String| JobId::new(job, 0).expect("an id");
        let running = names(MAX_JOBS_OF_NODE, MAX_JOBS_OF_NODE + 3).map(id).collect();
        here.learn(JobsOfNode { running, elsewhere: Vec::new(), left_out: 4 });
        let (jobs, left_out) = here.jobs();
        assert_eq!((jobs.len(), left_out), (MAX_JOBS_OF_NODE, 3 + 4));
        let running = here.told.running.clone();
        here.learn(JobsOfNode { running, elsewhere: Vec::new(), left_out: u64::MAX });
        assert_eq!(here.jobs().1, u64::MAX);
    }
}
