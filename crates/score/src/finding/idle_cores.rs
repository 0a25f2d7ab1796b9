//! Idle cores: the job requested more cores than its threads could use.

use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

/// The share of the requested cores below which the rest stands out. A job that waits for storage or for other ranks
/// reaches less than all of its cores, and half of them idle is more than such waits explain.
const MIN_SHARE: f64 = 0.6;

/// The least number of idle cores: less than a core cannot be returned.
const MIN_IDLE_CORES: f64 = 0.75;

/// The share below which most of the request was lost.
const LOST_SHARE: f64 = 0.25;

pub(super) static RULE: Rule = Rule {
    name: "idle_cores",
    condition: "`(cpu_seconds + cpu_delay_seconds) / wall time` is below 60 % of the requested `cores`, and at least 0.75 cores below",
    inputs: "requested `cores`; `cpu_seconds`, and `cpu_delay_seconds` if it is known; 2 s of wall time",
    advice: "request as many cores as the job keeps busy, or let it run as many threads or processes as it has cores",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let requested = view.requested("cores")?;
    let wall = view.wall_seconds()?;
    let cpu = view.sum("cpu_seconds")?;
    // A thread that waits for a processor would use one: on a shared machine its job is not idle.
    let waits = view.sum("cpu_delay_seconds").map_or(0.0, |delay| delay.value);
    let wanted = (cpu.value + waits) / wall;
    if wanted >= MIN_SHARE * requested || requested - wanted < MIN_IDLE_CORES {
        return Ok(Verdict::Absent);
    }
    if cpu.is_lower_bound {
        return Err(Verdict::unknown("`cpu_seconds` is only a lower bound"));
    }
    let is_lost = wanted < LOST_SHARE * requested;
    Ok(Verdict::Found(Found {
        severity: if is_lost { Severity::Serious } else { Severity::Warning },
        what: format!("the job kept {wanted:.2} of {requested} requested cores busy"),
        evidence: vec![
            Evidence::new("requested cores", requested, ""),
            Evidence::new("busy cores", wanted, ""),
            Evidence::new("idle core time", (requested - wanted) * wall, "seconds"),
        ],
    }))
}
