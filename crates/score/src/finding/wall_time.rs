//! Ended at wall time: the job was still at work when its time was over.

use skopos_model::job::JobState;
use skopos_model::task::{ExitType, amount};

use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

pub(super) static RULE: Rule = Rule {
    name: "wall_time",
    condition: "the job ended as `timeout`, or a monitor ended one of its tasks for its limit on wall time",
    inputs: "the end of the job",
    advice: "request more time, write checkpoints before the end, or divide the job into shorter ones",
    judge,
};

/// Returns true if the text of a limit is about wall time.
pub(super) fn is_wall(limit: &str) -> bool {
    limit.starts_with("wall")
}

fn judge(view: &JobView) -> Judging {
    let state = view.ended()?;
    let is_ended = view.reports.iter().any(|report| {
        report.ended.exit_type == ExitType::Limit && report.ended.limits.iter().any(|l| is_wall(l))
    });
    if state != JobState::Timeout && !is_ended {
        return match state {
            JobState::Unknown => Err(Verdict::unknown("it is not known how the job ended")),
            _ => Ok(Verdict::Absent),
        };
    }
    let requested = view.requested("wall_seconds").ok();
    let used = view.used("wall_seconds").ok().map(|used| used.value);
    let evidence = [("requested wall time", requested), ("wall time", used)];
    let evidence =
        evidence.into_iter().filter_map(|(name, v)| Some(Evidence::new(name, v?, "seconds")));
    let after =
        requested.map_or(String::new(), |most| format!(" after {}", amount(most, "seconds")));
    Ok(Verdict::Found(Found {
        severity: Severity::Serious,
        what: format!("the limit on wall time ended the job{after}"),
        evidence: evidence.collect(),
    }))
}
