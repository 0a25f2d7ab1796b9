//! Made-up series, for which the best prediction is known.

use std::time::Duration;

use skopos_model::SplitMix64;
use skopos_score::trace::Trace;

/// Number of samples of each.
const LEN: u32 = 1000;

/// Seed of the random series; `bench/lstm/train.py` makes the same series.
const SEED: u64 = 2021;

/// A random walk, a sine of 60 samples, a ramp, a constant and steps: one sample a second.
pub(super) fn traces() -> Vec<Trace> {
    let mut random = SplitMix64::new(SEED);
    let (mut at, mut level) = (0.0, 0.0);
    let mut walk = Vec::new();
    for _ in 0..LEN {
        at += random.normal();
        walk.push(at);
    }
    let mut steps = Vec::new();
    for i in 0..LEN {
        if i % 40 == 0 {
            level = 100.0 * random.normal();
        }
        steps.push(level);
    }
    let turn = std::f64::consts::TAU / 60.0;
    let each = |value: &dyn Fn(f64) -> f64| (0..LEN).map(|i| value(f64::from(i))).collect();
    vec![
        named("random walk", walk),
        named("sine(60)", each(&|i| 50.0 + 50.0 * (turn * i).sin())),
        named("ramp", each(&|i| 10.0 * i)),
        named("constant", each(&|_| 42.0)),
        named("steps", steps),
    ]
}

fn named(name: &str, values: Vec<f64>) -> Trace {
    let times = (0..).map(Duration::from_secs);
    Trace { topic: name.to_owned(), samples: times.zip(values).collect(), ..Trace::default() }
}
