//! Short ways to make inputs.

use std::time::Duration;

use skopos_model::Timestamp;
use skopos_steer::rank::{Inputs, Method, Metric, Profile, Ranker, Ranking, Reading, Subject};

/// A second of the test's time.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A time, in seconds from an arbitrary start.
pub(crate) fn at(seconds: f64) -> Timestamp {
    Timestamp::from_nanos(1_700_000_000_000_000_000 + (seconds * 1e9) as i64)
}

/// A fresh value of ten samples.
pub(crate) fn reading(value: f64, seconds: f64) -> Reading {
    Reading { value, at: at(seconds), samples: 10 }
}

/// A profile of a latency, a network latency and a host metric.
pub(crate) fn profile(method: Method) -> Profile {
    let metric = |name: &str, subject| Metric { subject, ..Metric::new(name, 1e-4) };
    let metrics = vec![
        metric("read_seconds", Subject::Latency),
        metric("rtt_seconds", Subject::Network),
        metric("queue", Subject::Host),
    ];
    Profile { hysteresis: 0.0, ..Profile::new("test", method, metrics) }
}

/// Inputs with one row for each candidate, all of the time `seconds`. NaN stands for a missing value.
pub(crate) fn inputs(rows: &[[f64; 3]], seconds: f64) -> Inputs {
    let mut inputs = Inputs::new(rows.len(), 3);
    for (candidate, row) in rows.iter().enumerate() {
        for (metric, value) in row.iter().enumerate().filter(|(_, v)| !v.is_nan()) {
            inputs.set(candidate, metric, reading(*value, seconds));
        }
    }
    inputs
}

/// Ranks rows of values at their own time.
pub(crate) fn rank(
    ranker: &mut Ranker,
    names: &[&str],
    rows: &[[f64; 3]],
    seconds: f64,
) -> Ranking {
    ranker.rank(at(seconds), names, &inputs(rows, seconds)).expect("a ranking")
}

/// The candidates in order, by name.
pub(crate) fn order<'a>(ranking: &Ranking, names: &[&'a str]) -> Vec<&'a str> {
    ranking.entries().iter().map(|e| names[e.candidate]).collect()
}

/// The weight of the candidate with index `candidate`.
pub(crate) fn weight(ranking: &Ranking, candidate: usize) -> f64 {
    ranking.entries().iter().find(|e| e.candidate == candidate).map_or(f64::NAN, |e| e.weight)
}
