//! One slow node: its ranks take longer for the same work, while those of all other nodes agree.

use std::collections::BTreeMap;

use super::numbers::{is_amount, mean, spread};
use super::rule::Rule;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

/// The least number of nodes. Of two, either may be the odd one.
const MIN_NODES: usize = 3;

/// The factor by which a slow node takes longer. Nodes of one kind differ by some percent.
const MIN_FACTOR: f64 = 1.25;

/// The least distance from the other nodes, in their robust standard deviations: a node that differs less is within
/// their spread.
const MIN_DISTANCE: f64 = 6.0;

/// The least spread of the others, as a share of their median: a few nodes may agree by chance.
const LEAST_SPREAD: f64 = 0.03;

pub(super) static RULE: Rule = Rule {
    name: "slow_node",
    condition: "the ranks of one of at least three nodes take 1.25 times the median of the other nodes or longer, at a distance of 6 robust standard deviations",
    inputs: "reports of ranks on three nodes, with `wall_seconds` or `cpu_seconds`; 2 s of wall time",
    advice: "leave this node out next time, and tell its administrators: compare its clock rate, temperature, memory errors and other tasks with the other nodes",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let ranks = view.ranks();
    let mut seen = false;
    for what in ["wall_seconds", "cpu_seconds"] {
        let mut nodes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for rank in &ranks {
            let value = if what == "wall_seconds" { rank.wall_seconds } else { rank.cpu_seconds };
            if let Some(value) = value.filter(|value| is_amount(*value)) {
                nodes.entry(&rank.node).or_default().push(value);
            }
        }
        if nodes.len() < MIN_NODES {
            continue;
        }
        view.wall_seconds()?;
        seen = true;
        let means: Vec<(&str, f64)> =
            nodes.iter().filter_map(|(node, all)| Some((*node, mean(all)?))).collect();
        if let Some(found) = slowest(what, &means) {
            return Ok(Verdict::Found(found));
        }
    }
    match seen {
        true => Ok(Verdict::Absent),
        false => Err(Verdict::unknown("there are no reports of ranks on three nodes")),
    }
}

fn slowest(what: &str, nodes: &[(&str, f64)]) -> Option<Found> {
    let (node, time) = nodes.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others: Vec<f64> =
        nodes.iter().filter(|(other, _)| other != node).map(|(_, time)| *time).collect();
    let (middle, sigma) = spread(&others)?;
    let distance = (time - middle) / sigma.max(LEAST_SPREAD * middle);
    if middle <= 0.0 || *time < MIN_FACTOR * middle || distance < MIN_DISTANCE {
        return None;
    }
    Some(Found {
        severity: Severity::Warning,
        what: format!("the ranks on {node} take {:.2} times as long as the others", time / middle),
        evidence: vec![
            Evidence::new(format!("{what} on {node}"), *time, "seconds"),
            Evidence::new(format!("median {what} of the others"), middle, "seconds"),
            Evidence::new("distance in standard deviations", distance, ""),
            Evidence::new("nodes", nodes.len() as f64, ""),
        ],
    })
}
