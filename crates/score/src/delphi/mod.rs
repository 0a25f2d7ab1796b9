//! Delphi: predicts a value between two polls, with an error bound, from its last five samples.
//!
//! Section 3.4.2 of the Apollo paper describes eight small models, each trained on one shape of
//! time series and then frozen, and a small trainable layer on top that combines their predictions.
//! The paper's models have 50 parameters, 14 of them trainable. Built literally, they predict a
//! flat signal 3.5 % low, and a ramp with an error of 178 where the last value has an error of 10,
//! because the models see raw values. This module differs as follows:
//!
//! - **Normalised differences.** A [`Model`] sees the four differences between five values, divided
//!   by their mean size, and predicts the next difference. It knows neither level nor unit, so it
//!   predicts a flat signal as flat, and bytes as well as ratios. It is an odd function: its
//!   prediction for a mirrored series is the mirror image, so each shape stands for both.
//! - **A bend in each model.** A stack of linear models is a linear model, which cannot predict
//!   both a step and a sine. So each model has four weights, four more through `x / (1 + |x|)`, and
//!   one for that bend: nine in all. 72 parameters are frozen; the trainable layer, a ninth model
//!   and a weight for each of the nine, has 18.
//! - **A layer that goes on learning on each vertex.** Its experts are the models, the trained
//!   stack, seven rules of thumb, four weights fitted to this vertex alone (`learner`), and the
//!   rhythm of this vertex (`rhythm`). Each expert has the weight that it has earned there
//!   (`head`). The rhythm reaches further back than five samples, which are all alike if a value
//!   rests for longer.
//! - **A running score and a fallback.** Last value and linear extrapolation are scored at every
//!   sample too, and the method that wins by more than chance is shown (`lead`).
//! - **A bound** that holds nine times in ten, from the residuals of past predictions (`bound`).
//!
//! # Time
//! Samples come at adaptive intervals. A quarter of the time that five samples span is a *step*. If
//! the samples are not a step apart, the values at even steps are interpolated. A model predicts
//! one step ahead; with that prediction as its input it predicts a second step. Beyond two steps
//! the prediction stays constant, and between steps it moves evenly. So a prediction is defined for
//! any time, and even sampling is the special case without interpolation.
//!
//! No method extrapolates for ever. Beyond twice the usual time between two samples, every method
//! holds its prediction and the bound is infinite, because the error of a prediction over a longer
//! time was never measured.
//!
//! # Invariants
//! - [`Predictor::observe`] and [`Predictor::now`] allocate nothing and never divide by zero. A
//!   value that is not finite, and a sample older than the last, is ignored and counted.
//! - A counter is never predicted to fall, and a state never to change. The prediction of an
//!   integer may be a fraction: half-way between two events of a counter that counts one event
//!   every two seconds, one half is right.
//! - Training uses only operations that IEEE 754 rounds in one way (no library sine or
//!   exponential), so the weights are the same to the bit on every machine.
//!
//! ```
//! use skopos_model::Timestamp;
//! use skopos_score::delphi::Predictor;
//!
//! let second = |s: i64| Timestamp::from_nanos(s * 1_000_000_000);
//! let mut predictor = Predictor::new();
//! for s in 0..30 {
//!     predictor.observe(second(s), 10.0 * s as f64);
//! }
//! let at = Timestamp::from_nanos(29_500_000_000);
//! let prediction = predictor.now(at).expect("there are samples");
//! assert!((prediction.value - 295.0).abs() < 1e-6 && prediction.bound < 1e-6);
//! ```
//!
//! Read in this order: `window`, [`Model`], `head`, `lead`, `bound`, and [`Predictor`], which
//! combines them; `shapes` and [`train`](fn@train) for the origin of the weights; [`restore_polls`]
//! for readers that have only the changes; [`evaluate`](fn@evaluate) for the error on a trace.

mod window;
mod memory;
mod model;
mod learner;
mod rhythm;
mod head;
mod lead;
mod ledger;
mod bound;
mod predictor;
mod polls;
mod shapes;
mod train;
mod evaluate;

pub use bound::COVERAGE;
pub use evaluate::{Errors, Evaluation, evaluate};
pub use model::{FORMAT_VERSION, Model, ModelError, PARAMETERS, TRAINABLE};
pub use polls::{predict, restore_polls};
pub use predictor::{Forecasts, Method, Observed, Prediction, Predictor, Scores};

pub use train::{DEFAULT_SEED, train};
