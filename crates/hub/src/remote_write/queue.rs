//! Batches that wait to be sent. The queue is bounded; what falls out of it is counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use skopos_model::unpoisoned;

use skopos_model::schema::{Metric, self_remote_write as of};

use super::encode::Entry;

/// Samples of one request: as many as Prometheus itself sends in one.
pub(super) const MAX_BATCH: usize = 2000;

/// Samples that wait. Twenty minutes of a thousand nodes' changes at four a second, in some 20 MB.
pub(super) const MAX_WAITING: usize = 500_000;

/// The queue, and what became of what was in it.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    came: Condvar,
    pub counts: Counts,
}

/// Samples, and tries.
#[derive(Default)]
pub(crate) struct Counts {
    pub sent: AtomicU64,
    pub overflowed: AtomicU64,
    pub refused: AtomicU64,
    pub retries: AtomicU64,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Arc<[Entry]>>,
    waiting: usize,
}

impl Queue {
    /// Puts samples at the end. The oldest go if there is no room.
    pub(crate) fn put(&self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        let mut state = self.lock();
        for batch in entries.chunks(MAX_BATCH) {
            state.waiting += batch.len();
            state.batches.push_back(batch.into());
        }
        while state.waiting > MAX_WAITING
            && let Some(oldest) = state.batches.pop_front()
        {
            state.waiting -= oldest.len();
            self.counts.overflowed.fetch_add(oldest.len() as u64, Ordering::Relaxed);
        }
        drop(state);
        self.came.notify_one();
    }

    /// The oldest batch, which stays; `None` if none came within this time.
    pub(crate) fn first(&self, patience: Duration) -> Option<Arc<[Entry]>> {
        let state = self.lock();
        let waited = self.came.wait_timeout_while(state, patience, |s| s.batches.is_empty());
        let (state, _) = unpoisoned(waited);
        state.batches.front().cloned()
    }

    /// Makes an end of a batch; `false` if it fell out meanwhile.
    pub(crate) fn done(&self, batch: &Arc<[Entry]>) -> bool {
        let mut state = self.lock();
        let is_first = state.batches.front().is_some_and(|first| Arc::ptr_eq(first, batch));
        if is_first {
            state.batches.pop_front();
            state.waiting -= batch.len();
        }
        is_first
    }

    /// How many samples wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Each metric with its number now.
    pub(crate) fn all(&self) -> [(&'static Metric, u64); 5] {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        [
            (&of::SAMPLES_SENT_TOTAL, now(&counts.sent)),
            (&of::SAMPLES_OVERFLOWED_TOTAL, now(&counts.overflowed)),
            (&of::SAMPLES_REFUSED_TOTAL, now(&counts.refused)),
            (&of::RETRIES_TOTAL, now(&counts.retries)),
            (&of::SAMPLES_WAITING, self.waiting() as u64),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::Series;

    #[test]
    fn the_oldest_fall_out_and_are_counted() {
        let series = Arc::new(Series { name: "a".to_owned(), labels: Vec::new() });
        let entries = |count: usize, time: i64| {
            vec![Entry { series: series.clone(), value: 0.0, time }; count]
        };
        let queue = Queue::default();
        assert!(queue.first(Duration::ZERO).is_none());
        queue.put(entries(MAX_BATCH + 1, 1));
        let first = queue.first(Duration::ZERO).expect("a batch");
        assert_eq!((first.len(), queue.waiting()), (MAX_BATCH, MAX_BATCH + 1));
        assert!(queue.done(&first) && !queue.done(&first));
        let second = queue.first(Duration::ZERO).expect("the rest");
        assert_eq!((second.len(), queue.waiting()), (1, 1));
        queue.put(entries(MAX_WAITING, 2));
        let overflowed = || queue.counts.overflowed.load(Ordering::Relaxed);
        assert_eq!((queue.waiting(), overflowed()), (MAX_WAITING, 1));
        assert!(!queue.done(&second), "it fell out while it was sent");
        queue.put(entries(1, 3));
        let of_a_batch = MAX_BATCH as u64;
        assert_eq!((queue.waiting(), overflowed()), (MAX_WAITING + 1 - MAX_BATCH, 1 + of_a_batch));
    }
}
