//! Trains the weights from a seed.

use super::model::{FEATURES, Model, SHAPES};
use super::shapes::{SERIES, Shape};
use super::window::{DIFFERENCES, WINDOW, normalise};
use skopos_model::SplitMix64;

/// The seed of the built-in weights.
pub const DEFAULT_SEED: u64 = 2021;

/// Series per shape. Twice as many series and one and a half times as many epochs change the error
/// on recorded traces by less than 1 %.
const SERIES_OF_A_SHAPE: usize = 400;

/// Passes over the windows.
const EPOCHS: usize = 20;

/// Windows whose errors are summed before the weights move.
const BATCH: usize = 64;

/// The error at which the loss changes from squared to absolute, in mean differences: an
/// unpredictable jump must not outweigh all predictable movements.
const HUBER: f64 = 0.5;

/// The largest next difference, in mean differences; a larger one counts as this.
const LARGEST_TARGET: f64 = 5.0;

/// The first step of a weight; it falls to zero over the epochs.
const RATE: f64 = 0.01;

/// Four differences and the one that follows.
type Example = ([f32; DIFFERENCES], f32);

/// The weights of one model of a shape: `line`, `bend`, `height`.
type Feature = [f64; 2 * DIFFERENCES + 1];

/// Trains the models of the eight shapes, freezes them, and trains the layer on top on all shapes.
/// The same seed gives the same weights to the bit on every machine. Takes less than a second.
pub fn train(seed: u64) -> Model {
    let mut random = SplitMix64::new(seed);
    let mut model = Model {
        seed,
        line: [[0.0; FEATURES]; DIFFERENCES],
        bend: [[0.0; FEATURES]; DIFFERENCES],
        height: [0.0; FEATURES],
        head: [0.0; FEATURES],
    };
    let mut all = Vec::new();
    for (at, shape) in Shape::ALL.into_iter().enumerate() {
        let examples = examples(shape, &mut random);
        let weights = train_feature(&examples, &mut random);
        set_feature(&mut model, at, &weights);
        all.extend(examples);
    }
    train_layer(&mut model, &all, &mut random);
    model
}

/// Returns every window of some series of this shape.
fn examples(shape: Shape, random: &mut SplitMix64) -> Vec<Example> {
    let mut examples = Vec::new();
    for _ in 0..SERIES_OF_A_SHAPE {
        let series: [f64; SERIES] = shape.series(random);
        for window in series.windows(WINDOW + 1) {
            let difference = |i: usize| window[i + 1] - window[i];
            let (scale, inputs) = normalise(std::array::from_fn(difference));
            if scale > 0.0 {
                let next = difference(DIFFERENCES) / scale;
                examples.push((inputs, next.clamp(-LARGEST_TARGET, LARGEST_TARGET) as f32));
            }
        }
    }
    examples
}

fn train_feature(examples: &[Example], random: &mut SplitMix64) -> Feature {
    let weights = start(random);
    descend(weights, examples.len(), random, |weights, at, slopes| {
        let (inputs, target) = &examples[at];
        let error = feature(weights, inputs) - f64::from(*target);
        add_slopes(weights, inputs, error.clamp(-HUBER, HUBER), slopes);
    })
}

/// Trains the ninth model and the weight of each model together.
fn train_layer(model: &mut Model, examples: &[Example], random: &mut SplitMix64) {
    const OWN: usize = 2 * DIFFERENCES + 1;
    let frozen: Vec<[f32; FEATURES]> = examples.iter().map(|(u, _)| model.features(u)).collect();
    let mut weights = [1.0 / FEATURES as f64; OWN + FEATURES];
    weights[..OWN].copy_from_slice(&start(random));
    let weights = descend(weights, examples.len(), random, |weights, at, slopes| {
        let (inputs, target) = &examples[at];
        let mut misc = Feature::default();
        misc.copy_from_slice(&weights[..OWN]);
        let head = &weights[OWN..];
        let own = feature(&misc, inputs);
        let said = |i: usize| if i < SHAPES { f64::from(frozen[at][i]) } else { own };
        let sum: f64 = (0..FEATURES).map(|i| head[i] * said(i)).sum();
        let error = (sum - f64::from(*target)).clamp(-HUBER, HUBER);
        for i in 0..FEATURES {
            slopes[OWN + i] += error * said(i);
        }
        let mut of_misc = Feature::default();
        add_slopes(&misc, inputs, error * head[SHAPES], &mut of_misc);
        for (slope, more) in slopes.iter_mut().zip(of_misc) {
            *slope += more;
        }
    });
    let mut misc = Feature::default();
    misc.copy_from_slice(&weights[..OWN]);
    set_feature(model, SHAPES, &misc);
    for (weight, trained) in model.head.iter_mut().zip(&weights[OWN..]) {
        *weight = *trained as f32;
    }
}

/// Returns initial weights: a line of zero, and a bend in a random direction.
fn start(random: &mut SplitMix64) -> Feature {
    let mut weights = Feature::default();
    weights[DIFFERENCES..2 * DIFFERENCES].fill_with(|| random.normal());
    weights[2 * DIFFERENCES] = 0.1;
    weights
}

fn set_feature(model: &mut Model, at: usize, weights: &Feature) {
    for d in 0..DIFFERENCES {
        model.line[d][at] = weights[d] as f32;
        model.bend[d][at] = weights[DIFFERENCES + d] as f32;
    }
    model.height[at] = weights[2 * DIFFERENCES] as f32;
}

fn bent(weights: &Feature, inputs: &[f32; DIFFERENCES]) -> f64 {
    inputs.iter().enumerate().map(|(d, u)| weights[DIFFERENCES + d] * f64::from(*u)).sum()
}

fn feature(weights: &Feature, inputs: &[f32; DIFFERENCES]) -> f64 {
    let line: f64 = inputs.iter().enumerate().map(|(d, u)| weights[d] * f64::from(*u)).sum();
    let bent = bent(weights, inputs);
    line + weights[2 * DIFFERENCES] * (bent / (1.0 + bent.abs()))
}

/// Adds the derivatives of the loss by each weight, given its derivative `error` by the prediction.
fn add_slopes(
    weights: &Feature,
    inputs: &[f32; DIFFERENCES],
    error: f64,
    slopes: &mut [f64; 2 * DIFFERENCES + 1],
) {
    let bent = bent(weights, inputs);
    let flat = 1.0 + bent.abs();
    let through = error * weights[2 * DIFFERENCES] / (flat * flat);
    for (d, u) in inputs.iter().enumerate() {
        slopes[d] += error * f64::from(*u);
        slopes[DIFFERENCES + d] += through * f64::from(*u);
    }
    slopes[2 * DIFFERENCES] += error * bent / flat;
}

/// Adam (Kingma and Ba, 2015) with a rate that falls evenly to zero.
/// `slopes_of(weights, example, slopes)` adds the derivatives of one example.
fn descend<const N: usize>(
    mut weights: [f64; N],
    examples: usize,
    random: &mut SplitMix64,
    mut slopes_of: impl FnMut(&[f64; N], usize, &mut [f64; N]),
) -> [f64; N] {
    const KEEP_MEAN: f64 = 0.9;
    const KEEP_SQUARE: f64 = 0.999;
    let (mut mean, mut square) = ([0.0; N], [0.0; N]);
    let (mut mean_left, mut square_left) = (1.0, 1.0);
    let mut order: Vec<usize> = (0..examples).collect();
    for epoch in 0..EPOCHS {
        let rate = RATE * (1.0 - epoch as f64 / EPOCHS as f64);
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
        for batch in order.chunks(BATCH) {
            let mut slopes = [0.0; N];
            batch.iter().for_each(|at| slopes_of(&weights, *at, &mut slopes));
            mean_left *= KEEP_MEAN;
            square_left *= KEEP_SQUARE;
            for i in 0..N {
                let slope = slopes[i] / batch.len() as f64;
                mean[i] = KEEP_MEAN * mean[i] + (1.0 - KEEP_MEAN) * slope;
                square[i] = KEEP_SQUARE * square[i] + (1.0 - KEEP_SQUARE) * slope * slope;
                let size = (square[i] / (1.0 - square_left)).sqrt() + 1e-8;
                weights[i] -= rate * mean[i] / (1.0 - mean_left) / size;
            }
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::super::model::soft;
    use super::*;

    /// Returns the mean absolute error of predictions on other series than those of the training.
    fn error(of: impl Fn(&Example) -> f32, examples: &[Example]) -> f64 {
        let errors = examples.iter().map(|e| f64::from((of(e) - e.1).abs()));
        errors.sum::<f64>() / examples.len() as f64
    }

    #[test]
    fn training_reproduces_the_built_in_weights() {
        let trained = train(DEFAULT_SEED);
        assert_eq!(trained.to_bytes(), Model::built_in().to_bytes(), "run `skopos delphi train`");
        assert_eq!(Model::from_bytes(&trained.to_bytes()), Ok(trained));
    }

    #[test]
    fn each_model_beats_last_value_on_its_shape_and_the_stack_does_on_all() {
        let (model, mut random) = (Model::built_in(), SplitMix64::new(7));
        let mut all = Vec::new();
        for (at, shape) in Shape::ALL.into_iter().enumerate() {
            let examples = examples(shape, &mut random);
            let ours = error(|(u, _)| model.features(u)[at], &examples);
            let last = error(|_| 0.0, &examples);
            let linear = error(|(u, _)| u[DIFFERENCES - 1], &examples);
            assert!(ours < last && ours < linear, "{shape:?}: {ours} {last} {linear}");
            all.extend(examples);
        }
        let ours = error(|(u, _)| model.stack(&model.features(u)), &all);
        let last = error(|_| 0.0, &all);
        let linear = error(|(u, _)| u[DIFFERENCES - 1], &all);
        assert!(ours < 0.8 * last.min(linear), "{ours} {last} {linear}");
    }

    #[test]
    fn the_prediction_of_a_mirrored_series_is_the_mirror_image() {
        let model = Model::built_in();
        let said = |u: [f32; DIFFERENCES]| model.stack(&model.features(&u));
        for u in [[0.0; 4], [1.0; 4], [0.5, -1.0, 2.0, 0.5], [-4.0, 0.0, 0.0, 0.0]] {
            assert_eq!(said(u), -said(u.map(|d| -d)), "{u:?}");
        }
        assert_eq!(said([0.0; 4]), 0.0);
        assert_eq!(soft(1.0), 0.5);
    }
}
