//! Prepared statements that clients hold: each belongs to the caller who prepared it. Their number, bytes and age are
//! bounded.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

use skopos_access::Caller;
use skopos_query::Prepared;
use skopos_query::arrow::array::RecordBatch;

/// Maximum number of statements. A program has a few, an ORM some dozen. Clients that do not close their statements reach
/// the limit; then the least recently used statement is evicted.
pub(super) const MAX_STATEMENTS: usize = 1024;

/// Maximum bytes of plans and values of all statements.
pub(super) const MAX_BYTES: usize = 256 << 20;

/// Bytes of a plan for each byte of its statement, rounded up from some 130 for statements of 400 columns.
const PLAN_BYTES: usize = 150;

/// Time after which an unused statement is evicted.
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

/// One statement.
struct Held {
    owner: Caller,
    prepared: Arc<Prepared>,
    /// The last bound values.
    values: Option<RecordBatch>,
    bytes: usize,
    used_at: Instant,
}

/// A statement and its values.
pub(super) struct Bound {
    /// The statement.
    pub prepared: Arc<Prepared>,
    /// The last bound values.
    pub values: Option<RecordBatch>,
}

impl Statements {
    /// Stores a statement of `owner` and returns its number.
    pub(super) fn add(&self, owner: Caller, prepared: Prepared) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        let (number, bytes) = (state.last, plan_bytes(&prepared));
        let used_at = Instant::now();
        let held = Held { owner, prepared: Arc::new(prepared), values: None, bytes, used_at };
        state.held.insert(number, held);
        state.bytes += bytes;
        state.make_room(number);
        number
    }

    /// Returns the statement of `owner` with this number, if it is stored.
    pub(super) fn find(&self, owner: &Caller, number: u64) -> Option<Bound> {
        let mut state = self.lock();
        state.evict_old();
        let held = state.of(owner, number)?;
        held.used_at = Instant::now();
        Some(Bound { prepared: held.prepared.clone(), values: held.values.clone() })
    }

    /// Binds values to a statement of `owner`; false if the number is unknown.
    pub(super) fn bind(&self, owner: &Caller, number: u64, values: RecordBatch) -> bool {
        let mut state = self.lock();
        let Some(held) = state.of(owner, number) else { return false };
        let before = held.bytes;
        held.bytes = plan_bytes(&held.prepared) + values.get_array_memory_size();
        held.values = Some(values);
        held.used_at = Instant::now();
        state.bytes = state.bytes + held_bytes(&state, number) - before;
        state.make_room(number);
        true
    }

    /// Removes a statement of `owner`; false if the number is unknown.
    pub(super) fn remove(&self, owner: &Caller, number: u64) -> bool {
        let mut state = self.lock();
        state.of(owner, number).is_some() && state.remove(number)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

fn plan_bytes(prepared: &Prepared) -> usize {
    prepared.sql().len() * PLAN_BYTES
}

fn held_bytes(state: &State, number: u64) -> usize {
    state.held.get(&number).map_or(0, |held| held.bytes)
}

impl State {
    fn of(&mut self, owner: &Caller, number: u64) -> Option<&mut Held> {
        self.held.get_mut(&number).filter(|held| held.owner == *owner)
    }

    fn remove(&mut self, number: u64) -> bool {
        let removed = self.held.remove(&number);
        self.bytes -= removed.as_ref().map_or(0, |held| held.bytes);
        removed.is_some()
    }

    fn evict_old(&mut self) {
        let is_old = |held: &Held| held.used_at.elapsed() > KEPT_FOR;
        let old: Vec<u64> =
            self.held.iter().filter(|(_, held)| is_old(held)).map(|(n, _)| *n).collect();
        for number in old {
            self.remove(number);
        }
    }

    /// Evicts statements, but not `newest`, until the limits hold: the least recently used ones of the owner who has most.
    fn make_room(&mut self, newest: u64) {
        while self.held.len() > MAX_STATEMENTS || self.bytes > MAX_BYTES {
            let is_too_long = self.bytes > MAX_BYTES;
            let mut taken: HashMap<&Caller, usize> = HashMap::new();
            for held in self.held.values() {
                *taken.entry(&held.owner).or_default() += if is_too_long { held.bytes } else { 1 };
            }
            let others = self.held.iter().filter(|(number, _)| **number != newest);
            let key = |held: &Held| (Reverse(taken[&held.owner]), held.used_at);
            let Some((&oldest, _)) = others.min_by_key(|(_, held)| key(held)) else { return };
            self.remove(oldest);
        }
    }
}
