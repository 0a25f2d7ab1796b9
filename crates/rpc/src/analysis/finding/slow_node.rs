//! A slow node: its targets take longer for the same callpath than those on all other nodes.

use std::collections::BTreeMap;

use super::numbers::median;
use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{View, total_ns};
use crate::analysis::blocks::Estimate;
use crate::analysis::profile::collect::PathSums;
use crate::interval::Interval;

/// The least number of nodes. Of two, either may be the odd one.
const MIN_NODES: usize = 3;

/// The factor by which handlers on a slow node take longer. Nodes of one kind differ by some percent.
const MIN_FACTOR: f64 = 1.4;

/// The fewest calls of a callpath on each node.
const MIN_CALLS: u64 = 20;

const MOVED: &str =
    "calls of the node take as long as on the others; the queues that they cause are not counted";

pub(super) static RULE: Rule = Rule {
    name: "slow_node",
    condition: "handlers of a callpath take 1.4 times as long on one of at least three nodes as the median of the others, with 20 calls on each",
    inputs: "names of nodes; `target_execution_exclusive`, or the durations of targets; facts of the nodes for the reason",
    advice: "move the target to another node, and tell the administrators of this one; compare its clock rate, temperature, memory errors, disk and other tasks with the other nodes",
    judge,
};

/// Mean time of handlers by node, with the number of calls.
fn by_node<'v>(view: &'v View<'_>, sums: &PathSums) -> BTreeMap<&'v str, (f64, u64)> {
    let tag = usize::from(Interval::TargetExecutionExclusive.tag());
    let mut nodes: BTreeMap<&str, (f64, u64)> = BTreeMap::new();
    for sums in &sums.target.processes {
        let Some(process) = view.process(sums.process).filter(|p| !p.node.is_empty()) else {
            continue;
        };
        let own = match sums.interval_ns[tag] {
            0 => sums.total_ns,
            own => own,
        };
        let node = nodes.entry(&process.node).or_default();
        node.0 += own as f64;
        node.1 += sums.calls;
    }
    nodes.retain(|_, (_, calls)| *calls >= MIN_CALLS);
    nodes.values_mut().for_each(|(time, calls)| *time /= *calls as f64);
    nodes
}

fn judge(view: &View<'_>) -> Judging {
    let mut found: Option<Found> = None;
    let mut is_known = false;
    for (path, sums) in view.judged_paths()? {
        let nodes = by_node(view, sums);
        if nodes.len() < MIN_NODES {
            continue;
        }
        is_known = true;
        let Some((node, (mean, calls))) = nodes.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))
        else {
            continue;
        };
        let others = nodes.iter().filter(|(other, _)| *other != node).map(|(_, (mean, _))| *mean);
        let Some(middle) = median(others.collect()) else { continue };
        if middle <= 0.0 || *mean < MIN_FACTOR * middle {
            continue;
        }
        let saved = (mean - middle) * *calls as f64 / view.root_ns().max(1.0);
        let this = slow(view, node, (*mean, middle), saved.min(1.0), (path, sums));
        if found.as_ref().is_none_or(|best| best.saves.value < this.saves.value) {
            found = Some(this);
        }
    }
    match found {
        Some(found) => Ok(Verdict::Found(found)),
        None if is_known => Ok(Verdict::Absent),
        None => Err(Verdict::unknown(format!(
            "no callpath has targets with {MIN_CALLS} calls on three named nodes"
        ))),
    }
}

fn slow(
    view: &View<'_>,
    node: &str,
    (mean, middle): (f64, f64),
    saved: f64,
    (path, sums): (u32, &PathSums),
) -> Found {
    let mut evidence = vec![
        Evidence::new(format!("mean time of a handler on {node}"), mean, "ns"),
        Evidence::new("median of the other nodes", middle, "ns"),
    ];
    for (name, value, others) in view.facts.differing(node) {
        evidence.push(Evidence::new(format!("{node}/{name}"), value, ""));
        evidence.push(Evidence::new(format!("{name}, median of the others"), others, ""));
    }
    let is_here = |process: u32| view.process(process).is_some_and(|p| p.node == node);
    let targets = sums.target.processes.iter().map(|p| p.process).filter(|p| is_here(*p));
    let of_path = (saved * view.root_ns() / total_ns(sums).max(1.0)).min(1.0);
    let interval = |value: f64| Estimate { value, low: 0.8 * value, high: (1.5 * value).min(1.0) };
    Found {
        what: format!(
            "handlers on {node} take {:.2} times as long as on the others",
            mean / middle
        ),
        callpath: view.names(path),
        processes: targets.map(|process| view.label(process)).collect(),
        evidence,
        fixes: vec![Fix {
            key: "node".to_owned(),
            now: Some(node.to_owned()),
            value: "another node".to_owned(),
            gain: Some(interval(of_path)),
            model: MOVED,
        }],
        saves: interval(saved),
    }
}
