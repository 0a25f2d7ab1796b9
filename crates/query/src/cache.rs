//! Statements that were compiled: programs repeat the same few.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;
use skopos_model::unpoisoned;

/// Number of statements in the cache.
const MAX_STATEMENTS: usize = 512;

/// Bytes of the texts of all statements in the cache. A plan takes some ten times the bytes of its text.
const MAX_BYTES: usize = 4 << 20;

/// Compiled statements by text. The oldest make room for others.
#[derive(Debug)]
pub(crate) struct Cache<T>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    /// Texts are hundreds of bytes long, and the hash of the standard library takes a nanosecond for each. A caller that
    /// finds texts of one hash makes look-ups as long as [`MAX_STATEMENTS`] comparisons.
    compiled: HashMap<Arc<str>, Arc<T>, RandomState>,
    /// The texts, the oldest first.
    texts: VecDeque<Arc<str>>,
    bytes: usize,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::new(State { compiled: HashMap::default(), texts: VecDeque::new(), bytes: 0 }))
    }
}

impl<T> Cache<T> {
    pub(crate) fn get(&self, sql: &str) -> Option<Arc<T>> {
        unpoisoned(self.0.lock()).compiled.get(sql).cloned()
    }

    pub(crate) fn add(&self, sql: &str, compiled: Arc<T>) {
        let text: Arc<str> = sql.into();
        let mut state = unpoisoned(self.0.lock());
        // The first of two that were compiled at the same time is evicted in its turn.
        if state.compiled.contains_key(sql) {
            return;
        }
        state.bytes += text.len();
        state.texts.push_back(text.clone());
        state.compiled.insert(text, compiled);
        let mut evicted = Vec::new();
        while state.texts.len() > MAX_STATEMENTS || state.bytes > MAX_BYTES {
            let Some(oldest) = state.texts.pop_front() else { break };
            state.bytes -= oldest.len();
            evicted.extend(state.compiled.remove(&oldest));
        }
        // A large plan takes milliseconds to drop: others need not wait for it.
        drop(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_statements_make_room_in_number_and_in_bytes() {
        let cache = Cache::default();
        for at in 0..=MAX_STATEMENTS {
            cache.add(&at.to_string(), Arc::new(at));
            cache.add(&at.to_string(), Arc::new(at + 1));
        }
        assert_eq!((cache.get("0"), cache.get("1").as_deref()), (None, Some(&1)));
        let long = "x".repeat(MAX_BYTES - 2);
        cache.add(&long, Arc::new(0));
        assert_eq!(cache.get("512"), None, "three digits do not fit beside it");
        assert_eq!(cache.get(&long).as_deref(), Some(&0));
    }
}
