//! Leak slope: memory that grows as long as the job runs.
//!
//! The series is cut into stretches of time, and each has a median, so that single allocations do not count. Memory
//! leaks if the medians rise at almost each step, at the end as fast as before, by a share of the level. A job that loads
//! its input and then works on it stops to grow; one that allocates in waves goes down again. A job that collects results
//! until its end looks like a leak, and the finding says that.

use super::numbers::{MIN_WALL_SECONDS, median, slope};
use super::rule::Rule;
use super::series::Series;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

const METRICS: [&str; 2] = ["resident_bytes", "memory_bytes"];

/// The first share of the time that is left out: programs and inputs are loaded then.
const START: f64 = 0.2;

/// Number of stretches of the remaining time: enough to tell a slope from a step, and few enough for a poll in each of
/// them when a job of twenty polls is judged.
const STRETCHES: usize = 10;

/// The least number of stretches with a point, and of points.
const MIN_STRETCHES: usize = 8;
const MIN_POINTS: usize = 16;

/// The share of steps that rise. One in ten may be noise of the allocator.
const RISING: f64 = 0.85;

/// The slope of the last stretches as a share of the whole slope: a job that has loaded its input levels off.
const LATE_SHARE: f64 = 0.4;

/// The least growth, in bytes and as a share of the level in the first stretch: arenas and caches of a runtime fill up by
/// some MB.
const MIN_GROWTH_BYTES: f64 = 32.0 * 1024.0 * 1024.0;
const MIN_GROWTH_SHARE: f64 = 0.2;

pub(super) static RULE: Rule = Rule {
    name: "memory_leak",
    condition: "after the first 20 % of the time, memory rises in 85 % of ten stretches, at the end at 40 % of the whole slope or more, by 32 MiB and 20 % in total",
    inputs: "a series of `resident_bytes` or `memory_bytes` with 16 points over 2 s",
    advice: "look for memory that is allocated in a loop and not released (heap profilers show it); if the job collects results on purpose, request what the whole run needs",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let mut steepest: Option<Found> = None;
    let mut is_judged = false;
    for series in view.series_of(&METRICS) {
        let (is_enough, found) = leak(series);
        is_judged |= is_enough;
        let slope = |found: &Found| found.evidence.first().map_or(0.0, |e| e.value);
        if let Some(found) = found
            && steepest.as_ref().is_none_or(|known| slope(&found) > slope(known))
        {
            steepest = Some(found);
        }
    }
    match (steepest, is_judged) {
        (Some(found), _) => Ok(Verdict::Found(found)),
        (None, true) => Ok(Verdict::Absent),
        (None, false) => {
            Err(Verdict::unknown("the job has no series of its memory that is long enough"))
        }
    }
}

/// Returns whether a series can be judged, and the finding.
fn leak(series: &Series) -> (bool, Option<Found>) {
    let stretches = series.medians(START, STRETCHES);
    if series.points().len() < MIN_POINTS
        || stretches.len() < MIN_STRETCHES
        || series.seconds() < MIN_WALL_SECONDS
    {
        return (false, None);
    }
    let steps: Vec<f64> = stretches.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    let rising = steps.iter().filter(|step| **step > 0.0).count() as f64 / steps.len() as f64;
    let late = &stretches[stretches.len() / 2..];
    let (Some(whole), Some(at_end)) = (slope(&stretches), slope(late)) else {
        return (true, None);
    };
    let seconds = stretches[stretches.len() - 1].0 - stretches[0].0;
    let (growth, level) = (whole * seconds, stretches[0].1);
    let is_leak = rising >= RISING
        && at_end >= LATE_SHARE * whole
        && growth >= MIN_GROWTH_BYTES
        && growth >= MIN_GROWTH_SHARE * level;
    let noise = median(steps.iter().map(|step| (step - growth / steps.len() as f64).abs()));
    let found = Found {
        severity: Severity::Warning,
        what: format!(
            "`{}` grows by {} in a minute until the end, or the job collects results",
            series.name(),
            Evidence::new("", 60.0 * whole, "bytes").shown()
        ),
        evidence: vec![
            Evidence::new("growth in a second", whole, "bytes"),
            Evidence::new("growth", growth, "bytes"),
            Evidence::new("level before", level, "bytes"),
            Evidence::new("share of rising steps", rising, ""),
            Evidence::new("deviation of a step", noise.unwrap_or(0.0), "bytes"),
        ],
    };
    (true, is_leak.then_some(found))
}
