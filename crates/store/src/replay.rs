//! A workload with the moments of a published one, and the cost of allocations for it.
//!
//! Table 5 of G. Juve et al., "Practical Resource Monitoring for Robust High Throughput Computing",
//! has mean, deviation, skewness and kurtosis of the wall time, processor time and resident memory of
//! 96,501 runs of `rmapper`. The runs themselves are not published; [`workload`] generates as many with
//! these moments:
//!
//! - Times by the power method of A. I. Fleishman, "A method for simulating non-normal distributions",
//!   Psychometrika 43, 1978: `z + c z² + d z³` of a normal `z`. Wall time and processor time use the same
//!   `z`, because they are nearly equal.
//! - Memory as a mixture, because no shape with one peak has a skewness of -1.11 and an excess kurtosis
//!   of 10.96 without values below zero: a few tasks that end before they have loaded their data, the
//!   bulk, and a few in a long tail above. The share of the early ends and the reach of the tail are
//!   fitted.
//!
//! Newton's method on the sample itself finds the two free parameters of each. Then the sample is shifted
//! and scaled, so that mean and deviation are exact, and [`Task`]s come in a random order. Memory is
//! independent of time, because the paper does not publish their correlation. The kurtosis is taken as
//! excess kurtosis: that of the processor time is negative, which a plain kurtosis cannot be. (The text
//! of the paper mentions a negative kurtosis of memory, where its table has a negative skewness; this
//! module follows the table.)

use skopos_model::SplitMix64;

use crate::estimate::{Record, judge};
use crate::stats::Moments;

/// Number of runs in Table 5.
pub const TASKS: usize = 96_501;

/// Mean, deviation, skewness and excess kurtosis of Table 5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Mean, in seconds or bytes.
    pub mean: f64,
    /// Standard deviation, in the same unit.
    pub deviation: f64,
    /// See [`Moments::skewness`].
    pub skewness: f64,
    /// See [`Moments::kurtosis`].
    pub kurtosis: f64,
}

/// Wall time in seconds.
pub const WALL: Shape = Shape { mean: 410.55, deviation: 79.16, skewness: 0.42, kurtosis: 0.26 };
/// Processor time in seconds.
pub const CPU: Shape = Shape { mean: 406.17, deviation: 73.86, skewness: 0.17, kurtosis: -0.10 };
/// Resident memory in bytes; the paper's MB are taken as 10^6.
pub const MEMORY: Shape =
    Shape { mean: 682.62e6, deviation: 208.83e6, skewness: -1.11, kurtosis: 10.96 };

/// A task of the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// Wall time.
    pub wall_seconds: f64,
    /// Processor time.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub memory_bytes: f64,
}

/// Share of the tasks in the tail.
const TAIL: f64 = 0.002;

/// Position of the tasks that end early, relative to the bulk at 0, and deviation of the bulk, before
/// scaling. Both are free within limits; with these numbers no value is below zero.
const EARLY: f64 = -4.0;
const BULK: f64 = 0.5;

/// Generates the workload. The same seed gives the same workload.
pub fn workload(seed: u64) -> Vec<Task> {
    let mut random = SplitMix64::new(seed);
    let normal: Vec<f64> = (0..TASKS).map(|_| box_muller(&mut random)).collect();
    let power = |[c, d]: [f64; 2]| normal.iter().map(|z| z + c * z * z + d * z * z * z).collect();
    let wall = fitted(WALL, [0.05, 0.01], power);
    let cpu = fitted(CPU, [0.02, -0.01], power);
    let bulk: Vec<f64> =
        (0..TASKS).map(|_| BULK * box_muller(&mut random).clamp(-3.0, 3.0)).collect();
    let spread: Vec<f64> = (0..TASKS).map(|_| random.unit()).collect();
    let memory =
        fitted(MEMORY, [0.05, 5.0], |[early, reach]| mixture(early, reach, &bulk, &spread));
    let mut order: Vec<usize> = (0..TASKS).collect();
    for at in (1..TASKS).rev() {
        order.swap(at, random.below(at + 1));
    }
    let tasks = wall.iter().zip(&cpu).zip(order);
    tasks
        .map(|((wall, cpu), at)| Task {
            wall_seconds: *wall,
            cpu_seconds: *cpu,
            memory_bytes: memory[at],
        })
        .collect()
}

/// Returns values of which the share `early` ends early, and the share [`TAIL`] is around `reach`.
fn mixture(early: f64, reach: f64, bulk: &[f64], spread: &[f64]) -> Vec<f64> {
    let n = bulk.len() as f64;
    let (few, tail) = (early * n, TAIL * n);
    let value = |(at, (bulk, spread)): (usize, (&f64, &f64))| {
        // The task on the edge is partly early, so that the moments depend on `early` without steps.
        let share = (few - at as f64).clamp(0.0, 1.0);
        let others = if at as f64 >= n - tail { reach * (0.75 + 0.5 * spread) } else { *bulk };
        share * (EARLY + 0.2 * spread) + (1.0 - share) * others
    };
    bulk.iter().zip(spread).enumerate().map(value).collect()
}

/// Error of skewness and kurtosis at which Newton's method stops.
const TOLERANCE: f64 = 1e-6;
/// The most steps: more than any of the shapes needs.
const MAX_STEPS: usize = 60;

/// Returns the sample with the parameters that give it the shape, shifted and scaled to it.
fn fitted(shape: Shape, start: [f64; 2], sample: impl Fn([f64; 2]) -> Vec<f64>) -> Vec<f64> {
    let off = |free| {
        let moments = moments(sample(free).into_iter());
        let skewness = moments.skewness().unwrap_or(0.0) - shape.skewness;
        [skewness, moments.kurtosis().unwrap_or(0.0) - shape.kurtosis]
    };
    let size = |[a, b]: [f64; 2]| a.abs().max(b.abs());
    let mut free = start;
    let mut now = off(free);
    for _ in 0..MAX_STEPS {
        if size(now) < TOLERANCE {
            break;
        }
        let [s, t] = [0, 1].map(|n| {
            let mut moved = free;
            let step = 1e-4 * free[n].abs().max(1e-3);
            moved[n] += step;
            off(moved).iter().zip(now).map(|(m, n)| (m - n) / step).collect::<Vec<f64>>()
        });
        let determinant = s[0] * t[1] - t[0] * s[1];
        let full = [
            (t[1] * now[0] - t[0] * now[1]) / determinant,
            (s[0] * now[1] - s[1] * now[0]) / determinant,
        ];
        // Halves the step while it increases the error.
        let mut share = 1.0;
        loop {
            let next = [free[0] - share * full[0], free[1] - share * full[1]];
            let there = off(next);
            if size(there) < size(now) || share < 1e-3 {
                (free, now) = (next, there);
                break;
            }
            share /= 2.0;
        }
    }
    let values = sample(free);
    let moments = moments(values.iter().copied());
    let scale = shape.deviation / moments.deviation().unwrap_or(1.0);
    let mean = moments.mean().unwrap_or(0.0);
    values.into_iter().map(|v| shape.mean + scale * (v - mean)).collect()
}

/// Returns the moments of many values.
pub fn moments(values: impl Iterator<Item = f64>) -> Moments {
    let mut moments = Moments::default();
    values.for_each(|value| moments.add(value));
    moments
}

/// The cost of a first allocation and a maximum for tasks whose usage was not known in advance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The first allocation.
    pub allocation: f64,
    /// Share of the held amount that was not used.
    pub waste_share: f64,
    /// Share of the tasks that ran twice.
    pub retried: f64,
    /// Number of tasks for which the maximum was too little as well. Their allocation is doubled until it
    /// is enough, and the waste includes all attempts.
    pub beyond: u64,
    /// Mean amount that is held for a task, in the resource's unit times seconds.
    pub held: f64,
}

/// Replays tasks under the two-step policy.
pub fn replay(tasks: &[Record], allocation: f64, maximum: f64) -> Cost {
    let n = tasks.len().max(1) as f64;
    let two_steps = judge(tasks, allocation, maximum);
    let mut wasted = two_steps.waste * n;
    let mut beyond = 0;
    let top = allocation.max(maximum);
    for task in tasks.iter().filter(|task| task.value > top) {
        beyond += 1;
        // `judge` counts such a task as if the maximum were enough for it.
        let mut given = top;
        while given < task.value {
            wasted += if given == allocation { 0.0 } else { given * task.seconds };
            given *= 2.0;
        }
        wasted += (given - task.value) * task.seconds;
    }
    let used: f64 = tasks.iter().map(|t| t.value * t.seconds).sum();
    Cost {
        allocation,
        waste_share: wasted / (wasted + used),
        retried: two_steps.risk,
        beyond,
        held: (wasted + used) / n,
    }
}

/// Returns a number from the normal distribution, by the transform of Box and Muller. The published
/// workload depends on each bit of it.
fn box_muller(random: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}
