//! Imbalance: some ranks or nodes have more work than the others, which wait for them.
//!
//! The share of the processors that waits is `1 - mean / maximum` of the work (DeRose, Homer and Johnson, "Detecting
//! application load imbalance on high end massively parallel systems", 2007). Ranks that wait busily, as some MPI libraries
//! do, use as much processor time as the others: their imbalance is not seen.

use std::collections::BTreeMap;

use super::numbers::{is_amount, mean};
use super::rule::Rule;
use super::slow_node;
use super::verdict::{Evidence, Found, Judging, Severity, Verdict};
use super::view::JobView;

/// The share of idle time that stands out: a third of the machine's time, which no reordering of messages explains.
const MIN_SHARE: f64 = 0.3;

/// The least processor time of the busiest rank, in seconds: a rank that only starts others uses less.
const MIN_CPU_SECONDS: f64 = 1.0;

/// The least mean use of the busiest node: idle nodes are another finding.
const MIN_BUSY: f64 = 0.2;

pub(super) static RULE: Rule = Rule {
    name: "imbalance",
    condition: "`1 - mean / maximum` of the ranks' `cpu_seconds`, or of the nodes' `cpu/total/busy_ratio`, is 30 % or more, and no slow node explains it",
    inputs: "reports of two ranks, or a series of `busy_ratio` of two nodes; 2 s of wall time",
    advice: "divide the work more evenly: by cost and not by count, in smaller pieces, or by a queue",
    judge,
};

fn judge(view: &JobView) -> Judging {
    let (of, least, work) = match ranks(view) {
        ranks if ranks.len() > 1 => ("rank", MIN_CPU_SECONDS, ranks),
        _ => ("node", MIN_BUSY, nodes(view)),
    };
    if work.len() < 2 {
        return Err(Verdict::unknown("there are no two ranks or nodes with known work"));
    }
    if of == "rank" {
        view.wall_seconds()?;
    }
    let all: Vec<f64> = work.iter().map(|(_, work)| *work).collect();
    let most = work.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let (Some((name, most)), Some(mean)) = (most, mean(&all)) else {
        return Err(Verdict::unknown("the work of the ranks is not known"));
    };
    let share = 1.0 - mean / most;
    if *most < least || share < MIN_SHARE {
        return Ok(Verdict::Absent);
    }
    if let Verdict::Found(_) = slow_node::RULE.judge(view) {
        return Ok(Verdict::Absent);
    }
    let unit = if of == "rank" { "seconds" } else { "" };
    Ok(Verdict::Found(Found {
        severity: Severity::Warning,
        what: format!("{of} {name} has {:.1} times the work of the average {of}", most / mean),
        evidence: vec![
            Evidence::new("idle share", share, ""),
            Evidence::new("most work", *most, unit),
            Evidence::new("mean work", mean, unit),
            Evidence::new(format!("{of}s"), work.len() as f64, ""),
        ],
    }))
}

fn ranks(view: &JobView) -> Vec<(String, f64)> {
    let ranks = view.ranks().into_iter();
    let known = ranks.filter_map(|rank| Some((rank.rank.to_string(), rank.cpu_seconds?)));
    known.filter(|(_, cpu)| is_amount(*cpu)).collect()
}

/// Returns the mean use of the processors of each node.
fn nodes(view: &JobView) -> Vec<(String, f64)> {
    let of_cpu = view.series_of(&["busy_ratio"]).filter(|series| series.metric.starts_with("cpu/"));
    // A series of the whole node, if there are those of cores too.
    let of_cpu = of_cpu.filter(|series| {
        series.metric == "cpu/busy_ratio" || series.metric == "cpu/total/busy_ratio"
    });
    let means = of_cpu.filter_map(|series| Some((series.node.clone(), series.mean()?)));
    means.collect::<BTreeMap<_, _>>().into_iter().collect()
}
