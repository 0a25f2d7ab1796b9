//! Delphi: what a value is between two polls, with a bound, from its last five samples.
//!
//! Section 3.4.2 of the Apollo paper: eight small models, each trained on one shape that time
//! series have, are frozen, and a small trainable layer stacked on them learns how to combine what
//! they say. The paper's have 50 parameters, 14 of them trainable. Taken literally it predicts a
//! flat signal 3.5 % low and a ramp by 178 where the last value is off by 10, because its models
//! see values as they are. What is different here, and why:
//!
//! - **Normalised differences.** A [`Model`] sees the four differences between five values, divided
//!   by their mean size, and gives the next one. It knows neither level nor unit, so a flat signal
//!   is predicted flat and bytes are predicted as well as ratios. It is an odd function: what it
//!   says of a mirrored series is the mirror image, so each shape stands for both.
//! - **A bend in each model.** Without one, the stack of linear models is a linear model, and no
//!   such thing predicts a step and a sine. Each model is four weights, and a second four through
//!   `x / (1 + |x|)`, nine in all. 72 are frozen; the trainable layer, a ninth model and a weight
//!   for each of the nine, has 18.
//! - **The layer goes on learning on each vertex.** The weight of each model, of the trained stack,
//!   of seven rules of thumb, of four weights fitted to this vertex alone (`learner`) and of the
//!   rhythm that was found in it (`rhythm`) is what it has earned there (`head`). The rhythm reaches
//!   further back than five samples, which are all alike where a value rests longer than that.
//! - **A running score and a fallback.** Last value and linear extrapolation are scored beside it on
//!   every sample, and whichever is winning by more than chance speaks (`lead`).
//! - **A bound** that holds nine times in ten, from the residuals of what was said (`bound`).
//!
//! # Time
//! Samples come at adaptive intervals. Five of them span some time; a quarter of it is a *step*.
//! Where they are not a step apart, the values at even steps are interpolated between them. A model
//! says what comes one step ahead, is asked once more with that answer for the second step, and
//! makes no claim beyond: its value stays. In between it moves evenly. So a prediction is defined
//! for any time, and exact sampling is the special case in which nothing is interpolated.
//!
//! Nobody moves on for ever. Further from the last sample than twice the usual time between two,
//! every method holds what it said there and the bound is infinite: how far off a source is that
//! nobody has looked at for so long was never compared with anything.
//!
//! # Invariants
//! - [`Predictor::observe`] and [`Predictor::now`] allocate nothing and divide by nothing that can
//!   be zero. A value that is not finite, and a sample from before the last, is ignored and counted.
//! - A counter is never predicted to fall, a state never to move. An integer may be predicted as a
//!   fraction: of a counter that counts one thing every two seconds, half a one is the truth.
//! - Training uses only operations that IEEE 754 rounds in one way (no library sine or exponential),
//!   so the weights are the same to the bit on every machine.
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
//! let said = predictor.now(Timestamp::from_nanos(29_500_000_000)).expect("there are samples");
//! assert!((said.value - 295.0).abs() < 1e-6 && said.bound < 1e-6);
//! ```
//!
//! Read in this order: `window`, [`Model`], `head`, `lead`, `bound`, and [`Predictor`] for how they
//! work together; `shapes` and [`train`](fn@train) for where the weights come from; [`held`] for
//! readers who have only the changes; [`evaluate`](fn@evaluate) for how good it is on a trace.

mod window;
mod model;
mod learner;
mod rhythm;
mod head;
mod lead;
mod ledger;
mod bound;
mod predictor;
mod held;
mod shapes;
mod train;
mod evaluate;

pub use bound::COVERAGE;
pub use evaluate::{Errors, Evaluation, evaluate};
pub use held::{held, predict};
pub use model::{FORMAT_VERSION, Model, ModelError, PARAMETERS, TRAINABLE};
pub use predictor::{Forecasts, Method, Observed, Prediction, Predictor, Standing};

pub use train::{DEFAULT_SEED, train};
