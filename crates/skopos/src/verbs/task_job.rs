//! A task as a job: records that its report becomes, whether it has just ended or comes from an archive.

use skopos_model::job::{JobEnd, JobLoss, JobState};
use skopos_model::task::{ExitType, Summary, TaskFiles};

/// Returns the end of the job that a task is.
pub(super) fn end_of(summary: &Summary) -> JobEnd {
    let ended = &summary.ended;
    let state = match (ended.exit_type, ended.status) {
        (ExitType::Running | ExitType::Unknown, _) => JobState::Unknown,
        (ExitType::Limit, _) => state_of_limit(&ended.limits),
        (ExitType::Normal, Some(0)) => JobState::Completed,
        _ => JobState::Failed,
    };
    let (exit_type, status, signal) = (Some(ended.exit_type), ended.status, ended.signal);
    let end_seconds = Some(summary.end_seconds);
    JobEnd { state, exit_type, status, signal, end_seconds, ..JobEnd::default() }
}

/// Returns the state of a job that a limit ended. A limit is written as `memory: 5.1 GiB > 4 GiB`.
fn state_of_limit(limits: &[String]) -> JobState {
    let is_of = |name: &str| limits.iter().any(|limit| limit.starts_with(name));
    match () {
        () if is_of("memory") || is_of("resident_bytes_max") => JobState::OutOfMemory,
        () if is_of("wall") => JobState::Timeout,
        () => JobState::Failed,
    }
}

/// Returns the loss of a job whose task used more files than are kept; `None` if all are.
pub(super) fn loss_of_files(summary: &Summary, kept: &TaskFiles) -> Option<JobLoss> {
    (kept.files_left_out > 0).then(|| JobLoss {
        why: format!(
            "of the task's files, only the {} with the most bytes are kept, and the sum of the others",
            kept.files.len()
        ),
        records: kept.files_left_out,
        from_seconds: Some(summary.start_seconds),
        to_seconds: Some(summary.end_seconds),
    })
}
