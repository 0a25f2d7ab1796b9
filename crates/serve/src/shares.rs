//! Counts of what each one holds of something, with a bound for each and one for all together.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use skopos_model::unpoisoned;

/// The shares that are held, by holder.
#[derive(Debug)]
pub(crate) struct Shares<K>(Arc<Bounded<K>>);

#[derive(Debug)]
struct Bounded<K> {
    of_one: usize,
    of_all: usize,
    held: Mutex<HashMap<K, usize>>,
}

/// Some shares of one holder, until they are dropped.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash> {
    holder: K,
    count: usize,
    of: Arc<Bounded<K>>,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Returns shares of which one holder may have `of_one`, and all together `of_all`.
    pub(crate) fn new(of_one: usize, of_all: usize) -> Self {
        Self(Arc::new(Bounded { of_one, of_all, held: Mutex::default() }))
    }

    /// Returns a share; `None` if a bound is reached.
    pub(crate) fn take(&self, holder: &K) -> Option<Share<K>> {
        let mut share = self.none(holder);
        share.resize(1).then_some(share)
    }

    /// Returns no share of a holder, to be resized.
    pub(crate) fn none(&self, holder: &K) -> Share<K> {
        Share { holder: holder.clone(), count: 0, of: self.0.clone() }
    }
}

impl<K: Clone + Eq + Hash> Share<K> {
    /// Makes it `count` shares. Returns false, and changes nothing, if a bound would be exceeded.
    pub(crate) fn resize(&mut self, count: usize) -> bool {
        let mut held = unpoisoned(self.of.held.lock());
        let own = held.get(&self.holder).copied().unwrap_or_default() - self.count;
        let all = held.values().sum::<usize>() - self.count;
        let is_more = count > self.count;
        if is_more && (own + count > self.of.of_one || all + count > self.of.of_all) {
            return false;
        }
        match own + count {
            0 => held.remove(&self.holder),
            some => held.insert(self.holder.clone(), some),
        };
        self.count = count;
        true
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = unpoisoned(self.of.held.lock());
        if let Some(own) = held.get_mut(&self.holder) {
            *own -= self.count;
            if *own == 0 {
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
        assert!(unpoisoned(shares.0.held.lock()).is_empty(), "nothing stays");
    }

    #[test]
    fn a_share_grows_within_the_bounds_and_shrinks_always() {
        let shares = Shares::new(3, 5);
        let (mut one, mut other) = (shares.none(&"one"), shares.none(&"other"));
        assert!(one.resize(3) && !one.resize(4) && other.resize(2));
        assert!(!other.resize(3), "the bound of all");
        assert!(one.resize(1) && other.resize(3) && !one.resize(3) && one.resize(2));
        drop(other);
        assert!(one.resize(0) && unpoisoned(shares.0.held.lock()).is_empty());
    }
}
