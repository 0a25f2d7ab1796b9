//! Measures the error of each method on a trace.

use skopos_model::{Kind, Timestamp};

use super::predictor::{Method, Predictor};

/// The errors of one method over a trace, in the unit of the value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// The mean absolute error.
    pub mae: f64,
    /// The root of the mean squared error.
    pub rmse: f64,
    /// The share of the variance that the method explains: 1 is perfect, 0 is as good as the mean.
    /// `None` if the value never changed, so that there is no variance to explain.
    pub r2: Option<f64>,
}

/// The result of predicting each sample of a trace from the samples before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The number of predicted samples.
    pub predictions: usize,
    /// The model as it was trained.
    pub trained: Errors,
    /// The model as it adapts to the vertex.
    pub delphi: Errors,
    /// The method that is shown: the model, or its fallback.
    pub shown: Errors,
    /// The last value.
    pub last_value: Errors,
    /// The line through the last two samples.
    pub linear: Errors,
    /// The share of samples within the bound, among those with a bound.
    pub coverage: Option<f64>,
    /// The mean of the bounds.
    pub bound: Option<f64>,
    /// The share of predictions in which the model was shown.
    pub delphi_shown: f64,
}

/// The sums for [`Errors`].
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    absolute: f64,
    squared: f64,
}

impl Sums {
    fn add(&mut self, error: f64) {
        self.absolute += error.abs();
        self.squared += error * error;
    }

    fn errors(self, count: f64, variance: f64) -> Errors {
        let mean_squared = self.squared / count;
        let r2 = (variance > 0.0).then(|| 1.0 - mean_squared / variance);
        Errors { mae: self.absolute / count, rmse: mean_squared.sqrt(), r2 }
    }
}

/// Predicts each sample from `first` on, one ahead, in the way of a running predictor: it also sees
/// the earlier samples and learns as it goes. `None` if there is no sample to predict.
pub fn evaluate(kind: Kind, samples: &[(Timestamp, f64)], first: usize) -> Option<Evaluation> {
    let mut predictor = Predictor::for_kind(kind);
    let mut sums = [Sums::default(); 5];
    let (mut predictions, mut delphi, mut known, mut within, mut width) = (0, 0, 0, 0, 0.0);
    for (i, (time, value)) in samples.iter().enumerate() {
        if let (Some(prediction), Some(all)) = (predictor.now(*time), predictor.forecasts(*time))
            && i >= first
        {
            predictions += 1;
            delphi += usize::from(prediction.method == Method::Delphi);
            let forecasts = [all.trained, all.delphi, all.shown, all.last_value, all.linear];
            sums.iter_mut().zip(forecasts).for_each(|(sums, said)| sums.add(value - said));
            if prediction.bound.is_finite() {
                known += 1;
                within += usize::from((value - prediction.value).abs() <= prediction.bound);
                width += prediction.bound;
            }
        }
        predictor.observe(*time, *value);
    }
    let tested = samples.get(samples.len().checked_sub(predictions)?..)?;
    let count = predictions as f64;
    // Relative to the first value, so that the mean of a constant is that constant to the last bit.
    let (_, first) = *tested.first()?;
    let mean = first + tested.iter().map(|(_, value)| (value - first) / count).sum::<f64>();
    let variance = tested.iter().map(|(_, value)| (value - mean).powi(2) / count).sum::<f64>();
    let [trained, adapted, shown, last_value, linear] =
        sums.map(|sums| sums.errors(count, variance));
    (predictions > 0).then_some(Evaluation {
        predictions,
        trained,
        delphi: adapted,
        shown,
        last_value,
        linear,
        coverage: (known > 0).then(|| within as f64 / known as f64),
        bound: (known > 0).then(|| width / known as f64),
        delphi_shown: delphi as f64 / count,
    })
}
