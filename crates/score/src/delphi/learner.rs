//! One more expert, which begins with nothing and learns what this vertex does: four weights for
//! the four differences, by recursive least squares that forgets (Haykin, *Adaptive Filter Theory*,
//! chapter 10). A job that reads in turns of three seconds, or a device whose busy seconds come in
//! pairs, has no shape that a general model could know, and the same weights every time.

use super::head::MEMORY;
use super::window::DIFFERENCES;

/// Entries of a symmetric matrix on and above its diagonal.
const UPPER: usize = DIFFERENCES * (DIFFERENCES + 1) / 2;

/// How unsure it is of each weight at first. With one, weights move from zero within a few samples.
const UNSURE: f32 = 1.0;

/// Where nothing was learnt about a weight for long, forgetting would make it ever more unsure, and
/// in the end any noise would move it. So forgetting pauses while it is as unsure as this.
const MOST_UNSURE: f32 = 100.0;

/// A next difference beyond so many mean differences is learnt from as if it were so many.
const LARGEST: f32 = 5.0;

/// The weights, and how unsure of them it is.
#[derive(Clone, Debug)]
pub(crate) struct Learner {
    weights: [f32; DIFFERENCES],
    covariance: [f32; UPPER],
}

impl Learner {
    pub(crate) fn new() -> Self {
        let mut covariance = [0.0; UPPER];
        (0..DIFFERENCES).for_each(|i| covariance[at(i, i)] = UNSURE);
        Self { weights: [0.0; DIFFERENCES], covariance }
    }

    /// The next difference after these.
    #[inline]
    pub(crate) fn forecast(&self, u: &[f32; DIFFERENCES]) -> f32 {
        self.weights.iter().zip(u).map(|(weight, u)| weight * u).sum()
    }

    /// After these came `next`.
    pub(crate) fn observe(&mut self, u: &[f32; DIFFERENCES], next: f32) {
        let mut seen = [0.0; DIFFERENCES];
        for (i, seen) in seen.iter_mut().enumerate() {
            *seen = (0..DIFFERENCES).map(|j| self.covariance[at(i, j)] * u[j]).sum();
        }
        let unsure = (0..DIFFERENCES).map(|i| self.covariance[at(i, i)]).fold(0.0, f32::max);
        let keep = if unsure < MOST_UNSURE { MEMORY } else { 1.0 };
        let certainty = keep + seen.iter().zip(u).map(|(seen, u)| seen * u).sum::<f32>();
        let error = next.clamp(-LARGEST, LARGEST) - self.forecast(u);
        // Rounding may make it negative, which no covariance is: then this sample teaches nothing.
        if !(certainty >= keep && error.is_finite()) {
            *self = Self { weights: self.weights, ..Self::new() };
            return;
        }
        for i in 0..DIFFERENCES {
            self.weights[i] += seen[i] / certainty * error;
            for j in i..DIFFERENCES {
                let entry = &mut self.covariance[at(i, j)];
                *entry = (*entry - seen[i] * seen[j] / certainty) / keep;
            }
        }
    }
}

/// Where row `i` and column `j` lie.
const fn at(i: usize, j: usize) -> usize {
    let (i, j) = if i < j { (i, j) } else { (j, i) };
    i * DIFFERENCES - i * (i + 1) / 2 + j
}

#[cfg(test)]
mod tests {
    use super::*;
    use skopos_model::SplitMix64;

    #[test]
    fn it_learns_weights_and_forgets_them() {
        let mut random = SplitMix64::new(4);
        let mut learner = Learner::new();
        for weights in [[0.5, -1.0, 0.25, 0.75], [-0.5, 0.0, 0.0, 0.1]] {
            for _ in 0..1500 {
                let u = std::array::from_fn(|_| random.normal() as f32);
                let next = weights.iter().zip(&u).map(|(w, u): (&f32, &f32)| w * u).sum();
                learner.observe(&u, next);
            }
            for (learnt, weight) in learner.weights.iter().zip(weights) {
                assert!((learnt - weight).abs() < 1e-2, "{learner:?}");
            }
        }
    }

    #[test]
    fn what_never_changes_makes_it_no_less_sure() {
        let mut learner = Learner::new();
        (0..100_000).for_each(|_| learner.observe(&[1.0; DIFFERENCES], 1.0));
        assert!(learner.covariance.iter().all(|c| c.abs() < 2.0 * MOST_UNSURE), "{learner:?}");
        assert!((learner.forecast(&[1.0; DIFFERENCES]) - 1.0).abs() < 1e-3, "{learner:?}");
    }
}
