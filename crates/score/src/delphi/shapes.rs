//! The eight shapes of time series, as training data.
//!
//! No shape needs a sine, a logarithm or an exponential from a library, whose last bit differs
//! between libraries: a sine is a rotating point, an exponential a product.

use super::model::SHAPES;
use skopos_model::SplitMix64;

/// Samples of one synthetic series: long enough for a slow sine to turn.
pub(crate) const SERIES: usize = 40;

/// The shape of a series. A model that is trained on a shape also knows its mirror image, so each
/// shape has one direction only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Rises less and less: a cache that fills.
    Concave,
    /// Rises more and more: a queue out of control.
    Convex,
    /// Swings with a period of 6 to 120 samples.
    Sine,
    /// Stays constant, apart from measurement noise.
    Constant,
    /// Rises evenly: a counter under a steady load.
    Rising,
    /// Falls by uneven amounts: free space under many writers.
    Falling,
    /// Random: independent values, a walk, or a walk that is pulled back.
    Noise,
    /// Stays constant, then jumps or begins to move.
    Break,
}

impl Shape {
    /// All shapes.
    pub(crate) const ALL: [Self; SHAPES] = [
        Self::Concave,
        Self::Convex,
        Self::Sine,
        Self::Constant,
        Self::Rising,
        Self::Falling,
        Self::Noise,
        Self::Break,
    ];

    /// Returns a series of this shape.
    pub(crate) fn series(self, random: &mut SplitMix64) -> [f64; SERIES] {
        let mut series = [0.0; SERIES];
        match self {
            Self::Concave => curve(&mut series, random),
            Self::Convex => {
                curve(&mut series, random);
                // Reversed and upside down, a curve that grew less and less grows more and more.
                series.reverse();
                series.iter_mut().for_each(|x| *x = -*x);
            }
            Self::Sine => sine(&mut series, random),
            Self::Constant => {}
            Self::Rising => sum(&mut series, |_| 1.0),
            Self::Falling => {
                // The smaller of two uniform numbers: many small amounts and few large ones.
                sum(&mut series, |_| -random.unit().min(random.unit()));
            }
            Self::Noise => chance(&mut series, random),
            Self::Break => jump(&mut series, random),
        }
        let levels: &[f64] = match self {
            Self::Noise => &[0.0],
            Self::Constant => &[1.0],
            _ => &[0.0, 0.01, 0.05, 0.2],
        };
        add_noise(&mut series, levels[random.below(levels.len())], random);
        series
    }
}

/// Sets each value to the one before plus `step` of its index.
fn sum(series: &mut [f64], mut step: impl FnMut(usize) -> f64) {
    let mut value = 0.0;
    for (i, x) in series.iter_mut().enumerate() {
        value += step(i);
        *x = value;
    }
}

/// Saturates like an exponential, or slows down like a logarithm (`a ln x + b` in the paper).
fn curve(series: &mut [f64], random: &mut SplitMix64) {
    if random.unit() < 0.5 {
        let keeps = random.between(0.7, 0.98);
        let mut step = 1.0;
        sum(series, |_| {
            step *= keeps;
            step
        });
    } else {
        let start = random.between(1.0, 20.0);
        sum(series, |i| 1.0 / (start + i as f64));
    }
}

/// A point on a circle that turns by the same angle at each sample, from a random start.
fn sine(series: &mut [f64], random: &mut SplitMix64) {
    // The tangent of half the angle: periods of 120 to 6 samples, with short ones more rarely.
    let half = 0.026 + 0.55 * random.unit() * random.unit();
    let (cos, sin) = ((1.0 - half * half) / (1.0 + half * half), 2.0 * half / (1.0 + half * half));
    let (mut x, mut y) = (random.between(-1.0, 1.0), random.between(-1.0, 1.0));
    for value in series {
        (x, y) = (x * cos - y * sin, x * sin + y * cos);
        *value = x;
    }
}

fn chance(series: &mut [f64], random: &mut SplitMix64) {
    let pull = match random.below(10) {
        0..4 => 1.0,
        4..7 => 0.0,
        _ => random.between(0.05, 0.7),
    };
    let mut value = 0.0;
    for x in series {
        value = value * (1.0 - pull) + random.normal();
        *x = value;
    }
}

fn jump(series: &mut [f64], random: &mut SplitMix64) {
    let at = 4 + random.below(SERIES - 6);
    let height = 3.0 * random.normal();
    let slope = if random.unit() < 0.5 { random.normal() } else { 0.0 };
    for (i, x) in series.iter_mut().enumerate().skip(at) {
        *x = height + slope * (i - at) as f64;
    }
}

/// Adds noise of `level` times the mean step of the series, or of `level` if the series is
/// constant.
fn add_noise(series: &mut [f64], level: f64, random: &mut SplitMix64) {
    if level == 0.0 {
        return;
    }
    let steps = series.windows(2).map(|two| (two[1] - two[0]).abs()).sum::<f64>();
    let mean = steps / (series.len() - 1) as f64;
    let size = if mean > 0.0 { mean * level } else { level };
    for x in series {
        *x += size * random.normal();
    }
}
