//! Memory far below the request.

use skopos_model::task::amount;

use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

/// The share of the request below which it stands out. Users request some two times of what they expect, so that a
/// larger input fits; four times is not a margin.
const MAX_SHARE: f64 = 0.25;

/// The least memory that is not used. Less than this does not keep another job from the node.
const MIN_UNUSED_BYTES: f64 = 512.0 * 1024.0 * 1024.0;

/// The least memory that is proposed in evidence, as a multiple of the peak: the peak of the next input may differ.
const MARGIN: f64 = 1.5;

pub(super) static RULE: Rule = Rule {
    name: "memory_request",
    condition: "`resident_bytes_max` and `tmpfs_bytes_max` of the tasks that run at one time are below 25 % of the requested memory, and at least 512 MiB below",
    inputs: "requested `resident_bytes_max`; `resident_bytes_max` that is not only a lower bound; the end of the job; 2 s of wall time",
    advice: "request the memory that `skopos estimate` proposes, or half as much again as the peak",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let requested = view.requested("resident_bytes_max")?;
    view.wall_seconds()?;
    view.ended()?;
    let resident = view.together("resident_bytes_max")?;
    let files = view.together("tmpfs_bytes_max").map_or(0.0, |files| files.value);
    let used = resident.value + files;
    if used > MAX_SHARE * requested || requested - used < MIN_UNUSED_BYTES {
        return Ok(Verdict::Absent);
    }
    if resident.is_lower_bound {
        return Err(Verdict::unknown("`resident_bytes_max` is only a lower bound"));
    }
    let (peak, most) = (amount(used, "bytes"), amount(requested, "bytes"));
    Ok(Verdict::Found(Found {
        severity: Severity::Warning,
        what: format!("the peak of the job's memory is {peak} of {most} requested"),
        evidence: vec![
            Evidence::new("requested memory", requested, "bytes"),
            Evidence::new("peak memory", used, "bytes"),
            Evidence::new("half as much again as the peak", MARGIN * used, "bytes"),
        ],
    }))
}
