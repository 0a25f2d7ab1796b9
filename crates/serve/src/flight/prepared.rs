//! The prepared statements that clients hold: so many, so long, and no longer than they are used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

use skopos_query::Prepared;
use skopos_query::arrow::array::RecordBatch;

/// The most at one time. A program has a few, an ORM some dozen; clients that never close theirs reach
/// it, and then the one that was not used for longest goes.
pub(super) const MAX_STATEMENTS: usize = 1024;

/// Bytes of text and values that all of them may have. Plans are some ten times as long.
pub(super) const MAX_BYTES: usize = 8 << 20;

/// How long one is kept that nobody uses.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Statements by number.
#[derive(Default)]
pub(super) struct Statements {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: HashMap<u64, Held>,
    last: u64,
    bytes: usize,
}

struct Held {
    prepared: Arc<Prepared>,
    /// The values bound last.
    values: Option<RecordBatch>,
    bytes: usize,
    used_at: Instant,
}

/// A statement and its values.
pub(super) struct Bound {
    pub prepared: Arc<Prepared>,
    pub values: Option<RecordBatch>,
}

impl Statements {
    /// Holds one more, and says its number.
    pub(super) fn add(&self, prepared: Prepared) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        let (number, bytes) = (state.last, prepared.sql().len());
        let used_at = Instant::now();
        let held = Held { prepared: Arc::new(prepared), values: None, bytes, used_at };
        state.held.insert(number, held);
        state.bytes += bytes;
        state.make_room(number);
        number
    }

    /// The one of this number, if it is held.
    pub(super) fn find(&self, number: u64) -> Option<Bound> {
        let mut state = self.lock();
        state.forget_old();
        let held = state.held.get_mut(&number)?;
        held.used_at = Instant::now();
        Some(Bound { prepared: held.prepared.clone(), values: held.values.clone() })
    }

    /// Binds values; `false` if there is none of this number.
    pub(super) fn bind(&self, number: u64, values: RecordBatch) -> bool {
        let mut state = self.lock();
        let Some(held) = state.held.get_mut(&number) else { return false };
        let before = held.bytes;
        held.bytes = held.prepared.sql().len() + values.get_array_memory_size();
        held.values = Some(values);
        held.used_at = Instant::now();
        state.bytes = state.bytes + held_bytes(&state, number) - before;
        state.make_room(number);
        true
    }

    /// Lets go of one; whether there was one.
    pub(super) fn remove(&self, number: u64) -> bool {
        self.lock().remove(number)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

fn held_bytes(state: &State, number: u64) -> usize {
    state.held.get(&number).map_or(0, |held| held.bytes)
}

impl State {
    fn remove(&mut self, number: u64) -> bool {
        let removed = self.held.remove(&number);
        self.bytes -= removed.as_ref().map_or(0, |held| held.bytes);
        removed.is_some()
    }

    fn forget_old(&mut self) {
        let is_old = |held: &Held| held.used_at.elapsed() > KEPT_FOR;
        let old: Vec<u64> =
            self.held.iter().filter(|(_, held)| is_old(held)).map(|(n, _)| *n).collect();
        for number in old {
            self.remove(number);
        }
    }

    /// Lets those go that were not used for longest, but for `newest`.
    fn make_room(&mut self, newest: u64) {
        while self.held.len() > MAX_STATEMENTS || self.bytes > MAX_BYTES {
            let others = self.held.iter().filter(|(number, _)| **number != newest);
            let Some((&oldest, _)) = others.min_by_key(|(_, held)| held.used_at) else { return };
            self.remove(oldest);
        }
    }
}
