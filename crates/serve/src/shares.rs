//! Counts of what each one holds of something, with a bound for each and one for all together.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use skopos_model::unpoisoned;

/// The shares that are held, by holder.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    of_one: usize,
    of_all: usize,
    held: Arc<Mutex<HashMap<K, usize>>>,
}

/// One share, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash> {
    holder: K,
    held: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Returns shares of which one holder may have `of_one`, and all together `of_all`.
    pub(crate) fn new(of_one: usize, of_all: usize) -> Self {
        Self { of_one, of_all, held: Arc::default() }
    }

    /// Returns a share; `None` if a bound is reached.
    pub(crate) fn take(&self, holder: &K) -> Option<Share<K>> {
        let mut held = unpoisoned(self.held.lock());
        let own = held.get(holder).copied().unwrap_or_default();
        if own >= self.of_one || held.values().sum::<usize>() >= self.of_all {
            return None;
        }
        held.insert(holder.clone(), own + 1);
        Some(Share { holder: holder.clone(), held: self.held.clone() })
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = unpoisoned(self.held.lock());
        if let Some(count) = held.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_leaves_shares_to_others_and_all_have_a_bound() {
        let shares = Shares::new(3, 5);
        let take = |holder: &'static str| -> Vec<Share<&'static str>> {
            (0..9).map_while(|_| shares.take(&holder)).collect()
        };
        let one = take("one");
        let other = take("other");
        assert_eq!((one.len(), other.len(), take("third").len()), (3, 2, 0));
        drop(one);
        assert_eq!(take("third").len(), 3);
        drop(other);
        assert!(unpoisoned(shares.held.lock()).is_empty(), "nothing stays");
    }
}
