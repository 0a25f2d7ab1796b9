//! The events that the threads of the storage wait for.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use skopos_model::unpoisoned;

/// Bytes of accepted records after which a commit does not wait for more.
const COMMIT_BYTES: u64 = 1 << 20;

/// Time for which a commit waits for more records.
const COMMIT_AFTER: Duration = Duration::from_millis(5);

/// The events that the threads wait for.
#[derive(Debug, Default)]
pub(super) struct Signal {
    state: Mutex<State>,
    /// Notified of accepted records, and of the end.
    accepted: Condvar,
    /// Notified of the end.
    ended: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Bytes that were accepted since the last commit.
    waiting: u64,
    is_ending: bool,
}

impl Signal {
    /// Notes that records were accepted.
    pub(super) fn accept(&self, bytes: u64) {
        let mut state = unpoisoned(self.state.lock());
        let was_quiet = state.waiting == 0;
        state.waiting += bytes;
        if was_quiet || state.waiting >= COMMIT_BYTES {
            self.accepted.notify_one();
        }
    }

    /// Waits until records are to be committed; `None` at the end, if there are none.
    pub(super) fn next(&self) -> Option<u64> {
        let state = unpoisoned(self.state.lock());
        let is_quiet = |state: &mut State| state.waiting == 0 && !state.is_ending;
        let state = unpoisoned(self.accepted.wait_while(state, is_quiet));
        let is_little = |state: &mut State| state.waiting < COMMIT_BYTES && !state.is_ending;
        let waited = self.accepted.wait_timeout_while(state, COMMIT_AFTER, is_little);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let waiting = std::mem::take(&mut state.waiting);
        (waiting > 0).then_some(waiting)
    }

    /// Waits for a time, or for the end. Returns true at the end.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let state = unpoisoned(self.state.lock());
        let waited = self.ended.wait_timeout_while(state, time, |state| !state.is_ending);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_ending
    }

    pub(super) fn end(&self) {
        unpoisoned(self.state.lock()).is_ending = true;
        self.accepted.notify_all();
        self.ended.notify_all();
    }
}
