//! A table of bounded size, in which a new key takes the place of keys that were silent.

use std::collections::HashMap;
use std::hash::Hash;

use super::counts::CollectorCounts;

/// A key that had no packet for this time may be discarded for a new one.
const SILENT_NS: u64 = 300_000_000_000;

/// A search for silent keys reads the whole table, so it comes at most once in this time.
const SEARCH_EVERY_NS: u64 = 1_000_000_000;

/// The table.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    entries: HashMap<K, Entry<V>>,
    most: usize,
    search_at: u64,
    /// Keys that were discarded, whose facts are still published.
    gone: Vec<K>,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    at: u64,
}

impl<K: Copy + Eq + Hash + Ord, V: Default> Table<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self { entries: HashMap::new(), most, search_at: 0, gone: Vec::new() }
    }

    /// Returns the value of a key at `now`, in nanoseconds; `None` if there is no room for it, which is counted.
    pub(super) fn entry(
        &mut self,
        key: K,
        now: u64,
        counts: &mut CollectorCounts,
    ) -> Option<&mut V> {
        if self.entries.len() >= self.most && !self.entries.contains_key(&key) {
            self.evict(now, counts);
            if self.entries.len() >= self.most {
                counts.beyond_bounds += 1;
                return None;
            }
        }
        let entry =
            self.entries.entry(key).or_insert_with(|| Entry { value: V::default(), at: now });
        entry.at = now;
        Some(&mut entry.value)
    }

    fn evict(&mut self, now: u64, counts: &mut CollectorCounts) {
        if now < self.search_at {
            return;
        }
        self.search_at = now + SEARCH_EVERY_NS;
        let gone = self.entries.extract_if(|_, entry| now.saturating_sub(entry.at) >= SILENT_NS);
        let before = self.gone.len();
        self.gone.extend(gone.map(|(key, _)| key));
        counts.evicted += (self.gone.len() - before) as u64;
    }

    /// Returns the keys that were discarded since the last call.
    pub(super) fn take_gone(&mut self) -> Vec<K> {
        std::mem::take(&mut self.gone)
    }

    /// Returns all keys and values.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.entries.iter_mut().map(|(key, entry)| (*key, &mut entry.value))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_keys_make_room_and_others_do_not() {
        let mut counts = CollectorCounts::default();
        let mut table: Table<u32, u64> = Table::new(2);
        for key in [1, 2] {
            *table.entry(key, 0, &mut counts).expect("room") += 1;
        }
        assert!(table.entry(3, 5, &mut counts).is_none());
        assert_eq!((counts.beyond_bounds, counts.evicted), (1, 0));
        table.entry(2, SILENT_NS - 1, &mut counts).expect("is there");
        assert!(table.entry(3, SILENT_NS, &mut counts).is_some());
        assert_eq!((counts.evicted, table.take_gone(), table.len()), (1, vec![1], 2));
    }
}
