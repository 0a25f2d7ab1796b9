//! The number of watchers of each caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use skopos_access::Caller;
use skopos_model::unpoisoned;

/// Maximum number of clients of one caller that watch at one time: dashboards and programs of a site.
const MAX_OF_A_CALLER: usize = 1024;

/// Maximum number of clients of all callers, so that others find a place beside one who has all of his.
const MAX_OF_ALL: usize = 1536;

/// The clients that watch, by caller.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchers(Arc<Mutex<HashMap<Caller, usize>>>);

/// A client that watches, until it is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    caller: Caller,
    all: Watchers,
}

impl Watchers {
    /// Counts a client; `None` if too many watch.
    pub(super) fn begin(&self, caller: &Caller) -> Option<Watcher> {
        let mut all = unpoisoned(self.0.lock());
        let of_caller = all.get(caller).copied().unwrap_or_default();
        if of_caller >= MAX_OF_A_CALLER || all.values().sum::<usize>() >= MAX_OF_ALL {
            return None;
        }
        all.insert(caller.clone(), of_caller + 1);
        Some(Watcher { caller: caller.clone(), all: self.clone() })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut all = unpoisoned(self.all.0.lock());
        if let Some(count) = all.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_cannot_take_the_places_of_others() {
        let watchers = Watchers::default();
        let of = |caller: &Caller| -> Vec<Watcher> {
            (0..MAX_OF_ALL).map_while(|_| watchers.begin(caller)).collect()
        };
        let held = of(&Caller::Anybody);
        assert_eq!(held.len(), MAX_OF_A_CALLER);
        assert_eq!(of(&Caller::Owner).len(), MAX_OF_ALL - MAX_OF_A_CALLER);
        drop(held);
        assert!(unpoisoned(watchers.0.lock()).is_empty(), "nothing stays");
    }
}
