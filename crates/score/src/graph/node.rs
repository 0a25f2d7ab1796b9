use std::time::Duration;

use skopos_model::{Timestamp, TopicPattern};

use super::spec::InsightSpec;
use super::table::Table;
use crate::{Cell, Input, Insight, Unknown};

/// An insight's vertex: what it is computed from, by whom, and what that costs.
pub(super) struct Node {
    pub(super) spec: InsightSpec,
    pub(super) insight: Box<dyn Insight>,
    pub(super) matched: Vec<Matched>,
    /// Input and place of those that match and that it does not get to see.
    pub(super) refused: Vec<(u16, u32, Unknown)>,
    pub(super) max_age: Option<Duration>,
    /// Its value moves with time alone.
    pub(super) timed: bool,
    pub(super) evaluated_at: Timestamp,
    /// True if an input is needed; if none is, all of them make its age.
    has_needed: bool,
    /// Its outcome has to be looked for.
    pub(super) dirty: bool,
    /// Its oldest input has to be looked for.
    pub(super) reorder: bool,
    /// Stands in the queue of this run.
    pub(super) queued: bool,
    /// Unknown because its oldest input is too old.
    pub(super) aged: bool,
    /// The needed input that was looked at longest ago, and when that was.
    pub(super) oldest: Option<(u32, Timestamp)>,
    pub(super) cost: Cost,
}

/// What an insight has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How often it was evaluated.
    pub runs: u64,
    /// Nanoseconds of the last evaluation; 0 if nobody gave a clock.
    pub last_ns: u64,
    /// Nanoseconds of all.
    pub total_ns: u64,
}

/// One input as it stands in the graph.
#[derive(Clone, Debug)]
pub(crate) struct Matched {
    input: Input,
    pattern: TopicPattern,
    /// Places in the table, in the order of their topics.
    indexes: Vec<u32>,
    /// Why there is nothing.
    missing: Option<Box<str>>,
}

impl Node {
    pub(super) fn new(
        mut spec: InsightSpec,
        patterns: Vec<TopicPattern>,
        insight: Box<dyn Insight>,
    ) -> Self {
        let inputs = std::mem::take(&mut spec.inputs);
        Self {
            has_needed: inputs.iter().any(|input| input.needed),
            matched: inputs.into_iter().zip(patterns).map(Matched::new).collect(),
            spec,
            timed: insight.is_timed(),
            evaluated_at: Timestamp::default(),
            insight,
            refused: Vec::new(),
            max_age: None,
            dirty: true,
            reorder: true,
            queued: false,
            aged: false,
            oldest: None,
            cost: Cost::default(),
        }
    }

    /// The needed input that was looked at longest ago: of those that are known, for what is unknown
    /// has no age, and makes an outcome only if the insight knows better.
    pub(super) fn find_oldest(&self, cells: &[Cell]) -> Option<(u32, Timestamp)> {
        let mut oldest: Option<(u32, Timestamp)> = None;
        for matched in &self.matched {
            if self.has_needed && !matched.input.needed {
                continue;
            }
            for &index in &matched.indexes {
                let cell = &cells[index as usize];
                let known = matches!(cell.outcome(), Some(Ok(_)));
                if known && oldest.is_none_or(|(_, time)| cell.checked_at() < time) {
                    oldest = Some((index, cell.checked_at()));
                }
            }
        }
        oldest
    }

    /// An input was looked at: does that say another age?
    pub(super) fn touch(&mut self, index: u32, checked_at: Timestamp) {
        self.reorder |=
            self.oldest.is_none_or(|(oldest, time)| oldest == index || checked_at < time);
    }
}

impl Matched {
    fn new((input, pattern): (Input, TopicPattern)) -> Self {
        Self { input, pattern, indexes: Vec::new(), missing: None }
    }

    pub(crate) fn input(&self) -> &Input {
        &self.input
    }

    pub(crate) fn indexes(&self) -> &[u32] {
        &self.indexes
    }

    pub(crate) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    pub(super) fn pattern(&self) -> &TopicPattern {
        &self.pattern
    }

    /// True if it is other reason than before.
    pub(super) fn set_missing(&mut self, reason: Option<Box<str>>) -> bool {
        let other = self.missing != reason;
        self.missing = reason;
        other
    }

    /// The vertex at `index` is one of them now.
    pub(super) fn insert(&mut self, table: &Table, index: u32) {
        let topic = table.topic(index);
        let place = self.indexes.partition_point(|&other| table.topic(other) < topic);
        self.indexes.insert(place, index);
    }

    /// And now it is none. True if it was one.
    pub(super) fn remove(&mut self, table: &Table, index: u32) -> bool {
        let topic = table.topic(index);
        let place = self.indexes.partition_point(|&other| table.topic(other) < topic);
        let found = self.indexes.get(place) == Some(&index);
        if found {
            self.indexes.remove(place);
        }
        found
    }
}
