//! What a statement was compiled to.

use std::time::Duration;

use skopos_model::{Kind, Topic, TopicPattern, Unit};

use crate::error::Position;
use crate::expression::{Condition, Expression, Leaf};
use crate::like::Like;

/// A compiled statement.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) sql: Box<str>,
    /// What stands behind its `WHERE`.
    pub(crate) predicate: Option<Box<str>>,
    /// `None` if it reads `latest`.
    pub(crate) window: Option<Window>,
    pub(crate) outputs: Vec<Output>,
    /// Which rows are read.
    pub(crate) selection: Condition,
    pub(crate) aggregates: Vec<Aggregate>,
    pub(crate) texts: Vec<TextTest>,
    pub(crate) emas: Vec<Ema>,
    /// Together they match every topic that the statement can read.
    pub(crate) topics: Vec<TopicPattern>,
}

/// One selected number.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) name: Box<str>,
    /// Where it stands.
    pub(crate) at: Position,
    pub(crate) expression: Expression,
}

/// The window of `samples` that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) length: Duration,
    /// True for `>=`: a sample that is exactly as old as the window is long is in it.
    pub(crate) closed: bool,
}

/// One aggregate of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) function: Function,
    /// Computed for each row.
    pub(crate) argument: Expression,
    /// Which of the rows that are read count.
    pub(crate) filter: Condition,
    /// True if time alone moves it.
    pub(crate) timed: bool,
}

/// What is made of many rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Function {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    /// The quantile of this share.
    Quantile(f64),
    /// Of the one row that there is: a column outside of any aggregate.
    Only,
    /// Of the oldest sample in the window.
    First,
    /// Of the newest.
    Last,
    /// Change per second over the window.
    Rate,
    /// Mean of the window in which a sample of this many seconds ago weighs half.
    Ema(f64),
}

/// An exponential mean of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ema {
    /// Of its rate; else of its value.
    pub(crate) of_rate: bool,
    pub(crate) fading: Fading,
}

/// How an exponential mean forgets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fading {
    /// By time: this many seconds halve the weight of what was.
    HalfLife(f64),
    /// By change: the share of a new value.
    Alpha(f64),
}

/// A test of one of a row's texts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextTest {
    pub(crate) column: TextColumn,
    pub(crate) test: Test,
}

/// The columns that are texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextColumn {
    Topic,
    /// The first segment of the topic.
    Node,
    Unit,
    Kind,
}

/// What a text must be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Test {
    /// One of these, in order.
    In(Vec<Box<str>>),
    Like(Like),
}

impl TextTest {
    /// Whether it holds; `None` if it is about unit or kind and they are not known.
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
    /// Whether rows of `topic` can be read; unit and kind may be unknown yet.
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

    /// True if time alone moves the outcome.
    pub(crate) fn is_timed(&self) -> bool {
        self.window.is_some() || self.aggregates.iter().any(|aggregate| aggregate.timed)
    }

    /// True if it reads `age`, for which every row has to be told when it was looked at.
    pub(crate) fn reads_age(&self) -> bool {
        self.reads(|leaf| leaf == Leaf::Age)
    }

    /// True if it reads rates or means of rows.
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

    /// Whether an expression or condition of a row moves with time.
    pub(crate) fn leaf_is_timed(emas: &[Ema], leaf: Leaf) -> bool {
        match leaf {
            Leaf::Age => true,
            Leaf::Ema(at) => matches!(emas[at].fading, Fading::HalfLife(_)),
            Leaf::Value | Leaf::Rate | Leaf::Aggregate(_) => false,
        }
    }
}
