//! The state of one subject.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Map, Value};
use skopos_model::Timestamp;

/// The state of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is not in the answer.
    Quiet,
    /// It has been in every answer since this time.
    Pending { since: Timestamp },
    /// It fires, and was in an answer last at `seen`.
    Firing { since: Timestamp, seen: Timestamp },
}

/// A subject with its recent past.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) state: State,
    /// Time of the last action that told that it fires or flaps, if its end is not told yet.
    pub(super) told: Option<Timestamp>,
    pub(super) flaps: bool,
    /// Times of its last changes between quiet and firing.
    changes: VecDeque<Timestamp>,
    pub(super) values: Map<String, Value>,
}

impl Subject {
    pub(super) fn new() -> Self {
        Self {
            state: State::Quiet,
            told: None,
            flaps: false,
            changes: VecDeque::new(),
            values: Map::new(),
        }
    }

    pub(super) fn is_firing(&self) -> bool {
        matches!(self.state, State::Firing { .. })
    }

    /// Returns the time at which it came into the answer; `now` if it is not there.
    pub(super) fn since(&self, now: Timestamp) -> Timestamp {
        match self.state {
            State::Quiet => now,
            State::Pending { since } | State::Firing { since, .. } => since,
        }
    }

    /// Notes a change. Returns true if it is the last of `most` changes within `window`.
    pub(super) fn change(&mut self, now: Timestamp, most: usize, window: Duration) -> bool {
        self.changes.push_back(now);
        while self.changes.len() > most {
            self.changes.pop_front();
        }
        self.changes.len() == most
            && self.changes.front().is_some_and(|first| now.since(*first) <= window)
    }

    /// Returns true if the last change was `window` ago or earlier.
    pub(super) fn is_steady(&self, now: Timestamp, window: Duration) -> bool {
        self.changes.back().is_none_or(|last| now.since(*last) >= window)
    }

    /// Returns the time of the last change.
    pub(super) fn changed_at(&self) -> Option<Timestamp> {
        self.changes.back().copied()
    }
}
