//! The state of one subject.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Map, Value};
use skopos_model::Timestamp;

use super::event::Kind;
use super::moment::Moment;

/// Longest pause before an action that failed is tried again. A receiver that comes back learns within this time of all that
/// still fires.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The state of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is not in the answer.
    Quiet,
    /// It has been in every answer since this time.
    Pending { since: Moment },
    /// It fires, and was in an answer last at the steady time `seen`.
    Firing { since: Moment, seen: Timestamp },
}

/// An action that was handed on and is not known to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    /// Kind of its event.
    pub(super) kind: Kind,
    /// Time of its event.
    pub(super) at: Moment,
    /// Time since which its subject was in the answer.
    pub(super) since: Moment,
    /// Steady time at which it is due again, if it failed.
    pub(super) again: Option<Timestamp>,
}

/// A subject with its recent past. Times without a name are on the steady clock.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) state: State,
    /// Time of the last action of a subject that fires or flaps, unless the action of its end was handed on since.
    pub(super) told: Option<Moment>,
    /// The last action, if it is not done and no change replaced it. Without `told` it is the action of an end, which stays
    /// until another action is handed on: if it fails, the end is still due once the subject is quiet.
    pub(super) action: Option<Action>,
    /// Number of actions that failed since one was done.
    failures: u32,
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
            action: None,
            failures: 0,
            flaps: false,
            changes: VecDeque::new(),
            values: Map::new(),
        }
    }

    pub(super) fn is_firing(&self) -> bool {
        matches!(self.state, State::Firing { .. })
    }

    /// Returns true if it fires or flaps.
    pub(super) fn is_active(&self) -> bool {
        self.is_firing() || self.flaps
    }

    /// Returns true if the last action is that of an end, and the subject fires again or flaps.
    pub(super) fn holds_an_end(&self) -> bool {
        self.action.is_some() && self.told.is_none() && self.is_active()
    }

    /// Returns the time at which it came into the answer; `now` if it is not there.
    pub(super) fn since(&self, now: Moment) -> Moment {
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

    /// Notes that the action of an event of this kind is handed on.
    pub(super) fn act(&mut self, kind: Kind, now: Moment, since: Moment) {
        self.told = (kind != Kind::Resolved && self.is_active()).then_some(now);
        self.action = Some(Action { kind, at: now, since, again: None });
    }

    /// Drops the last action, unless it is that of an end, because a change replaces it.
    pub(super) fn replace_action(&mut self) {
        if self.told.is_some() {
            self.action = None;
        }
    }

    /// Notes the outcome of the action whose event was at `event`. The pause before it is tried again begins with `first`, and
    /// doubles with each failure.
    pub(super) fn note_outcome(
        &mut self,
        now: Timestamp,
        event: Timestamp,
        is_done: bool,
        first: Duration,
    ) {
        let is_last = |action: &Action| action.at.at == event && action.again.is_none();
        if !self.action.as_ref().is_some_and(is_last) {
            return;
        }
        if is_done {
            (self.action, self.failures) = (None, 0);
            return;
        }
        let pause = first.saturating_mul(2u32.saturating_pow(self.failures)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.try_again(now.saturating_add(pause));
    }

    /// Makes the last action due again at a time.
    pub(super) fn try_again(&mut self, time: Timestamp) {
        if let Some(action) = &mut self.action {
            action.again = Some(time);
        }
    }

    /// Returns the kind of the event with which an action that failed is tried again, once its pause is over, and the time since
    /// which its subject was in the answer. An end waits until the subject is quiet.
    pub(super) fn failed(&self, now: Timestamp) -> Option<(Kind, Moment)> {
        if self.holds_an_end() {
            return None;
        }
        let is_due = |action: &Action| action.again.is_some_and(|again| now >= again);
        let Action { kind, since, .. } = self.action.filter(is_due)?;
        match kind {
            Kind::Firing => Some((Kind::StillFiring, since)),
            kind => Some((kind, since)),
        }
    }
}
