use skopos_model::{Kind, Structured, Timestamp, Topic, Unit, Value};

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
    previous: Option<(Timestamp, f64)>,
    resets: u64,
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
            previous: None,
            resets: 0,
        }
    }

    /// Takes what was found at `time`. True if somebody who computes with it has to look again: the
    /// value changed, or stood still after it had moved, which is a rate of zero.
    pub fn take(&mut self, time: Timestamp, outcome: Outcome) -> bool {
        let number = outcome.as_ref().ok().and_then(Value::as_f64).unwrap_or(f64::NAN);
        let changed = self.outcome.as_ref() != Some(&outcome);
        if changed {
            self.outcome = Some(outcome);
        }
        self.moved_to(time, number, changed)
    }

    /// As [`take`](Self::take), for a number: allocates nothing.
    #[inline]
    pub fn take_number(&mut self, time: Timestamp, value: skopos_model::Scalar) -> bool {
        let value = Value::from(value);
        let number = value.as_f64().unwrap_or(f64::NAN);
        let changed = !matches!(&self.outcome, Some(Ok(old)) if *old == value);
        if changed {
            self.outcome = Some(Ok(value));
        }
        self.moved_to(time, number, changed)
    }

    fn moved_to(&mut self, time: Timestamp, number: f64, changed: bool) -> bool {
        let before = self.number;
        let moved = self.previous.is_some_and(|(_, older)| older != before);
        self.previous =
            (before.is_finite() && number.is_finite()).then_some((self.checked_at, before));
        if self.kind == Kind::Counter && number < before {
            self.resets += 1;
            // What was counted before the source restarted says nothing about the rate now.
            self.previous = None;
        }
        if changed {
            self.since = time;
        }
        self.number = number;
        self.checked_at = time;
        changed || moved
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
        let seconds = self.checked_at.since(then).as_secs_f64();
        if seconds > 0.0 {
            Ok((now - before) / seconds)
        } else {
            Err(Unknown::new(format!("{} was polled twice at one time", self.topic)))
        }
    }
}
