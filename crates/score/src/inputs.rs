use skopos_model::{Structured, Timestamp, Unit};

use crate::{Cell, Unknown};

/// What an insight is computed from: a name in its formula, and the topics that stand for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its name in the formula.
    pub name: String,
    /// Which topics: a pattern of `skopos_model::TopicPattern`, the node included.
    pub pattern: String,
    /// The unit that all of them must have; `None` if any will do.
    pub unit: Option<Unit>,
    /// True if there is no outcome without it; its age is then the insight's age.
    pub needed: bool,
}

/// One input as it stands: the cells that match, in the order of their topics, and what to say if
/// there are none.
#[derive(Clone, Debug)]
pub struct Slot<'a> {
    /// What was asked for.
    pub input: &'a Input,
    /// What there is.
    pub cells: Vec<&'a Cell>,
    /// Why there is nothing, if that is known: the reason for which the sensor was skipped.
    pub missing: Option<&'a str>,
}

/// All inputs of one insight, by their place in its list.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    now: Timestamp,
    slots: &'a [Slot<'a>],
}

impl<'a> Inputs<'a> {
    /// The inputs as they stand at `now`.
    pub fn new(now: Timestamp, slots: &'a [Slot<'a>]) -> Self {
        Self { now, slots }
    }

    /// The time of this run.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Every cell of an input.
    pub fn all(&self, slot: usize) -> &'a [&'a Cell] {
        self.slots.get(slot).map_or(&[], |slot| &slot.cells)
    }

    /// The first cell of an input that stands for one topic.
    ///
    /// # Errors
    /// There is none, and why.
    pub fn one(&self, slot: usize) -> Result<&'a Cell, Unknown> {
        let Some(slot) = self.slots.get(slot) else {
            return Err(Unknown::new(format!("there is no input {slot}")));
        };
        slot.cells.first().copied().ok_or_else(|| {
            let pattern = &slot.input.pattern;
            Unknown::new(match slot.missing {
                Some(reason) => format!("no {pattern}: {reason}"),
                None => format!("no {pattern}"),
            })
        })
    }

    /// Its number. Errors as [`one`](Self::one) and [`Cell::number`].
    pub fn number(&self, slot: usize) -> Result<f64, Unknown> {
        self.one(slot)?.number()
    }

    /// Its change per second. Errors as [`one`](Self::one) and [`Cell::rate`].
    pub fn rate(&self, slot: usize) -> Result<f64, Unknown> {
        self.one(slot)?.rate()
    }

    /// Its structured value. Errors as [`one`](Self::one) and [`Cell::structured`].
    pub fn structured(&self, slot: usize) -> Result<&'a Structured, Unknown> {
        self.one(slot)?.structured()
    }
}
