//! The compiled form of a statement.

use std::time::Duration;

use skopos_model::{Kind, Topic, TopicPattern, Unit};

use crate::error::Position;
use crate::expression::{Condition, Expression, Leaf};
use crate::like::Like;

/// A compiled statement.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) sql: Box<str>,
    /// The text after `WHERE`.
    pub(crate) predicate: Option<Box<str>>,
    /// `None` if it reads `latest`.
    pub(crate) window: Option<Window>,
    pub(crate) outputs: Vec<Output>,
    /// The condition for rows that are read.
    pub(crate) selection: Condition,
    pub(crate) aggregates: Vec<Aggregate>,
    pub(crate) texts: Vec<TextTest>,
    pub(crate) emas: Vec<Ema>,
    /// Patterns that together match every topic that the statement can read.
    pub(crate) topics: Vec<TopicPattern>,
}

/// A selected number.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) name: Box<str>,
    /// The position in the text.
    pub(crate) at: Position,
    pub(crate) expression: Expression,
}

/// The window of `samples`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) length: Duration,
    /// True for `>=`: the window includes a sample that is exactly as old as the window is long.
    pub(crate) closed: bool,
}

/// An aggregate of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) function: Function,
    /// The expression, computed for each row.
    pub(crate) argument: Expression,
    /// The condition for rows that count.
    pub(crate) filter: Condition,
    /// True if it changes with time alone.
    pub(crate) timed: bool,
}

/// A function of many rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Function {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    /// The quantile of this share, from 0 to 1.
    Quantile(f64),
    /// The value of the only row: a column outside of an aggregate.
    Only,
    /// The oldest sample in the window.
    First,
    /// The newest sample in the window.
    Last,
    /// The change per second over the window.
    Rate,
    /// The mean of the window, in which a sample from this many seconds ago weighs half.
    Ema(f64),
}

/// An exponential mean of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ema {
    /// True for the mean of the rate, false for the mean of the value.
    pub(crate) of_rate: bool,
    pub(crate) fading: Fading,
}

/// The fading of an exponential mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fading {
    /// By time: this many seconds halve the weight of older values.
    HalfLife(f64),
    /// By change: this is the share of a new value.
    Alpha(f64),
}

/// A test of one text of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextTest {
    pub(crate) column: TextColumn,
    pub(crate) test: Test,
}

/// A column that is a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextColumn {
    Topic,
    /// The first segment of the topic.
    Node,
    Unit,
    Kind,
}

/// The condition on a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Test {
    /// The text is one of these, which are sorted.
    In(Vec<Box<str>>),
    Like(Like),
}

impl TextTest {
    /// Returns the outcome; `None` if it is about unit or kind and these are unknown.
    pub(crate) fn holds(&self, topic: &Topic, described: Option<(Unit, Kind)>) -> Option<bool> {
        let unit;
        let text = match self.column {
            TextColumn::Topic => topic.as_str(),
            TextColumn::Node => topic.node(),
            TextColumn::Unit => {
                unit = described?.0;
                unit.as_str()
            }
            TextColumn::Kind => described?.1.name(),
        };
        Some(match &self.test {
            Test::In(list) => list.binary_search_by(|item| (**item).cmp(text)).is_ok(),
            Test::Like(like) => like.matches(text),
        })
    }
}

impl Program {
    /// Returns true if the statement can read rows of `topic`; unit and kind may be unknown.
    pub(crate) fn may_read(&self, topic: &Topic, described: Option<(Unit, Kind)>) -> bool {
        let text = |test: usize| self.texts[test].holds(topic, described);
        if self.selection.by_texts(&text) == Some(false) {
            return false;
        }
        self.aggregates.iter().any(|a| a.filter.by_texts(&text) != Some(false))
    }

    /// Returns the outcomes of all text tests, as bits.
    pub(crate) fn texts_of(&self, topic: &Topic, unit: Unit, kind: Kind) -> u64 {
        self.texts.iter().enumerate().fold(0, |bits, (at, test)| {
            bits | u64::from(test.holds(topic, Some((unit, kind))) == Some(true)) << at
        })
    }

    /// Returns true if the outcome changes with time alone.
    pub(crate) fn is_timed(&self) -> bool {
        self.window.is_some() || self.aggregates.iter().any(|aggregate| aggregate.timed)
    }

    /// Returns true if it reads `age`, which needs a report of every poll of a row.
    pub(crate) fn reads_age(&self) -> bool {
        self.reads(|leaf| leaf == Leaf::Age)
    }

    /// Returns true if it reads rates or means of rows.
    pub(crate) fn reads_history(&self) -> bool {
        self.reads(|leaf| matches!(leaf, Leaf::Rate | Leaf::Ema(_)))
    }

    fn reads(&self, is_it: impl Fn(Leaf) -> bool) -> bool {
        let mut reads = false;
        let mut visit = |leaf| reads |= is_it(leaf);
        self.selection.leaves(&mut visit);
        for aggregate in &self.aggregates {
            aggregate.argument.leaves(&mut visit);
            aggregate.filter.leaves(&mut visit);
        }
        reads
    }

    /// Returns true if a leaf changes with time alone.
    pub(crate) fn leaf_is_timed(emas: &[Ema], leaf: Leaf) -> bool {
        match leaf {
            Leaf::Age => true,
            Leaf::Ema(at) => matches!(emas[at].fading, Fading::HalfLife(_)),
            Leaf::Value | Leaf::Rate | Leaf::Aggregate(_) => false,
        }
    }
}
