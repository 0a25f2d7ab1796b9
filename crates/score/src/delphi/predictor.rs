use std::fmt;

use skopos_model::{Kind, Timestamp};

use super::bound::Bound;
use super::ledger::{Ledger, Missed};
use super::model::Model;
use super::window::{Grid, Window, nanos};

/// So many steps ahead anybody says something: what was said last stays, and beyond there is no
/// bound. What a prediction was off by is known from one poll to the next, and a poll that comes
/// twice as late is like those; after that the source has stopped, or nobody looks.
const REACH: f64 = 2.0;

/// What a value is now, from one vertex's samples: feed it with [`observe`](Self::observe), ask it
/// with [`now`](Self::now). 544 bytes; nothing is allocated.
#[derive(Clone, Debug)]
pub struct Predictor {
    window: Window,
    ledger: Ledger,
    bound: Bound,
    /// Length of a step in nanoseconds; 0 while the model has nothing to say.
    step: f64,
    /// What the model says the value has changed by after one step and after two.
    ahead: [f64; REACH as usize],
    ignored: u32,
    restarts: u32,
    /// So many nanoseconds after the last sample something is said.
    reach: f32,
    kind: Kind,
}

/// A value that was not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The value, in its unit.
    pub value: f64,
    /// The true value is not further away than this, nine times in ten ([`COVERAGE`]). In the
    /// value's unit; infinite while too little is known to say so, and further from the last
    /// sample than twice the usual time between two, where nothing was ever compared.
    ///
    /// [`COVERAGE`]: super::COVERAGE
    pub bound: f64,
    /// Who said it.
    pub method: Method,
}

/// Ways to tell a value that was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// It is what it was.
    LastValue,
    /// It moves on as between the last two samples, for twice the usual time between two.
    Linear,
    /// The model, as it has adapted to this vertex.
    Delphi,
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// It counts.
    Taken,
    /// It counts, and a counter had fallen: what was before it says nothing about what follows.
    Restarted,
    /// It was not finite, or from before the last one.
    Ignored,
}

/// What each method says at one time, for whoever compares them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecasts {
    /// What it was.
    pub last_value: f64,
    /// The line through the last two.
    pub linear: f64,
    /// The model as it has adapted.
    pub delphi: f64,
    /// The model as it was trained, with nothing learnt here.
    pub trained: f64,
    /// What is shown: one of the first three.
    pub shown: f64,
}

/// The running score: mean absolute errors on this vertex, recent samples counting more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Of the last value.
    pub last_value: f64,
    /// Of linear extrapolation.
    pub linear: f64,
    /// Of the model.
    pub delphi: f64,
    /// Of what was shown.
    pub shown: f64,
}

impl Predictor {
    /// Of a gauge.
    pub fn new() -> Self {
        Self::of(Kind::Gauge)
    }

    /// Of a vertex of this kind: a counter is never predicted to fall, a state never to move.
    pub fn of(kind: Kind) -> Self {
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

    /// The source was looked at, and this was the value: also if it is what it was before.
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

    /// The value at `at`, which is the last one if `at` is not later; `None` before the first.
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

    /// What each method says at `at`; `None` before the first sample.
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

    /// Who is winning, and so would be shown now.
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

    /// The running score; `None` before there was a prediction to judge.
    pub fn standing(&self) -> Option<Standing> {
        let Missed { last_value, linear, delphi, shown } = self.ledger.means()?;
        Some(Standing { last_value, linear, delphi, shown })
    }

    /// Samples that were not finite or came from before the last.
    pub fn ignored(&self) -> u32 {
        self.ignored
    }

    /// How often a counter fell.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// The better one of the two that need no model.
    fn base(&self) -> Method {
        if self.ledger.linear_leads() { Method::Linear } else { Method::LastValue }
    }

    /// Scores everybody for a sample that came `horizon` nanoseconds after the last.
    fn judge(&mut self, horizon: f64, value: f64) {
        let Some((_, before)) = self.window.latest() else { return };
        // Between the ends of what a double can hold lies more than it can.
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
        let missed = Missed {
            last_value: off(before),
            linear: off(linear),
            delphi: off(delphi),
            shown: off(shown),
        };
        self.ledger.observe(&missed, experts.as_ref());
        self.ledger.head.moved(value - before);
        let bound = self.bound_at(horizon, method);
        self.bound.observe(missed.shown, bound, horizon);
        if let Some(Grid { step, scale, normalised }) = grid {
            self.bound.observe_spread(&normalised);
            // At another distance than a step the next difference is not known, only the slope.
            let next = (value - before) / scale * (step / horizon);
            if scale > 0.0 && next.is_finite() {
                self.ledger.head.learn(&normalised, next as f32);
            }
        }
    }

    /// Has the model say what comes next, and what after that if it is right.
    fn look_ahead(&mut self) {
        // After a restart there is no gap yet, and the source is looked at as often as before.
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

    /// The part of a horizon in which something is said to change.
    #[inline]
    fn reached(&self, horizon: f64) -> f64 {
        horizon.min(f64::from(self.reach))
    }

    /// What the line through the last two says the value has changed by.
    #[inline]
    fn line(&self, horizon: f64) -> f64 {
        self.window.slope() * self.reached(horizon)
    }

    /// How far off `method` may be; infinite beyond reach, and while too little is known.
    #[inline]
    fn bound_at(&self, horizon: f64, method: Method) -> f64 {
        if horizon > f64::from(self.reach) {
            return f64::INFINITY;
        }
        self.bound.at(horizon, method != Method::LastValue)
    }

    /// What the model says the value has changed by.
    #[inline]
    fn travelled(&self, horizon: f64) -> f64 {
        let steps = self.reached(horizon) / self.step;
        let [one, two] = self.ahead;
        if steps <= 1.0 { one * steps } else { one + (two - one) * (steps.min(REACH) - 1.0) }
    }

    /// What the model says; what is said without one, while it has nothing to say.
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

    /// The value after a change, if it may change so.
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

/// `last value`, `linear` or `delphi`.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LastValue => "last value",
            Self::Linear => "linear",
            Self::Delphi => "delphi",
        })
    }
}
