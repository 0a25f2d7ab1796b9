//! Unaccounted time: no interval says where the time of a callpath goes.

use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Verdict};
use super::view::{Joined, MIN_CALLS, View, total_ns};
use crate::analysis::blocks::Estimate;
use crate::analysis::names::PathId;

/// The share from which it matters: the network and the library take some of each call.
const MIN_SHARE: f64 = 0.4;

/// The least mean time of a call outside of its target, in ns. A shorter one is the price of any remote call.
const MIN_OUTSIDE_NS: f64 = 1_000_000.0;

pub(super) static RULE: Rule = Rule {
    name: "unaccounted",
    condition: "40 % of the cumulative end-to-end time of a callpath with 50 calls, and 1 ms a call, lie outside of queue, handler and the target's own calls",
    inputs: "50 calls with both sides",
    advice: "look at the origin: a client whose threads compute or block sees its responses late (give completions a thread of their own); then at the network between the two nodes, and at proxies",
    judge,
};

fn judge(view: &View<'_>) -> Judging {
    let mut paths: std::collections::BTreeMap<PathId, Vec<&Joined>> =
        std::collections::BTreeMap::new();
    view.joined.iter().for_each(|call| paths.entry(call.path).or_default().push(call));
    paths.retain(|_, calls| calls.len() as u64 >= MIN_CALLS);
    if paths.is_empty() {
        return Err(Verdict::unknown(format!("no callpath has {MIN_CALLS} calls with both sides")));
    }
    let sum = |calls: &[&Joined], of: fn(&Joined) -> u64| -> f64 {
        calls.iter().map(|call| of(call) as f64).sum()
    };
    let outside = |calls: &[&Joined]| sum(calls, Joined::outside);
    let worst = paths.iter().max_by(|a, b| outside(a.1).total_cmp(&outside(b.1)));
    let Some((path, calls)) = worst else { return Ok(Verdict::Absent) };
    let total = sum(calls, |call| call.end.abs_diff(call.start)).max(1.0);
    let (share, mean) = (outside(calls) / total, outside(calls) / calls.len() as f64);
    if share < MIN_SHARE || mean < MIN_OUTSIDE_NS {
        return Ok(Verdict::Absent);
    }
    let before = |call: &Joined| call.arrived.saturating_sub(call.start).max(0).unsigned_abs();
    let origins = view.collector.path(*path).map(|sums| sums.origin.processes.as_slice());
    let of_run = view.collector.path(*path).map_or(0.0, total_ns) / view.root_ns().max(1.0);
    Ok(Verdict::Found(Found {
        what: format!(
            "no interval accounts for {:.0} % of the time of the callpath, {:.1} ms a call",
            100.0 * share,
            mean / 1e6
        ),
        callpath: view.names(*path),
        processes: origins.unwrap_or_default().iter().map(|p| view.label(p.process)).collect(),
        evidence: vec![
            Evidence::new("share of the end-to-end time outside of targets", share, "share"),
            Evidence::new("mean time outside of the target", mean, "ns"),
            Evidence::new("of it before the arrival", sum(calls, before) / outside(calls), "share"),
            Evidence::new("bound of the clocks", view.trace.clocks.bound_ns() as f64, "ns"),
        ],
        fixes: Vec::new(),
        // The rule does not know the cause, so it predicts no gain; at most all of it.
        saves: Estimate { value: 0.0, low: 0.0, high: share * of_run.min(1.0) },
    }))
}
