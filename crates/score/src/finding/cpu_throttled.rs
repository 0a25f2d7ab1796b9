//! CPU throttled: the control group of the job has a limit on processor time, and reached it.

use super::numbers::MIN_WALL_SECONDS;
use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

/// The throttled time as a share of the wall time. The kernel throttles bursts of some milliseconds of many jobs, which
/// costs them nothing that they notice.
const MIN_SHARE: f64 = 0.1;

/// The share above which most of the time is lost.
const LOST_SHARE: f64 = 0.5;

pub(super) static RULE: Rule = Rule {
    name: "cpu_throttled",
    condition: "the control group of the task, or one above it, was throttled for 10 % of the wall time or longer",
    inputs: "`throttled_seconds` of the reports, or a series of `cpu_throttled_seconds_total`; 2 s of wall time",
    advice: "run no more threads than the limit of the group has cores, or request more cores",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let of_series = view.series_of(&["cpu_throttled_seconds_total"]);
    let of_series = of_series.filter(|series| series.seconds() >= MIN_WALL_SECONDS);
    let worst = of_series
        .map(|series| (series.growth(), series.seconds()))
        .max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (throttled, wall) = match (view.most("throttled_seconds"), worst) {
        (Ok(throttled), _) => (throttled.value, view.wall_seconds()?),
        (Err(_), Some(worst)) => worst,
        (Err(why), None) => return Err(why),
    };
    let share = throttled / wall;
    if share < MIN_SHARE {
        return Ok(Verdict::Absent);
    }
    Ok(Verdict::Found(Found {
        severity: if share >= LOST_SHARE { Severity::Serious } else { Severity::Warning },
        what: format!(
            "a limit on processor time stopped the job for {:.0} % of its time",
            100.0 * share
        ),
        evidence: vec![
            Evidence::new("throttled time", throttled, "seconds"),
            Evidence::new("wall time", wall, "seconds"),
            Evidence::new("throttled share", share, ""),
        ],
    }))
}
