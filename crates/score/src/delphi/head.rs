//! The layer on top of the models, which goes on learning on one vertex: it weights experts by
//! their success there.
//!
//! The experts are the models of the shapes, the trained stack, rules of thumb, and two experts
//! that learn on this vertex alone: weights for a window, and the rhythm of its rests and
//! movements. The layer predicts the mean of all experts, weighted by their recent success: the
//! sixteenth power of the smallest error divided by their own error. That is prediction with expert
//! advice (Cesa-Bianchi and Lugosi, 2006), with weights that need neither a rate to tune nor an
//! exponential: an expert with twice the error of the best has no influence, and an expert within a
//! few per cent of the best counts as much.

use super::learner::Learner;
use super::memory::MEMORY;
use super::model::{FEATURES, Model};
use super::rhythm::Rhythm;
use super::window::{DIFFERENCES, normalise};

/// The number of experts that are not a model of a shape: last value, linear, a parabola, mean
/// rate, mean, half way, half back, the learner of this vertex, and the trained stack.
const RULES: usize = 9;

/// The index of the trained stack.
const STACK: usize = RULES - 1;

/// The index of the rhythm of this vertex: after all experts that see only a window.
const RHYTHM: usize = RULES + FEATURES;

/// The number of experts.
pub(crate) const EXPERTS: usize = RHYTHM + 1;

/// The error that each expert but the stack starts with. It lets the stack decide first, and is
/// negligible beside the first real error.
const PRIOR: f32 = 1e-6;

/// The discounted absolute errors of the experts, in a unit that the caller keeps.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    losses: [f32; EXPERTS],
    learner: Learner,
    rhythm: Rhythm,
}

/// Returns the next difference as each expert with a window predicts it, in mean differences.
#[inline]
fn forecasts(model: &Model, learner: &Learner, u: &[f32; DIFFERENCES]) -> [f32; RHYTHM] {
    let features = model.features(u);
    let [a, b, c, d] = *u;
    let mut all = [0.0; RHYTHM];
    all[..RULES].copy_from_slice(&[
        0.0,
        d,
        2.0 * d - c,
        (a + b + c + d) / 4.0,
        // From the latest value to the mean of the five.
        -(a + 2.0 * b + 3.0 * c + 4.0 * d) / 5.0,
        d / 2.0,
        -d / 2.0,
        learner.forecast(u),
        model.stack(&features),
    ]);
    all[RULES..].copy_from_slice(&features);
    all
}

impl Head {
    pub(crate) fn new() -> Self {
        let mut losses = [PRIOR; EXPERTS];
        losses[STACK] = 0.0;
        Self { losses, learner: Learner::new(), rhythm: Rhythm::new() }
    }

    /// Returns the next difference as each expert predicts it, in the unit of the value, after the
    /// differences `u` times `scale`, their mean.
    #[inline]
    pub(crate) fn forecasts(&self, scale: f64, u: &[f32; DIFFERENCES]) -> [f64; EXPERTS] {
        let [next, _] = self.rhythm.forecast();
        self.all(scale, u, next)
    }

    /// Returns the change of the value after one step and after two, as the layer predicts it.
    pub(crate) fn ahead(&self, scale: f64, u: &[f32; DIFFERENCES]) -> [f64; 2] {
        let [first, second] = self.rhythm.forecast();
        let weights = self.weights();
        let next = blend(&weights, &self.all(scale, u, first));
        let [_, b, c, d] = u.map(|u| f64::from(u) * scale);
        let (scale, shifted) = normalise([b, c, d, next]);
        [next, next + blend(&weights, &self.all(scale, &shifted, second))]
    }

    #[inline]
    fn all(&self, scale: f64, u: &[f32; DIFFERENCES], rhythm: f64) -> [f64; EXPERTS] {
        let mut all = [rhythm; EXPERTS];
        let windows = forecasts(Model::built_in(), &self.learner, u);
        for (all, said) in all.iter_mut().zip(windows) {
            *all = f64::from(said) * scale;
        }
        all
    }

    /// Records that the value changed by `difference` since the sample before.
    pub(crate) fn moved(&mut self, difference: f64) {
        self.rhythm.observe(difference);
    }

    /// Teaches the learner that `next` followed the differences `u`, in units of their mean.
    pub(crate) fn learn(&mut self, u: &[f32; DIFFERENCES], next: f32) {
        self.learner.observe(u, next);
    }

    /// Returns the weight of each expert; the weights sum to 1.
    #[inline]
    pub(crate) fn weights(&self) -> [f32; EXPERTS] {
        let best = self.losses.iter().copied().fold(f32::INFINITY, f32::min);
        let mut weights = self.losses.map(|loss| {
            // Experts without any error share all the weight.
            let share = if loss > 0.0 { best / loss } else { 1.0 };
            let share = share * share;
            let share = share * share;
            let share = share * share;
            share * share
        });
        let sum: f32 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        weights
    }

    /// Adds the errors of one sample.
    pub(crate) fn observe(&mut self, errors: &[f32; EXPERTS]) {
        for (loss, error) in self.losses.iter_mut().zip(errors) {
            *loss = *loss * MEMORY + error;
        }
    }

    /// Returns the largest error, by which the caller chooses its unit.
    pub(crate) fn largest(&self) -> f32 {
        self.losses.iter().copied().fold(0.0, f32::max)
    }

    /// Adjusts the errors to a unit that became `times` as large.
    pub(crate) fn rescale(&mut self, times: f32) {
        self.losses.iter_mut().for_each(|loss| *loss /= times);
    }
}

/// Returns the weighted mean.
#[inline]
fn blend(weights: &[f32; EXPERTS], forecasts: &[f64; EXPERTS]) -> f64 {
    weights.iter().zip(forecasts).map(|(weight, forecast)| f64::from(*weight) * forecast).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trained_stack_decides_first_and_the_best_expert_later() {
        let mut head = Head::new();
        let weights = head.weights();
        assert!(weights[STACK] > 0.8, "{weights:?}");
        assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        let mut errors = [1.0; EXPERTS];
        errors[3] = 0.0;
        (0..2000).for_each(|_| head.observe(&errors));
        assert!(head.weights()[3] > 0.999_999);
        // An expert whose errors have faded away must not cause a division by zero.
        (0..20_000).for_each(|_| head.observe(&[0.0; EXPERTS]));
        let weights = head.weights();
        assert!(weights.iter().all(|w| w.is_finite()), "{weights:?}");
    }
}
