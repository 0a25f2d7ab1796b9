//! `skopos-bench intervals`: interval policies replayed under a virtual clock, on the paper's two
//! workloads (Apollo, section 4.3.1, Figure 8) and on recorded traces.
//!
//! The results do not depend on the machine: the same traces give the same numbers everywhere.

mod front;

use std::path::Path;
use std::time::Duration;

use skopos_score::interval::{LastValue, PolicyConfig, PolicyKind, Replayed, Truth, hacc, replay};
use skopos_score::trace::Trace;

use super::delphi::{DEPTH, TRACES, read_traces};
use super::machine::Machine;
use super::report::{Better, Figure, Goal, Report, Row};
use crate::plan::Plan;
use front::{Point, beaten, behind};
use skopos_term::Failure;

/// The base interval: a tick, and the shortest time between two polls.
const BASE: Duration = Duration::from_secs(1);

/// The length of the paper's replays.
const LENGTH: Duration = Duration::from_secs(1800);

/// Seeds of the irregular workload. The constants of `hazard` were chosen on 1 to 40.
const SEEDS: std::ops::RangeInclusive<u64> = 101..=120;

/// The greatest deviation of a recorded value that counts as matched, as a part of the trace's
/// standard deviation: a placement does not depend on the last byte.
const TOLERANCE_RATIO: f64 = 0.05;

/// The longest interval of AIMD in the paper's public implementation, and of ours here.
const LONGEST_SECONDS: f64 = 25.0;

/// Accuracies for which our policy is configured, besides its default, to draw its front.
const FRONT: [f64; 10] = [0.1, 0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.999];

/// The fewest ticks of a trace.
const SHORTEST: usize = 120;

/// A workload with one or more runs, of which the mean counts.
struct Case {
    name: String,
    truths: Vec<Truth>,
    /// The greatest deviation that counts as matched, in the unit of the values.
    tolerance: f64,
    goals: Option<(Goal, Goal)>,
}

/// Runs every case, or one recorded trace.
pub(crate) fn run(plan: &Plan, trace: Option<&Path>) -> Result<Report, Failure> {
    let mut report = Report::new("intervals", Machine::this());
    report.note(format!(
        "replays of {} s at a base of 1 s; cost: polls ÷ ticks; accuracy: share of ticks at which \
         the last poll's value is the value then, in recorded traces within {TOLERANCE_RATIO} \
         standard deviations",
        LENGTH.as_secs()
    ));
    report.note(format!(
        "aimd as in the paper: + 1 s, x 0.75, to {LONGEST_SECONDS} s, with `<=` for its `<`; ours \
         with the same bounds, asked for an accuracy of 0.95; its front: {FRONT:?}"
    ));
    let cases = match trace {
        Some(path) => vec![named(path)?],
        None => cases()?,
    };
    let mut behind_all = 0;
    for case in &cases {
        plan.say(&format!("{} …", case.name));
        behind_all += add(case, &mut report);
    }
    if trace.is_none() {
        let points = cases.len() * AIMD.len();
        report.add([Row::new(
            "all cases",
            format!("aimd's points on or behind our front, of {points}"),
            "points",
            behind_all as f64,
            Better::Neither,
        )
        .goal(Goal::AtLeast(points as f64))]);
    }
    Ok(report)
}

fn cases() -> Result<Vec<Case>, Failure> {
    let goals = |cost| Some((Goal::AtMost(cost), Goal::AtLeast(0.95)));
    let mut cases = vec![
        Case {
            name: "HACC regular".to_owned(),
            truths: vec![hacc::regular(LENGTH)],
            tolerance: 0.0,
            goals: goals(0.20),
        },
        Case {
            name: "HACC irregular".to_owned(),
            truths: SEEDS.map(|seed| hacc::irregular(LENGTH, seed)).collect(),
            tolerance: 0.0,
            goals: goals(0.35),
        },
    ];
    let mut recorded = Vec::new();
    read_traces(Path::new(TRACES), DEPTH, &mut recorded)?;
    recorded.sort_by(|a, b| a.name.cmp(&b.name));
    cases.extend(recorded.iter().filter_map(|traced| of_trace(&traced.name, &traced.trace)));
    Ok(cases)
}

/// The trace that a user named.
fn named(path: &Path) -> Result<Case, Failure> {
    let failed = |e: &dyn std::error::Error| {
        Failure::new(format!("cannot read {}", path.display()))
            .because(e)
            .hint("`skopos record` writes such traces")
    };
    let text = std::fs::read_to_string(path).map_err(|e| failed(&e))?;
    let trace = Trace::parse(&text).map_err(|e| failed(&e))?;
    of_trace(&path.display().to_string(), &trace).ok_or_else(|| {
        Failure::new(format!(
            "{}: fewer than {SHORTEST} seconds, or nothing changes in it",
            path.display()
        ))
    })
}

/// The case of a trace; `None` if the trace is too short or does not change.
fn of_trace(name: &str, trace: &Trace) -> Option<Case> {
    let truth = Truth::from_trace(trace, BASE);
    let deviation = truth.deviation();
    (truth.values.len() >= SHORTEST && deviation > 0.0).then(|| Case {
        name: name.to_owned(),
        truths: vec![truth],
        tolerance: TOLERANCE_RATIO * deviation,
        goals: None,
    })
}

/// The policies of the paper.
const AIMD: [&str; 2] = ["aimd", "aimd-window"];

/// The policies that a user would use instead.
fn peers() -> Vec<(&'static str, PolicyConfig)> {
    let fixed = |name, seconds| {
        let config = PolicyConfig::new(PolicyKind::Fixed);
        (name, PolicyConfig { min_seconds: Some(seconds), ..config })
    };
    let aimd =
        |kind| PolicyConfig { max_seconds: Some(LONGEST_SECONDS), ..PolicyConfig::new(kind) };
    vec![
        fixed("fixed 2 s", 2.0),
        fixed("fixed 5 s", 5.0),
        fixed("fixed 10 s", 10.0),
        (AIMD[0], aimd(PolicyKind::Aimd)),
        (AIMD[1], aimd(PolicyKind::AimdWindow)),
    ]
}

fn ours(accuracy: f64) -> PolicyConfig {
    PolicyConfig {
        max_seconds: Some(LONGEST_SECONDS),
        accuracy: Some(accuracy),
        ..PolicyConfig::new(PolicyKind::Hazard)
    }
}

/// The mean over the case's runs.
fn measure(case: &Case, config: &PolicyConfig) -> Replayed {
    let one = |truth: &Truth| {
        let Ok(mut policy) = config.build() else { unreachable!("{config:?} is a policy") };
        replay(truth, case.tolerance, &mut *policy, &mut LastValue::default())
    };
    let runs: Vec<Replayed> = case.truths.iter().map(one).collect();
    let mean = |of: fn(&Replayed) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    Replayed {
        ticks: runs.iter().map(|run| run.ticks).sum(),
        polls: runs.iter().map(|run| run.polls).sum(),
        cost: mean(|run| run.cost),
        accuracy: mean(|run| run.accuracy),
        accuracy_within: mean(|run| run.accuracy_within),
        mean_error: mean(|run| run.mean_error),
    }
}

/// Adds the rows of a case. Returns the number of AIMD's points on or behind our front.
fn add(case: &Case, report: &mut Report) -> usize {
    let point =
        |replayed: &Replayed| Point { cost: replayed.cost, accuracy: replayed.accuracy_within };
    let theirs: Vec<(&'static str, Replayed)> =
        peers().iter().map(|(name, config)| (*name, measure(case, config))).collect();
    let mine = measure(case, &ours(0.95));
    let front: Vec<Point> =
        FRONT.iter().map(|accuracy| point(&measure(case, &ours(*accuracy)))).collect();
    let row = |metric: &str, unit, better, of: &dyn Fn(&Replayed) -> f64| {
        let row = Row::new(case.name.as_str(), metric, unit, of(&mine), better);
        theirs.iter().fold(row, |row, (name, replayed)| row.peer(name, Figure::Known(of(replayed))))
    };
    let costs: Vec<f64> = front.iter().map(|point| point.cost).collect();
    let accuracies: Vec<f64> = front.iter().map(|point| point.accuracy).collect();
    let mut cost = row("cost", "ratio", Better::Neither, &|r| r.cost).rounds("front", &costs);
    let mut accuracy = row("accuracy", "ratio", Better::Neither, &|r| r.accuracy_within)
        .rounds("front", &accuracies);
    if let Some((most, least)) = case.goals {
        cost = cost.goal(most);
        accuracy = accuracy.goal(least);
    }
    report.add([cost, accuracy]);
    if case.tolerance > 0.0 {
        report.add([row("accuracy to the last digit", "ratio", Better::Neither, &|r| r.accuracy)]);
    }
    report.add([row("mean error", "standard deviations", Better::Neither, &|r| r.mean_error)]);
    let points: Vec<Point> = theirs.iter().map(|(_, replayed)| point(replayed)).collect();
    let better = points.iter().filter(|theirs| beaten(&point(&mine), theirs)).count();
    report.add([Row::new(
        case.name.as_str(),
        "peers both cheaper and more accurate",
        "policies",
        better as f64,
        Better::Neither,
    )
    .goal(Goal::AtMost(0.0))]);
    let is_aimd = |name: &str| AIMD.contains(&name);
    theirs
        .iter()
        .filter(|(name, replayed)| is_aimd(name) && behind(&point(replayed), &front))
        .count()
}
