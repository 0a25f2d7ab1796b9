use std::time::Duration;

use skopos_model::{Kind, Scalar, Structured, Timestamp, Topic, Unit, Value};

use crate::unknown::{Outcome, Unknown};

/// The state of one vertex, fact or insight: its latest sample, and for a number also the sample of
/// the poll before, from which rates are computed.
#[derive(Clone, Debug)]
pub struct Cell {
    topic: Topic,
    unit: Unit,
    kind: Kind,
    /// `None` before the first sample.
    outcome: Option<Outcome>,
    /// The number in `outcome`; NaN if `outcome` is not a number.
    number: f64,
    since: Timestamp,
    checked_at: Timestamp,
    /// The time at which `number` was found: for a fact `checked_at`, for an insight the run that
    /// computed it.
    polled_at: Timestamp,
    previous: Option<(Timestamp, f64)>,
    resets: u64,
}

/// The difference that a new sample made to a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellChange {
    /// The outcome changed.
    pub(crate) changed: bool,
    /// The rate changed although the number did not: the number stands still after it had moved, or
    /// this is the second poll and a rate exists for the first time.
    pub(crate) stopped: bool,
    /// `checked_at` changed.
    pub(crate) checked: bool,
}

impl CellChange {
    /// Returns true if dependents have to be recomputed.
    #[inline]
    pub(crate) fn matters(self) -> bool {
        self.changed || self.stopped
    }
}

/// Moves a time back by `by`, unless it is not set.
pub(crate) fn set_back(time: &mut Timestamp, by: Duration) {
    if *time != Timestamp::default() {
        *time = time.saturating_sub(by);
    }
}

impl Cell {
    /// Creates a cell without a value.
    pub fn new(topic: Topic, unit: Unit, kind: Kind) -> Self {
        Self {
            topic,
            unit,
            kind,
            outcome: None,
            number: f64::NAN,
            since: Timestamp::default(),
            checked_at: Timestamp::default(),
            polled_at: Timestamp::default(),
            previous: None,
            resets: 0,
        }
    }

    /// Stores the outcome found at `time`. Returns true if dependents have to be recomputed: the
    /// value changed, or it stood still after it had moved, which is a rate of zero. A time before
    /// that of the last poll counts as that time.
    pub fn take(&mut self, time: Timestamp, outcome: Outcome) -> bool {
        self.take_outcome(time, None, outcome).matters()
    }

    /// Does the same as [`take`](Self::take) for a number, and allocates nothing.
    #[inline]
    pub fn take_number(&mut self, time: Timestamp, value: Scalar) -> bool {
        self.take_scalar(time, value).matters()
    }

    #[inline]
    pub(crate) fn take_scalar(&mut self, time: Timestamp, value: Scalar) -> CellChange {
        let changed = !self.holds(value);
        if changed {
            self.outcome = Some(Ok(value.into()));
        }
        self.update(time, None, value.as_f64(), changed)
    }

    /// Does the same as [`take`](Self::take) for an outcome computed at `time` from inputs of which
    /// the oldest was polled at `checked_at`.
    pub(crate) fn take_outcome(
        &mut self,
        time: Timestamp,
        checked_at: Option<Timestamp>,
        outcome: Outcome,
    ) -> CellChange {
        let number = outcome.as_ref().ok().and_then(Value::as_f64).unwrap_or(f64::NAN);
        let changed = match (&self.outcome, &outcome) {
            // A NaN that stays NaN has not changed, which `==` does not know.
            (Some(Ok(Value::F64(old))), Ok(Value::F64(new))) => !same(*old, *new),
            (Some(old), new) => old != new,
            (None, _) => true,
        };
        if changed {
            self.outcome = Some(outcome);
        }
        self.update(time, checked_at, number, changed)
    }

    /// Records that the inputs were polled again and the outcome stays as it is.
    #[inline]
    pub(crate) fn confirm(&mut self, time: Timestamp, checked_at: Option<Timestamp>) -> CellChange {
        self.update(time, checked_at, self.number, false)
    }

    /// Moves all times back by `by`.
    pub(crate) fn set_back(&mut self, by: Duration) {
        let previous = self.previous.as_mut().map(|(time, _)| time);
        let times = [&mut self.since, &mut self.checked_at, &mut self.polled_at];
        times.into_iter().chain(previous).for_each(|time| set_back(time, by));
    }

    /// Drops the value.
    pub(crate) fn clear(&mut self) {
        self.outcome = None;
        self.number = f64::NAN;
        self.previous = None;
    }

    #[inline]
    fn holds(&self, value: Scalar) -> bool {
        match (&self.outcome, value) {
            (Some(Ok(Value::U64(old))), Scalar::U64(new)) => *old == new,
            (Some(Ok(Value::I64(old))), Scalar::I64(new)) => *old == new,
            (Some(Ok(Value::F64(old))), Scalar::F64(new)) => same(*old, new),
            _ => false,
        }
    }

    #[inline]
    fn update(
        &mut self,
        time: Timestamp,
        checked_at: Option<Timestamp>,
        number: f64,
        changed: bool,
    ) -> CellChange {
        let time = time.max(self.polled_at);
        // A fact without a time of its own was polled now. An insight may become older, by an input
        // that joined.
        let checked_at = checked_at.unwrap_or(time).min(time);
        let (before, had_rate) = (self.number, self.previous);
        let both = before.is_finite() && number.is_finite();
        if !both {
            self.previous = None;
        } else if time > self.polled_at {
            self.previous = Some((self.polled_at, before));
        }
        if self.kind == Kind::Counter && number < before {
            self.resets += 1;
            // The count before the source restarted says nothing about the rate now.
            self.previous = None;
        }
        if changed {
            self.since = time;
        }
        let stopped = both && !changed && had_rate.is_none_or(|(_, older)| older != before);
        let checked = self.checked_at != checked_at;
        self.number = number;
        self.polled_at = time;
        self.checked_at = checked_at;
        CellChange { changed, stopped, checked }
    }

    /// Returns the topic.
    #[inline]
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Returns the unit of the values.
    #[inline]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the kind of the values.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the latest value, or why it is unknown; `None` before the first.
    #[inline]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Returns the time since which the latest value holds.
    #[inline]
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Returns the time at which the source was last polled. For an insight, that time of its
    /// oldest needed input.
    #[inline]
    pub fn checked_at(&self) -> Timestamp {
        self.checked_at
    }

    /// Returns the time at which the number was found: for a fact `checked_at`, for an insight the
    /// time of its computation.
    #[inline]
    pub fn polled_at(&self) -> Timestamp {
        self.polled_at
    }

    /// Returns the number of times that a counter fell.
    #[inline]
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Returns the time and the number of the poll before, from which the rate is computed. `None`
    /// after one poll and after a restart of a counter.
    #[inline]
    pub fn previous(&self) -> Option<(Timestamp, f64)> {
        self.previous
    }

    /// Returns the value.
    ///
    /// # Errors
    /// Fails with the reason if the value is unknown or has not been set yet.
    pub fn value(&self) -> Result<&Value, Unknown> {
        match &self.outcome {
            Some(Ok(value)) => Ok(value),
            Some(Err(unknown)) => {
                Err(Unknown::new(format!("{} is unknown: {unknown}", self.topic)))
            }
            None => Err(Unknown::new(format!("{} has no value yet", self.topic))),
        }
    }

    /// Returns the value as a finite number.
    ///
    /// # Errors
    /// Fails as [`value`](Self::value) does, and if the value is structured or not finite.
    #[inline]
    pub fn number(&self) -> Result<f64, Unknown> {
        if self.number.is_finite() {
            return Ok(self.number);
        }
        Err(self.why_no_number())
    }

    /// Returns the reason why there is no finite number. It stands apart, so that callers inline
    /// the common case alone.
    #[cold]
    fn why_no_number(&self) -> Unknown {
        match self.value() {
            Ok(_) => Unknown::new(format!("{} is not a finite number", self.topic)),
            Err(unknown) => unknown,
        }
    }

    /// Returns the structured value.
    ///
    /// # Errors
    /// Fails as [`value`](Self::value) does, and if the value is a number.
    pub fn structured(&self) -> Result<&Structured, Unknown> {
        match self.value()? {
            Value::Structured(value) => Ok(value),
            _ => Err(Unknown::new(format!("{} is not a record", self.topic))),
        }
    }

    /// Returns the change per second between the last two polls.
    ///
    /// # Errors
    /// Fails as [`number`](Self::number) does, after the first poll, and after a restart of the
    /// counter.
    pub fn rate(&self) -> Result<f64, Unknown> {
        let now = self.number()?;
        let Some((then, before)) = self.previous else {
            return Err(Unknown::new(match self.resets {
                0 => format!("{} was polled once, and a rate needs two polls", self.topic),
                _ => format!("{} has restarted, and a rate needs two polls", self.topic),
            }));
        };
        // The divisor is never zero: a second poll at the same time replaces the first.
        let seconds = self.polled_at.since(then).as_secs_f64();
        Ok((now - before) / seconds)
    }
}

/// Returns true if the numbers are equal or both NaN.
#[inline]
fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}
