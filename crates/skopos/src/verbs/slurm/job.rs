//! The start and the end of a job, from the environment that Slurm gives to a prolog or an epilog and from scontrol.

use std::collections::BTreeMap;

use skopos_model::job::{JobEnd, JobStart, JobState, MAX_DETAILS};
use skopos_model::task::ExitType;
use skopos_sense::ShownJob;

use super::host_list;

/// Variables that become details of the job, with their names there.
const DETAILS: [(&str, &str); 6] = [
    ("SLURM_CLUSTER_NAME", "cluster"),
    ("SLURM_JOB_UID", "uid"),
    ("SLURM_ARRAY_JOB_ID", "array_job"),
    ("SLURM_ARRAY_TASK_ID", "array_task"),
    ("SLURM_JOB_CONSTRAINTS", "constraints"),
    ("SLURM_JOB_RESERVATION", "reservation"),
];

/// The longest time by which the end of a job that has ended is ahead of the clock. That of a job that was requeued is the
/// end of its limit.
const AHEAD_SECONDS: f64 = 5.0;

/// A job as Slurm describes it.
pub(super) struct SlurmJob<'s> {
    /// Reads a variable of the environment.
    variable: &'s dyn Fn(&str) -> Option<String>,
    shown: Option<&'s ShownJob>,
    /// The time in seconds of UNIX time.
    now: f64,
}

/// The run of a job that ended, and its result.
#[derive(Debug, PartialEq)]
pub(super) struct Ended {
    pub(super) generation: u32,
    pub(super) end: JobEnd,
}

impl<'s> SlurmJob<'s> {
    pub(super) fn new(
        variable: &'s dyn Fn(&str) -> Option<String>,
        shown: Option<&'s ShownJob>,
        now: f64,
    ) -> Self {
        Self { variable, shown, now }
    }

    /// Returns a variable. Slurm writes `(null)` for what it does not know.
    fn get(&self, names: &[&str]) -> Option<String> {
        let known = |value: &String| !value.is_empty() && value != "(null)";
        names.iter().find_map(|name| (self.variable)(name).filter(known))
    }

    fn seconds(&self, variable: &str, key: &'static str) -> Option<f64> {
        let told = self.get(&[variable]).and_then(|text| text.parse().ok());
        told.or_else(|| self.shown.and_then(|shown| shown.unix_seconds(key)))
    }

    /// Returns the number of times that Slurm has started the job again.
    pub(super) fn restarts(&self) -> u32 {
        let told = self.get(&["SLURM_JOB_RESTART_COUNT", "SLURM_RESTART_COUNT"]);
        let shown = || self.shown.and_then(|shown| shown.number("Restarts"));
        let told = told.and_then(|text| text.parse().ok()).or_else(shown).unwrap_or(0);
        u32::try_from(told).unwrap_or(u32::MAX)
    }

    /// Returns the metadata of the start.
    pub(super) fn start(&self) -> JobStart {
        let text = |name: &str| self.get(&[name]).unwrap_or_default();
        let (mut nodes, mut details) = (Default::default(), BTreeMap::new());
        if let Some(list) = self.get(&["SLURM_JOB_NODELIST", "SLURM_NODELIST"]) {
            match host_list::expand(&list, MAX_DETAILS) {
                Some((expanded, is_more)) => {
                    nodes = expanded;
                    if is_more {
                        details.insert("nodes_left_out".to_owned(), "true".to_owned());
                    }
                }
                None => drop(details.insert("nodes".to_owned(), list)),
            }
        }
        let of = |(variable, name): (&str, &str)| Some((name.to_owned(), self.get(&[variable])?));
        details.extend(DETAILS.into_iter().filter_map(of));
        let name = text("SLURM_JOB_NAME");
        JobStart {
            user: text("SLURM_JOB_USER"),
            project: text("SLURM_JOB_ACCOUNT"),
            application: name.clone(),
            name,
            queue: text("SLURM_JOB_PARTITION"),
            launcher: "slurm".to_owned(),
            folder: text("SLURM_JOB_WORK_DIR"),
            nodes,
            requested: self.requested(),
            submit_seconds: self.shown.and_then(|shown| shown.unix_seconds("SubmitTime")),
            // scontrol has it in whole seconds.
            start_seconds: self.seconds("SLURM_JOB_START_TIME", "StartTime").or(Some(self.now)),
            details,
            ..JobStart::default()
        }
    }

    fn requested(&self) -> BTreeMap<String, f64> {
        let Some(shown) = self.shown else { return BTreeMap::new() };
        let all = [
            ("cores", shown.number("NumCPUs").map(|cores| cores as f64)),
            ("resident_bytes_max", shown.memory_bytes().map(|bytes| bytes as f64)),
            ("wall_seconds", shown.limit_seconds()),
        ];
        let known = all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        known.collect()
    }

    /// Returns the result, as it is known in an epilog.
    pub(super) fn end(&self) -> Ended {
        let restarts = self.restarts();
        let ends = self.seconds("SLURM_JOB_END_TIME", "EndTime");
        // Slurm counts the next run of a job that it requeues before it runs the epilog of the last one. Without a limit on
        // time, that next run has no end.
        let is_ahead = match ends {
            Some(ends) => ends > self.now + AHEAD_SECONDS,
            None => self.shown.is_some(),
        };
        let is_requeued = restarts > 0 && is_ahead;
        if is_requeued {
            let end = JobEnd { end_seconds: Some(self.now), ..JobEnd::default() };
            return Ended { generation: restarts - 1, end };
        }
        let (status, signal) = self.exit_code().unzip();
        let (status, signal) = (status.filter(|_| signal == Some(0)), signal.filter(|s| *s != 0));
        let by_code = match (status, signal) {
            (Some(0), _) => JobState::Completed,
            (None, None) => JobState::Unknown,
            _ => JobState::Failed,
        };
        let shown = self.shown.and_then(|shown| shown.text("JobState")).and_then(state_of);
        let reason = self.shown.and_then(|shown| shown.text("Reason")).and_then(state_of_reason);
        let state = shown.or(reason).unwrap_or(by_code);
        let exit_type = match (state, signal) {
            (JobState::Timeout | JobState::OutOfMemory, _) => ExitType::Limit,
            (_, Some(_)) => ExitType::Signal,
            _ if status.is_some() => ExitType::Normal,
            _ => ExitType::Unknown,
        };
        let end_seconds = ends.filter(|ends| *ends <= self.now).or(Some(self.now));
        let end = JobEnd {
            state,
            exit_type: Some(exit_type),
            status,
            signal,
            end_seconds,
            ..JobEnd::default()
        };
        Ended { generation: restarts, end }
    }

    /// Returns the exit status and the signal.
    fn exit_code(&self) -> Option<(i32, i32)> {
        let (status, signal) = match self.get(&["SLURM_JOB_EXIT_CODE2"]) {
            Some(text) => text.split_once(':').map(|(s, n)| (s.to_owned(), n.to_owned()))?,
            None => {
                let code: i32 = self.get(&["SLURM_JOB_EXIT_CODE"])?.parse().ok()?;
                return Some((code >> 8 & 0xff, code & 0x7f));
            }
        };
        Some((status.parse().ok()?, signal.parse().ok()?))
    }
}

/// Returns the state of a job that has ended; `None` as long as Slurm says that it is completing.
pub(super) fn state_of(name: &str) -> Option<JobState> {
    Some(match name {
        "COMPLETED" => JobState::Completed,
        "FAILED" | "LAUNCH_FAILED" | "BOOT_FAIL" | "DEADLINE" => JobState::Failed,
        "CANCELLED" | "REVOKED" => JobState::Cancelled,
        "TIMEOUT" => JobState::Timeout,
        "OUT_OF_MEMORY" => JobState::OutOfMemory,
        "NODE_FAIL" => JobState::NodeFail,
        "PREEMPTED" => JobState::Preempted,
        _ => return None,
    })
}

/// Returns the state that the reason tells while the job is completing.
fn state_of_reason(reason: &str) -> Option<JobState> {
    match reason {
        "TimeLimit" => Some(JobState::Timeout),
        "OutOfMemory" => Some(JobState::OutOfMemory),
        "NodeDown" => Some(JobState::NodeFail),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The environment of PrologSlurmctld and EpilogSlurmctld of Slurm 22.05, and its changes.
    fn job<T>(changes: &[(&str, &str)], of: impl Fn(&SlurmJob<'_>) -> T) -> T {
        let recorded = [
            ("SLURM_JOB_USER", "ann"),
            ("SLURM_JOB_NAME", "a b"),
            ("SLURM_JOB_WORK_DIR", "/home/ann"),
            ("SLURM_JOB_ACCOUNT", "(null)"),
            ("SLURM_JOB_RESTART_COUNT", "0"),
            ("SLURM_JOB_ID", "1"),
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_CLUSTER_NAME", "c"),
            ("SLURM_JOB_PARTITION", "all"),
        ];
        let variable = |name: &str| {
            let all = changes.iter().chain(&recorded);
            all.clone().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        of(&SlurmJob::new(&variable, None, 100.0))
    }

    fn start_of(job: &SlurmJob<'_>) -> JobStart {
        job.start()
    }

    fn end_of(job: &SlurmJob<'_>) -> Ended {
        job.end()
    }

    #[test]
    fn a_start_has_the_environment() {
        let start = job(&[], start_of);
        assert_eq!((start.user.as_str(), start.project.as_str()), ("ann", ""));
        assert_eq!((start.name.as_str(), start.queue.as_str()), ("a b", "all"));
        assert_eq!(start.nodes, ["n1".to_owned(), "n2".to_owned()].into());
        assert_eq!((start.launcher.as_str(), start.start_seconds), ("slurm", Some(100.0)));
        assert_eq!(start.details["cluster"], "c");
        assert_eq!(start.check(), Ok(()));
        let odd = job(&[("SLURM_JOB_NODELIST", "n[1")], start_of);
        assert_eq!((odd.nodes.len(), odd.details["nodes"].as_str()), (0, "n[1"));
    }

    #[test]
    fn an_end_has_the_exit_code() {
        let check = |changes: &[(&str, &str)], state, exit, status, signal| {
            let Ended { end, .. } = job(changes, end_of);
            let found = (end.state, end.exit_type, end.status, end.signal);
            assert_eq!(found, (state, Some(exit), status, signal), "{changes:?}");
        };
        let code2 = "SLURM_JOB_EXIT_CODE2";
        check(&[(code2, "0:0")], JobState::Completed, ExitType::Normal, Some(0), None);
        check(&[(code2, "3:0")], JobState::Failed, ExitType::Normal, Some(3), None);
        check(&[(code2, "0:9")], JobState::Failed, ExitType::Signal, None, Some(9));
        let code = "SLURM_JOB_EXIT_CODE";
        check(&[(code, "768")], JobState::Failed, ExitType::Normal, Some(3), None);
        check(&[(code, "9")], JobState::Failed, ExitType::Signal, None, Some(9));
        check(&[], JobState::Unknown, ExitType::Unknown, None, None);
        check(&[(code2, "x")], JobState::Unknown, ExitType::Unknown, None, None);
    }

    #[test]
    fn the_epilog_of_a_requeued_job_belongs_to_the_run_before() {
        let count = |count| ("SLURM_JOB_RESTART_COUNT", count);
        let code = ("SLURM_JOB_EXIT_CODE2", "0:0");
        let ends = |at| ("SLURM_JOB_END_TIME", at);
        let requeued = job(&[count("2"), code, ends("700")], end_of);
        assert_eq!((requeued.generation, requeued.end.state), (1, JobState::Unknown));
        let ended = job(&[count("2"), code, ends("99")], end_of);
        assert_eq!((ended.generation, ended.end.state), (2, JobState::Completed));
        assert_eq!(ended.end.end_seconds, Some(99.0));
    }
}
