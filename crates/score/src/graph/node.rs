use std::time::Duration;

use skopos_model::{Timestamp, TopicPattern};

use super::spec::InsightSpec;
use crate::cell::{Cell, set_back};
use crate::insight::Insight;
use crate::matched::Matched;
use crate::unknown::Unknown;

/// The vertex of an insight: its inputs, its computation, and its cost.
pub(super) struct Node {
    pub(super) spec: InsightSpec,
    pub(super) insight: Box<dyn Insight>,
    pub(super) matched: Vec<Matched>,
    /// Input, index and reason of vertices that match an input and are refused.
    pub(super) refused: Vec<(u16, u32, Unknown)>,
    pub(super) max_age: Option<Duration>,
    /// True if the value changes by time alone.
    pub(super) timed: bool,
    pub(super) evaluated_at: Timestamp,
    /// True if some input is needed; otherwise all inputs determine the age.
    has_needed: bool,
    /// True if the outcome has to be computed.
    pub(super) dirty: bool,
    /// True if the oldest input has to be searched.
    pub(super) reorder: bool,
    /// True while the insight is in the queue of this run.
    pub(super) queued: bool,
    /// True while the insight is unknown because its oldest input is too old.
    pub(super) aged: bool,
    /// The needed input that was polled longest ago, and the time of that poll.
    pub(super) oldest: Option<(u32, Timestamp)>,
    pub(super) cost: Cost,
}

/// The cost of an insight so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The number of evaluations.
    pub runs: u64,
    /// Nanoseconds of the last evaluation; 0 without a clock.
    pub last_ns: u64,
    /// Nanoseconds of all evaluations.
    pub total_ns: u64,
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

    /// Moves all times back by `by`.
    pub(super) fn set_back(&mut self, by: Duration) {
        let oldest = self.oldest.as_mut().map(|(_, time)| time);
        std::iter::once(&mut self.evaluated_at).chain(oldest).for_each(|time| set_back(time, by));
    }

    /// Returns the needed input that was polled longest ago, among those with a value: an unknown
    /// input has no age, and an outcome without it exists only if the insight can do without.
    pub(super) fn find_oldest(&self, cells: &[Cell]) -> Option<(u32, Timestamp)> {
        let mut oldest: Option<(u32, Timestamp)> = None;
        for matched in &self.matched {
            if self.has_needed && !matched.input().needed {
                continue;
            }
            for &index in matched.indexes() {
                let cell = &cells[index as usize];
                let known = matches!(cell.outcome(), Some(Ok(_)));
                if known && oldest.is_none_or(|(_, time)| cell.checked_at() < time) {
                    oldest = Some((index, cell.checked_at()));
                }
            }
        }
        oldest
    }

    /// Records that an input was polled, which may change the age of the insight.
    #[inline]
    pub(super) fn touch(&mut self, index: u32, checked_at: Timestamp) {
        self.reorder |=
            self.oldest.is_none_or(|(oldest, time)| oldest == index || checked_at < time);
    }
}
