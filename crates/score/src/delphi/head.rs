//! The layer on top as it goes on learning on one vertex: what each expert has earned there.
//!
//! The experts are the models of the shapes, the stack as it was trained, rules of thumb, and two
//! that learn on this vertex alone: weights for a window, and how long it rests and moves. What
//! the layer says is their mean, weighted by how well each has been doing: the sixteenth power of
//! the smallest error over its own. That is prediction with expert advice (Cesa-Bianchi and Lugosi,
//! 2006), with weights that need neither a rate to tune nor an exponential: an expert with twice
//! the error of the best has no say, one within a few per cent of it is as good.

use super::learner::Learner;
use super::model::{FEATURES, Model};
use super::rhythm::Rhythm;
use super::window::{DIFFERENCES, normalise};

/// Experts that are no model of a shape: last value, linear, a parabola, mean rate, mean, half way,
/// half back, the learner of this vertex, and the trained stack.
const RULES: usize = 9;

/// Where the trained stack stands.
const STACK: usize = RULES - 1;

/// Where the rhythm of this vertex stands: behind all who see nothing but a window.
const RHYTHM: usize = RULES + FEATURES;

/// All of them.
pub(crate) const EXPERTS: usize = RHYTHM + 1;

/// What each error keeps of its weight with every sample: half after 69 of them. Long enough to
/// tell experts apart on noisy values, short enough to follow a new phase of a job.
pub(crate) const MEMORY: f32 = 0.99;

/// What each expert but the stack is believed to have missed by before anything was seen here. It
/// lets the stack speak first, and weighs nothing beside the first true error.
const PRIOR: f32 = 1e-6;

/// The discounted absolute errors of the experts, in a unit that the caller keeps.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    losses: [f32; EXPERTS],
    learner: Learner,
    rhythm: Rhythm,
}

/// What each expert who sees a window says of the next difference, in mean differences.
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
        // From the latest to the mean of the five.
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

    /// What each expert says of the next difference, in the value's unit, after differences that
    /// are `u` in their mean, `scale`.
    #[inline]
    pub(crate) fn forecasts(&self, scale: f64, u: &[f32; DIFFERENCES]) -> [f64; EXPERTS] {
        let [next, _] = self.rhythm.forecast();
        self.all(scale, u, next)
    }

    /// What the layer says the value has changed by after one step and after two.
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

    /// The value moved by `difference` since the sample before.
    pub(crate) fn moved(&mut self, difference: f64) {
        self.rhythm.observe(difference);
    }

    /// After these differences came `next`, in their mean.
    pub(crate) fn learn(&mut self, u: &[f32; DIFFERENCES], next: f32) {
        self.learner.observe(u, next);
    }

    /// The share of each expert; they sum to 1.
    #[inline]
    pub(crate) fn weights(&self) -> [f32; EXPERTS] {
        let best = self.losses.iter().copied().fold(f32::INFINITY, f32::min);
        let mut weights = self.losses.map(|loss| {
            // The best ones of all have made no error: nobody else has a say.
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

    /// The largest error, for the caller to judge its unit by.
    pub(crate) fn largest(&self) -> f32 {
        self.losses.iter().copied().fold(0.0, f32::max)
    }

    /// The unit became `times` as large.
    pub(crate) fn rescale(&mut self, times: f32) {
        self.losses.iter_mut().for_each(|loss| *loss /= times);
    }
}

/// The weighted mean.
#[inline]
fn blend(weights: &[f32; EXPERTS], forecasts: &[f64; EXPERTS]) -> f64 {
    weights.iter().zip(forecasts).map(|(weight, forecast)| f64::from(*weight) * forecast).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_first_the_trained_stack_speaks_and_later_whoever_is_right() {
        let mut head = Head::new();
        let weights = head.weights();
        assert!(weights[STACK] > 0.8, "{weights:?}");
        assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        let mut errors = [1.0; EXPERTS];
        errors[3] = 0.0;
        (0..2000).for_each(|_| head.observe(&errors));
        assert!(head.weights()[3] > 0.999_999);
        // An expert whose errors have died away entirely is no division by zero.
        (0..20_000).for_each(|_| head.observe(&[0.0; EXPERTS]));
        let weights = head.weights();
        assert!(weights.iter().all(|w| w.is_finite()), "{weights:?}");
    }
}
