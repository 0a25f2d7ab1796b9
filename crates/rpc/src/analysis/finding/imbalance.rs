//! Imbalance between targets: one of them serves more than its part, and calls queue there.

use super::replay::Replay;
use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{View, total_ns};
use crate::analysis::blocks::Estimate;
use crate::analysis::names::PathId;
use crate::analysis::profile::collect::ProcessSums;

/// The factor by which the busiest target serves more calls than the mean of all. A hash of a few hundred keys over ten
/// targets reaches 1.3 by chance.
const MIN_FACTOR: f64 = 1.5;

const BALANCED: &str = "a simulation in which the same calls go to the targets in turn";

pub(super) static RULE: Rule = Rule {
    name: "imbalance",
    condition: "of two or more targets of a callpath with 50 calls, one serves 1.5 times as many calls as the mean",
    inputs: "calls with both sides, of two targets with the same name of their service or the same callpath",
    advice: "divide keys more evenly between targets: by a hash of the whole key, by more partitions than targets, or by a balancer that counts requests in flight instead of connections",
    judge,
};

fn judge(view: &View<'_>) -> Judging {
    let paths = view.judged_paths()?;
    let several: Vec<_> =
        paths.into_iter().filter(|(_, sums)| sums.target.processes.len() >= 2).collect();
    if several.is_empty() {
        return Err(Verdict::unknown("no callpath has two targets"));
    }
    let factor = |targets: &[ProcessSums]| {
        let most = targets.iter().map(|p| p.calls).max().unwrap_or(0) as f64;
        let all: u64 = targets.iter().map(|p| p.calls).sum();
        most * targets.len() as f64 / (all.max(1)) as f64
    };
    let skewed = several.iter().filter(|(_, sums)| factor(&sums.target.processes) >= MIN_FACTOR);
    let worst = skewed.max_by(|a, b| total_ns(a.1).total_cmp(&total_ns(b.1)));
    let Some((path, sums)) = worst else { return Ok(Verdict::Absent) };
    let targets = &sums.target.processes;
    let (Some(most), Some(least)) =
        (targets.iter().max_by_key(|p| p.calls), targets.iter().min_by_key(|p| p.calls))
    else {
        return Ok(Verdict::Absent);
    };
    let predicted = balanced(view, *path);
    let of_run = (total_ns(sums) / view.root_ns().max(1.0)).min(1.0);
    Ok(Verdict::Found(Box::new(Found {
        what: format!(
            "{} serves {} calls of the callpath, {} only {}",
            view.label(most.process),
            most.calls,
            view.label(least.process),
            least.calls
        ),
        callpath: view.names(*path),
        processes: vec![view.label(most.process)],
        evidence: vec![
            Evidence::new(
                "calls of the busiest target, as a multiple of the mean",
                factor(targets),
                "",
            ),
            Evidence::new(
                "mean duration there",
                most.total_ns as f64 / most.calls.max(1) as f64,
                "ns",
            ),
            Evidence::new(
                "mean duration at the least busy one",
                least.total_ns as f64 / least.calls.max(1) as f64,
                "ns",
            ),
        ],
        fixes: vec![Fix {
            key: "partitioning".to_owned(),
            now: None,
            value: "even".to_owned(),
            gain: Some(predicted),
            model: BALANCED,
        }],
        saves: predicted.map(|gain| gain * of_run),
    })))
}

/// The gain if the calls of a callpath went to its targets in turn.
fn balanced(view: &View<'_>, path: PathId) -> Estimate {
    let calls: Vec<_> = view.joined.iter().filter(|call| call.path == path).copied().collect();
    let now = Replay::new(&calls);
    let streams = |target: &u32| view.number(*target, "execution_streams").unwrap_or(1.0) as usize;
    let streams: Vec<usize> = now.targets.iter().map(streams).collect();
    let mut even = now.clone();
    let count = even.targets.len().max(1);
    even.calls.iter_mut().enumerate().for_each(|(at, call)| call.target = at % count);
    now.gain(&streams, &even, &streams)
}
