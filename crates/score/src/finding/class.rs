//! A job that differs from its class: earlier jobs of the same user and application.
//!
//! For each resource the distance from the median of the class is measured in its robust standard deviation, the median
//! absolute deviation. A class of equal jobs has no deviation, so a share of the median and a least amount stand in for it.

use std::collections::BTreeMap;

use skopos_model::task::{RESOURCES, Resource, amount};

use super::numbers::spread;
use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

/// The resources that an earlier job used, by their names.
pub type Earlier = BTreeMap<String, f64>;

/// The least number of earlier jobs. The median absolute deviation of fewer is often zero or far off.
pub const MIN_EARLIER: usize = 8;

/// The distance, in robust standard deviations, from which a resource differs. Durations of jobs have long tails: three
/// deviations are not rare.
const MIN_DISTANCE: f64 = 6.0;

/// The factor by which a resource differs at least, in either direction.
const MIN_FACTOR: f64 = 1.5;

/// The least deviation as a share of the median: runs of one program on a shared machine differ by this much.
const LEAST_SHARE: f64 = 0.1;

/// The least deviations by unit: what starting a program differs by.
const LEAST_SECONDS: f64 = 0.25;
const LEAST_BYTES: f64 = 4.0 * 1024.0 * 1024.0;
const LEAST_CALLS: f64 = 1_000.0;
const LEAST_COUNT: f64 = 2.0;

/// The compared resources. Others depend on the machine's state (switches, faults, caches) or on the level.
const COMPARED: [&str; 12] = [
    "wall_seconds",
    "cpu_seconds",
    "cores",
    "gpus",
    "processes_total",
    "threads_max",
    "resident_bytes_max",
    "swap_bytes_max",
    "read_bytes",
    "written_bytes",
    "read_calls",
    "write_calls",
];

/// The most resources that a finding names.
const MAX_NAMED: usize = 5;

/// The documentation of the rule.
pub static CLASS: Rule = Rule {
    name: "unlike_class",
    condition: "a resource is 6 robust standard deviations and a factor of 1.5 away from the median of earlier jobs of the same user and application",
    inputs: "at least 8 earlier jobs that completed, of the same user and application",
    advice: "compare the job with an earlier one: `skopos job compare`; another input, another node or a changed program explains most differences",
    judge: |_| Err(Verdict::unknown("the earlier jobs are not known")),
};

/// Compares a job with earlier ones of its class.
pub fn judge_class(view: &JobView, earlier: &[Earlier]) -> Verdict {
    let (Ok(verdict) | Err(verdict)) = compare(view, earlier);
    verdict.checked()
}

fn compare(view: &JobView, earlier: &[Earlier]) -> Judging {
    let start = view.start.as_ref();
    if start.is_none_or(|start| start.application.is_empty() || start.user.is_empty()) {
        return Err(Verdict::unknown("the user and the application of the job are not both known"));
    }
    // A job that runs has not used what it will.
    view.ended()?;
    if earlier.len() < MIN_EARLIER {
        return Err(Verdict::unknown(format!(
            "there are {} earlier jobs of the same user and application, fewer than {MIN_EARLIER}",
            earlier.len()
        )));
    }
    let compared = RESOURCES.iter().filter(|resource| COMPARED.contains(&resource.name));
    let mut differing: Vec<(f64, &Resource, f64, f64)> = Vec::new();
    let mut is_judged = false;
    for resource in compared {
        let Ok(now) = view.used(resource.name) else { continue };
        let before: Vec<f64> =
            earlier.iter().filter_map(|job| job.get(resource.name)).copied().collect();
        if before.len() < MIN_EARLIER {
            continue;
        }
        let Some((middle, sigma)) = spread(&before) else { continue };
        is_judged = true;
        let least = least(resource).max(LEAST_SHARE * middle.abs());
        let distance = (now.value - middle).abs() / sigma.max(least);
        let (low, high) = (now.value.min(middle), now.value.max(middle));
        if distance >= MIN_DISTANCE && high >= MIN_FACTOR * low {
            differing.push((distance, resource, now.value, middle));
        }
    }
    if !is_judged {
        return Err(Verdict::unknown("no resource is known of this job and of earlier ones"));
    }
    differing.sort_by(|a, b| b.0.total_cmp(&a.0));
    let Some((_, resource, now, middle)) = differing.first() else { return Ok(Verdict::Absent) };
    let what = format!(
        "`{}` is {}, and {} in the median of {} earlier jobs",
        resource.name,
        amount(*now, resource.unit),
        amount(*middle, resource.unit),
        earlier.len()
    );
    let evidence =
        differing.iter().take(MAX_NAMED).flat_map(|(distance, resource, now, middle)| {
            [
                Evidence::new(resource.name, *now, resource.unit),
                Evidence::new(
                    format!("median {} of earlier jobs", resource.name),
                    *middle,
                    resource.unit,
                ),
                Evidence::new(format!("distance of {}", resource.name), *distance, ""),
            ]
        });
    let evidence = evidence.collect();
    Ok(Verdict::Found(Found { severity: Severity::Note, what, evidence }))
}

fn least(of: &Resource) -> f64 {
    match of.unit {
        "seconds" => LEAST_SECONDS,
        "bytes" => LEAST_BYTES,
        // An average number of busy cores is not a whole number.
        _ if of.name == "cores" => LEAST_SHARE,
        _ if of.name.ends_with("_calls") => LEAST_CALLS,
        _ => LEAST_COUNT,
    }
}
