use std::fmt;

use skopos_model::{Kind, Timestamp};

use super::bound::Bound;
use super::ledger::{Ledger, MethodErrors};
use super::model::Model;
use super::window::{Grid, Window, nanos};

/// The most steps ahead that a prediction moves; beyond, it stays and has no bound. The error of a
/// prediction is known from one poll to the next, and a poll that comes twice as late is similar;
/// after that the source has stopped or is no longer polled.
const REACH: f64 = 2.0;

/// Predicts the current value of one vertex from its samples: [`observe`](Self::observe) takes a
/// sample, [`now`](Self::now) returns a prediction. It takes 544 bytes and allocates nothing.
#[derive(Clone, Debug)]
pub struct Predictor {
    window: Window,
    ledger: Ledger,
    bound: Bound,
    /// The length of a step in nanoseconds; 0 while the model has no prediction.
    step: f64,
    /// The change of the value after one step and after two, as the model predicts it.
    ahead: [f64; REACH as usize],
    ignored: u32,
    restarts: u32,
    /// The time after the last sample in which a prediction moves, in nanoseconds.
    reach: f32,
    kind: Kind,
}

/// A predicted value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The value, in its unit.
    pub value: f64,
    /// The bound of the error: nine true values in ten lie within it ([`COVERAGE`]). In the unit of
    /// the value; infinite while too few samples are known, and beyond twice the usual time between
    /// two samples, where the error was never measured.
    ///
    /// [`COVERAGE`]: super::COVERAGE
    pub bound: f64,
    /// The method of the prediction.
    pub method: Method,
}

/// The methods of prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// The value stays.
    LastValue,
    /// The value moves on as between the last two samples, for twice the usual time between two.
    Linear,
    /// The model, as it has adapted to this vertex.
    Delphi,
}

/// The effect of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The sample counts.
    Taken,
    /// The sample counts, and a counter had fallen: the samples before it are dropped.
    Restarted,
    /// The sample was not finite, or older than the last one.
    Ignored,
}

/// The predictions of all methods for one time, for comparisons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecasts {
    /// The last value.
    pub last_value: f64,
    /// The line through the last two samples.
    pub linear: f64,
    /// The model as it has adapted.
    pub delphi: f64,
    /// The model as it was trained, without adaptation.
    pub trained: f64,
    /// The prediction that is shown: one of the first three.
    pub shown: f64,
}

/// The running score: mean absolute errors on this vertex, in which recent samples count more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// The error of the last value.
    pub last_value: f64,
    /// The error of linear extrapolation.
    pub linear: f64,
    /// The error of the model.
    pub delphi: f64,
    /// The error of the shown prediction.
    pub shown: f64,
}

impl Predictor {
    /// Creates a predictor for a gauge.
    pub fn new() -> Self {
        Self::for_kind(Kind::Gauge)
    }

    /// Creates a predictor for a vertex of this kind: a counter is never predicted to fall, a state
    /// never to change.
    pub fn for_kind(kind: Kind) -> Self {
        Self {
            window: Window::default(),
            ledger: Ledger::new(),
            bound: Bound::new(),
            step: 0.0,
            ahead: [0.0; REACH as usize],
            ignored: 0,
            restarts: 0,
            reach: 0.0,
            kind,
        }
    }

    /// Takes the value that a poll found, changed or not.
    pub fn observe(&mut self, time: Timestamp, value: f64) -> Observed {
        let time = time.as_nanos();
        let latest = self.window.latest();
        if !value.is_finite() || latest.is_some_and(|(before, _)| time < before) {
            self.ignored = self.ignored.saturating_add(1);
            return Observed::Ignored;
        }
        let mut observed = Observed::Taken;
        match latest {
            Some((_, before)) if self.kind == Kind::Counter && value < before => {
                self.restarts = self.restarts.saturating_add(1);
                self.window.clear();
                self.window.push(time, value);
                observed = Observed::Restarted;
            }
            Some((before, _)) if time == before => self.window.correct(value),
            Some((before, _)) => {
                self.judge(nanos(before, time), value);
                self.window.push(time, value);
            }
            None => self.window.push(time, value),
        }
        self.look_ahead();
        observed
    }

    /// Predicts the value at `at`, which is the last one if `at` is not later; `None` before the
    /// first sample.
    #[inline]
    pub fn now(&self, at: Timestamp) -> Option<Prediction> {
        let (time, value) = self.window.latest()?;
        let horizon = if at.as_nanos() > time { nanos(time, at.as_nanos()) } else { 0.0 };
        let method = self.method();
        let mut bound = self.bound_at(horizon, method);
        let change = match method {
            Method::LastValue => 0.0,
            Method::Linear => self.line(horizon),
            Method::Delphi => {
                let change = self.travelled(horizon);
                if horizon < self.step {
                    bound += (self.ahead[0] - change).abs() * self.bound.to_come();
                }
                change
            }
        };
        Some(Prediction { value: self.allowed(value, change), bound, method })
    }

    /// Returns the predictions of all methods at `at`; `None` before the first sample.
    pub fn forecasts(&self, at: Timestamp) -> Option<Forecasts> {
        let shown = self.now(at)?.value;
        let (time, value) = self.window.latest()?;
        let horizon = if at.as_nanos() > time { nanos(time, at.as_nanos()) } else { 0.0 };
        let linear = self.allowed(value, self.line(horizon));
        let trained = self.window.grid().map(|grid| {
            let model = Model::built_in();
            let stack = model.stack(&model.features(&grid.normalised));
            f64::from(stack) * grid.scale * (self.reached(horizon) / grid.step).min(REACH)
        });
        Some(Forecasts {
            last_value: value,
            linear,
            delphi: self.delphi(value, horizon),
            trained: self.allowed(value, trained.unwrap_or(0.0)),
            shown,
        })
    }

    /// Returns the method that is winning and would be shown now.
    #[inline]
    pub fn method(&self) -> Method {
        if self.kind == Kind::State {
            Method::LastValue
        } else if self.step > 0.0 && self.ledger.delphi_leads() {
            Method::Delphi
        } else {
            self.base()
        }
    }

    /// Returns the running score; `None` before the first prediction with a known result.
    pub fn scores(&self) -> Option<Scores> {
        let MethodErrors { last_value, linear, delphi, shown } = self.ledger.means()?;
        Some(Scores { last_value, linear, delphi, shown })
    }

    /// Returns the number of samples that were not finite or older than the last.
    pub fn ignored(&self) -> u32 {
        self.ignored
    }

    /// Returns the number of times that a counter fell.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Returns the better of the two methods without a model.
    #[inline]
    fn base(&self) -> Method {
        if self.ledger.linear_leads() { Method::Linear } else { Method::LastValue }
    }

    /// Scores all methods for a sample that came `horizon` nanoseconds after the last.
    fn judge(&mut self, horizon: f64, value: f64) {
        let Some((_, before)) = self.window.latest() else { return };
        // The difference of two doubles may exceed the largest double.
        let off = |said: f64| (value - said).abs().min(f64::MAX);
        let linear = self.allowed(before, self.line(horizon));
        let delphi = self.delphi(before, horizon);
        let method = self.method();
        let shown = match method {
            Method::LastValue => before,
            Method::Linear => linear,
            Method::Delphi => delphi,
        };
        let grid = self.window.grid();
        let experts = grid.map(|Grid { step, scale, normalised }| {
            let steps = (self.reached(horizon) / step).min(REACH);
            let said = self.ledger.head.forecasts(scale, &normalised);
            said.map(|change| off(before + change * steps))
        });
        let errors = MethodErrors {
            last_value: off(before),
            linear: off(linear),
            delphi: off(delphi),
            shown: off(shown),
        };
        self.ledger.observe(&errors, experts.as_ref());
        self.ledger.head.moved(value - before);
        let bound = self.bound_at(horizon, method);
        self.bound.observe(errors.shown, bound, horizon);
        if let Some(Grid { step, scale, normalised }) = grid {
            self.bound.observe_spread(&normalised);
            // If the samples are not one step apart, the next difference is unknown, and only the
            // slope is known.
            let next = (value - before) / scale * (step / horizon);
            if scale > 0.0 && next.is_finite() {
                self.ledger.head.learn(&normalised, next as f32);
            }
        }
    }

    /// Predicts the next two steps with the model.
    fn look_ahead(&mut self) {
        // After a restart there is no gap yet, and the source is polled as often as before.
        if let Some(gap) = self.window.usual_gap() {
            self.reach = (REACH * gap) as f32;
        }
        let Some(Grid { step, scale, normalised }) = self.window.grid() else {
            self.step = 0.0;
            return;
        };
        self.step = step;
        self.ahead = self.ledger.head.ahead(scale, &normalised);
    }

    /// Returns the part of a horizon in which a prediction moves.
    #[inline]
    fn reached(&self, horizon: f64) -> f64 {
        horizon.min(f64::from(self.reach))
    }

    /// Returns the change that the line through the last two samples predicts.
    #[inline]
    fn line(&self, horizon: f64) -> f64 {
        self.window.slope() * self.reached(horizon)
    }

    /// Returns the bound of `method`; infinite beyond reach, and while too few samples are known.
    #[inline]
    fn bound_at(&self, horizon: f64, method: Method) -> f64 {
        if horizon > f64::from(self.reach) {
            return f64::INFINITY;
        }
        self.bound.at(horizon, method != Method::LastValue)
    }

    /// Returns the change that the model predicts.
    #[inline]
    fn travelled(&self, horizon: f64) -> f64 {
        let steps = self.reached(horizon) / self.step;
        let [one, two] = self.ahead;
        if steps <= 1.0 { one * steps } else { one + (two - one) * (steps.min(REACH) - 1.0) }
    }

    /// Returns the prediction of the model, or the better of the other two while it has none.
    fn delphi(&self, value: f64, horizon: f64) -> f64 {
        let change = if self.step > 0.0 {
            self.travelled(horizon)
        } else if self.base() == Method::Linear {
            self.line(horizon)
        } else {
            0.0
        };
        self.allowed(value, change)
    }

    /// Returns the value after a change, or the value itself if the kind forbids the change.
    #[inline]
    fn allowed(&self, value: f64, change: f64) -> f64 {
        let changed = value + change;
        if !changed.is_finite() || (self.kind == Kind::Counter && changed < value) {
            value
        } else {
            changed
        }
    }
}

impl Default for Predictor {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes `last value`, `linear` or `delphi`.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LastValue => "last value",
            Self::Linear => "linear",
            Self::Delphi => "delphi",
        })
    }
}
