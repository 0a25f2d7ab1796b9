//! An expert that starts without knowledge and learns the behaviour of one vertex: four weights for
//! the four differences, by recursive least squares with forgetting (Haykin, *Adaptive Filter
//! Theory*, chapter 10). A job that reads in turns of three seconds, or a device whose busy seconds
//! come in pairs, has no shape that a general model knows, but the same weights every time.

use super::memory::MEMORY;
use super::window::DIFFERENCES;

/// Entries of a symmetric matrix on and above its diagonal.
const UPPER: usize = DIFFERENCES * (DIFFERENCES + 1) / 2;

/// The initial uncertainty of each weight. With 1, weights move away from zero within a few
/// samples.
const UNSURE: f32 = 1.0;

/// The greatest uncertainty. If a weight learns nothing for long, forgetting would raise its
/// uncertainty without end, and any noise would move it. So forgetting pauses at this uncertainty.
const MOST_UNSURE: f32 = 100.0;

/// The largest next difference to learn from, in mean differences; a larger one counts as this.
const LARGEST: f32 = 5.0;

/// The weights and their uncertainty.
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

    /// Returns the predicted difference after `u`.
    #[inline]
    pub(crate) fn forecast(&self, u: &[f32; DIFFERENCES]) -> f32 {
        self.weights.iter().zip(u).map(|(weight, u)| weight * u).sum()
    }

    /// Learns that `next` followed `u`.
    pub(crate) fn observe(&mut self, u: &[f32; DIFFERENCES], next: f32) {
        let mut seen = [0.0; DIFFERENCES];
        for (i, seen) in seen.iter_mut().enumerate() {
            *seen = (0..DIFFERENCES).map(|j| self.covariance[at(i, j)] * u[j]).sum();
        }
        let unsure = (0..DIFFERENCES).map(|i| self.covariance[at(i, i)]).fold(0.0, f32::max);
        let keep = if unsure < MOST_UNSURE { MEMORY } else { 1.0 };
        let certainty = keep + seen.iter().zip(u).map(|(seen, u)| seen * u).sum::<f32>();
        let error = next.clamp(-LARGEST, LARGEST) - self.forecast(u);
        // Rounding may make a covariance negative, which is impossible; then the sample teaches
        // nothing.
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

/// Returns the position of row `i` and column `j`.
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
    fn constant_differences_do_not_raise_the_uncertainty() {
        let mut learner = Learner::new();
        (0..100_000).for_each(|_| learner.observe(&[1.0; DIFFERENCES], 1.0));
        assert!(learner.covariance.iter().all(|c| c.abs() < 2.0 * MOST_UNSURE), "{learner:?}");
        assert!((learner.forecast(&[1.0; DIFFERENCES]) - 1.0).abs() < 1e-3, "{learner:?}");
    }
}
