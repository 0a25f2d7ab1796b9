use skopos_model::TopicPattern;

use crate::cell::Cell;
use crate::input::Input;

/// One input with the vertices that match it.
#[derive(Clone, Debug)]
pub(crate) struct Matched {
    input: Input,
    pattern: TopicPattern,
    /// Indexes in the table, in the order of topics.
    indexes: Vec<u32>,
    /// The reason why no vertex matches.
    missing: Option<Box<str>>,
}

impl Matched {
    pub(crate) fn new((input, pattern): (Input, TopicPattern)) -> Self {
        Self { input, pattern, indexes: Vec::new(), missing: None }
    }

    #[inline]
    pub(crate) fn input(&self) -> &Input {
        &self.input
    }

    #[inline]
    pub(crate) fn indexes(&self) -> &[u32] {
        &self.indexes
    }

    #[inline]
    pub(crate) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    pub(crate) fn pattern(&self) -> &TopicPattern {
        &self.pattern
    }

    /// Sets the reason and returns true if it changed.
    pub(crate) fn set_missing(&mut self, reason: Option<Box<str>>) -> bool {
        let other = self.missing != reason;
        self.missing = reason;
        other
    }

    /// Adds the vertex at `index`.
    pub(crate) fn insert(&mut self, cells: &[Cell], index: u32) {
        let topic = cells[index as usize].topic();
        let place = self.indexes.partition_point(|&other| cells[other as usize].topic() < topic);
        self.indexes.insert(place, index);
    }

    /// Removes the vertex at `index` and returns true if it was there.
    pub(crate) fn remove(&mut self, cells: &[Cell], index: u32) -> bool {
        let topic = cells[index as usize].topic();
        let place = self.indexes.partition_point(|&other| cells[other as usize].topic() < topic);
        let found = self.indexes.get(place) == Some(&index);
        if found {
            self.indexes.remove(place);
        }
        found
    }
}
