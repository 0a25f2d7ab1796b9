//! The time of a ranking of a thousand candidates.

use std::time::{Duration, Instant};

use skopos_model::{SplitMix64, Timestamp};
use skopos_steer::rank::{Inputs, Method, Metric, Profile, Ranker, Reading, Subject};
use skopos_term::Failure;

use crate::plan::Plan;
use crate::report::{Better, Goal, Row};
use crate::stats::Latencies;

const CANDIDATES: usize = 1000;
const METRICS: usize = 10;

/// Rankings of each method; a short run has a tenth of them.
const RANKINGS: usize = 1000;

/// Goal for the median in milliseconds.
const GOAL: f64 = 1.0;

const METHODS: [(&str, Method); 5] = [
    ("latency only", Method::Latency),
    ("equal weights", Method::Equal),
    ("given weights", Method::Given),
    ("learned weights", Method::Learned),
    ("Pareto front", Method::Pareto),
];

/// Measures each method.
pub(super) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let rankings = if plan.is_short { RANKINGS / 10 } else { RANKINGS };
    let mut rows = Vec::new();
    for (name, method) in METHODS {
        let times = rank(method, rankings)
            .map_err(|e| Failure::new("a ranking of the benchmark").because(&e))?;
        let row = |metric, percent| {
            let millis = times.percentile(percent) / 1e6;
            let case = format!("rank {CANDIDATES} again, {name}");
            Row::new(case, metric, "ms", millis, Better::Lower)
        };
        rows.push(row("p50", 50.0).goal(Goal::AtMost(GOAL)));
        rows.push(row("p99", 99.0));
    }
    Ok(rows)
}

fn rank(method: Method, rankings: usize) -> Result<Latencies, skopos_steer::Error> {
    let metric = |at| {
        let subject = if at == 0 { Subject::Latency } else { Subject::Host };
        Metric { subject, ..Metric::new(&format!("m{at}"), 0.01) }
    };
    let profile = Profile::new("cost", method, (0..METRICS).map(metric).collect());
    let mut ranker = Ranker::new(profile, 1)?;
    let names: Vec<String> = (0..CANDIDATES).map(|n| format!("n{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut inputs = Inputs::new(CANDIDATES, METRICS);
    let (mut random, mut times) = (SplitMix64::new(2), Latencies::new());
    for round in 0..rankings {
        let now = Timestamp::from_nanos(0).saturating_add(Duration::from_secs(round as u64));
        for candidate in 0..CANDIDATES {
            for metric in 0..METRICS {
                let value = random.between(0.1, 10.0);
                inputs.set(candidate, metric, Reading { value, at: now, samples: 10 });
            }
        }
        let started = Instant::now();
        let ranking = ranker.rank(now, &names, &inputs)?;
        let spent = started.elapsed();
        std::hint::black_box(ranking.entries().len());
        times.record(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(times)
}
