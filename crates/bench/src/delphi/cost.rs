//! The cost of a prediction, of a sample and of training.

use std::hint::black_box;
use std::time::{Duration, Instant};

use skopos_model::{Kind, Timestamp};
use skopos_score::delphi::{DEFAULT_SEED, Method, Predictor, predict, train};
use skopos_score::trace::Trace;

use super::lstm::Lstm;
use crate::plan::Plan;
use crate::report::{Better, Goal, Report, Row};
use crate::stats::median;
use skopos_score::trace::instant;

/// Calls in one round, which takes a few milliseconds for the fastest.
const CALLS: u32 = 200_000;

/// Number of samples that a reader replays: a ring of the default size.
const RING: usize = 128;

/// The mean time of a call in nanoseconds, of each round.
fn rounds(plan: &Plan, calls: u32, mut call: impl FnMut(u32)) -> Vec<f64> {
    let mut round = || {
        let started = Instant::now();
        (0..calls).for_each(&mut call);
        started.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    // The first round warms up.
    round();
    (0..plan.rounds.max(1)).map(|_| round()).collect()
}

/// Measures on `trace`, on which the model must be shown: that is the most expensive case.
pub(super) fn measure(plan: &Plan, trace: &Trace, lstm: &Lstm, report: &mut Report) {
    let samples: Vec<(Timestamp, f64)> =
        trace.samples.iter().map(|(t, v)| (instant(*t), *v)).collect();
    let mut predictor = Predictor::new();
    samples.iter().for_each(|(time, value)| {
        predictor.observe(*time, *value);
    });
    let last = samples.last().map_or(Timestamp::default(), |(time, _)| *time);
    debug_assert_eq!(predictor.method(), Method::Delphi);
    let now = rounds(plan, CALLS, |i| {
        let at = last.saturating_add(Duration::from_micros(u64::from(i % 1000)));
        black_box(predictor.now(black_box(at)));
    });
    let observe = rounds(plan, CALLS, |i| {
        let (time, value) = samples[i as usize % samples.len()];
        let lap = u64::from(i) / samples.len() as u64 * samples.len() as u64;
        black_box(predictor.observe(time.saturating_add(Duration::from_secs(lap)), value));
        if i + 1 == CALLS {
            // The next round begins at time zero.
            predictor = Predictor::new();
        }
    });
    let ring = &samples[samples.len().saturating_sub(RING)..];
    let replay = rounds(plan, CALLS / 400, |_| {
        black_box(predict(Kind::Gauge, black_box(ring), last, last));
    });
    let row = |metric: &str, values: &[f64]| {
        Row::new("cost", metric, "ns", median(values), Better::Lower).rounds("skopos", values)
    };
    report.add([
        row("a prediction, now()", &now)
            .peer("lstm", lstm.median(|r| r.inference_ns))
            .goal(Goal::AtMost(100.0)),
        row("a sample, observe()", &observe),
        row("a reader's prediction from a ring of 128", &replay),
        Row::new(
            "cost",
            "state of a vertex",
            "bytes",
            size_of::<Predictor>() as f64,
            Better::Lower,
        ),
    ]);
    let seconds: Vec<f64> = (0..plan.rounds.max(1))
        .map(|_| {
            let started = Instant::now();
            black_box(train(DEFAULT_SEED));
            started.elapsed().as_secs_f64()
        })
        .collect();
    report.add([Row::new("cost", "training", "s", median(&seconds), Better::Lower)
        .rounds("skopos", &seconds)
        .peer("lstm", lstm.median(|r| r.train_seconds))
        .goal(Goal::AtMost(10.0))]);
}
