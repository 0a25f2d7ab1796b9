use skopos_model::{Kind, Scalar, Structured, Timestamp, Topic, Unit, Value};

use crate::{Outcome, Unknown};

/// What is known of one vertex, fact or insight: its latest sample, and of a number also the one of
/// the poll before, from which rates come.
#[derive(Clone, Debug)]
pub struct Cell {
    topic: Topic,
    unit: Unit,
    kind: Kind,
    /// `None` before the first.
    outcome: Option<Outcome>,
    /// The number of `outcome`; NaN if it is none.
    number: f64,
    since: Timestamp,
    checked_at: Timestamp,
    /// When `number` was found: of a fact `checked_at`, of an insight the run that computed it.
    polled_at: Timestamp,
    previous: Option<(Timestamp, f64)>,
    resets: u64,
}

/// What a new look at a vertex came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The outcome is another one.
    pub(crate) changed: bool,
    /// The rate is another one although the number is not: it stands still after it had moved, or
    /// this is the second poll and there is a rate at all.
    pub(crate) stopped: bool,
    /// `checked_at` is another one.
    pub(crate) checked: bool,
}

impl Taken {
    /// True if somebody who computes with it has to look again.
    pub(crate) fn matters(self) -> bool {
        self.changed || self.stopped
    }
}

impl Cell {
    /// Nothing known yet.
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

    /// Takes what was found at `time`. True if somebody who computes with it has to look again: the
    /// value changed, or stood still after it had moved, which is a rate of zero. A time before the
    /// one of the last look counts as that one.
    pub fn take(&mut self, time: Timestamp, outcome: Outcome) -> bool {
        self.take_outcome(time, None, outcome).matters()
    }

    /// As [`take`](Self::take), for a number: allocates nothing.
    #[inline]
    pub fn take_number(&mut self, time: Timestamp, value: Scalar) -> bool {
        self.take_scalar(time, value).matters()
    }

    #[inline]
    pub(crate) fn take_scalar(&mut self, time: Timestamp, value: Scalar) -> Taken {
        let changed = !self.holds(value);
        if changed {
            self.outcome = Some(Ok(value.into()));
        }
        self.moved_to(time, None, value.as_f64(), changed)
    }

    /// As [`take`](Self::take), for what was computed at `time` from inputs of which the oldest had
    /// been looked at at `checked_at`.
    pub(crate) fn take_outcome(
        &mut self,
        time: Timestamp,
        checked_at: Option<Timestamp>,
        outcome: Outcome,
    ) -> Taken {
        let number = outcome.as_ref().ok().and_then(Value::as_f64).unwrap_or(f64::NAN);
        let changed = match (&self.outcome, &outcome) {
            // A NaN that stays one has not changed, which `==` does not know.
            (Some(Ok(Value::F64(old))), Ok(Value::F64(new))) => !same(*old, *new),
            (Some(old), new) => old != new,
            (None, _) => true,
        };
        if changed {
            self.outcome = Some(outcome);
        }
        self.moved_to(time, checked_at, number, changed)
    }

    /// The inputs were looked at again, and it stands.
    pub(crate) fn stands(&mut self, time: Timestamp, checked_at: Option<Timestamp>) -> Taken {
        self.moved_to(time, checked_at, self.number, false)
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&mut self) {
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
    fn moved_to(
        &mut self,
        time: Timestamp,
        checked_at: Option<Timestamp>,
        number: f64,
        changed: bool,
    ) -> Taken {
        let time = time.max(self.polled_at);
        // Without one of its own it was looked at now; an insight may get older, by an input that
        // joined.
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
            // What was counted before the source restarted says nothing about the rate now.
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
        Taken { changed, stopped, checked }
    }

    /// Its topic.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// The unit of its values.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// How its values move.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The latest value or why there is none; `None` before the first.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Since when the latest value holds.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// When its source was last looked at. Of an insight: when that of its oldest needed input was.
    pub fn checked_at(&self) -> Timestamp {
        self.checked_at
    }

    /// When the number was found: of a fact as `checked_at`, of an insight when it was computed.
    pub fn polled_at(&self) -> Timestamp {
        self.polled_at
    }

    /// How often a counter stepped back.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// When its source was looked at before, and the number that it had then: where its rate begins.
    /// `None` after one poll and after a restart of a counter.
    pub fn previous(&self) -> Option<(Timestamp, f64)> {
        self.previous
    }

    /// The value.
    ///
    /// # Errors
    /// There is none (yet), and why.
    pub fn value(&self) -> Result<&Value, Unknown> {
        match &self.outcome {
            Some(Ok(value)) => Ok(value),
            Some(Err(unknown)) => {
                Err(Unknown::new(format!("{} is unknown: {unknown}", self.topic)))
            }
            None => Err(Unknown::new(format!("{} has no value yet", self.topic))),
        }
    }

    /// The value as a finite number.
    ///
    /// # Errors
    /// As [`value`](Self::value); it is structured or not finite.
    pub fn number(&self) -> Result<f64, Unknown> {
        if self.number.is_finite() {
            return Ok(self.number);
        }
        self.value()?;
        Err(Unknown::new(format!("{} is no finite number", self.topic)))
    }

    /// The structured value.
    ///
    /// # Errors
    /// As [`value`](Self::value); it is a number.
    pub fn structured(&self) -> Result<&Structured, Unknown> {
        match self.value()? {
            Value::Structured(value) => Ok(value),
            _ => Err(Unknown::new(format!("{} is no record", self.topic))),
        }
    }

    /// Change per second between the last two polls.
    ///
    /// # Errors
    /// As [`number`](Self::number); there was one poll only, or the counter has just restarted.
    pub fn rate(&self) -> Result<f64, Unknown> {
        let now = self.number()?;
        let Some((then, before)) = self.previous else {
            return Err(Unknown::new(match self.resets {
                0 => format!("{} was polled once, and a rate needs two polls", self.topic),
                _ => format!("{} has restarted, and a rate needs two polls", self.topic),
            }));
        };
        // Never zero: a second look at the same time replaces the first.
        let seconds = self.polled_at.since(then).as_secs_f64();
        Ok((now - before) / seconds)
    }
}

/// Equal, or both no number.
#[inline]
fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}
