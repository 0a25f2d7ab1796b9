//! The bounded queue of batches to send. It counts the samples that it drops.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use skopos_model::unpoisoned;

use skopos_model::schema::{Metric, self_remote_write as metrics};

use super::encode::Entry;

/// Maximum number of samples in one request: Prometheus' own limit.
pub(super) const MAX_BATCH: usize = 2000;

/// Maximum number of waiting samples: about 20 MB. A thousand nodes with a sample every two seconds each fill it in
/// about twenty minutes.
pub(super) const MAX_WAITING: usize = 500_000;

/// The queue and its counts.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    came: Condvar,
    /// Counts of samples that left the queue.
    pub counts: Counts,
}

/// Counts of samples and retries.
#[derive(Default)]
pub(crate) struct Counts {
    /// Samples that the store accepted.
    pub sent: AtomicU64,
    /// Samples that the full queue dropped.
    pub overflowed: AtomicU64,
    /// Samples that the store refused.
    pub refused: AtomicU64,
    /// Requests that have to be repeated.
    pub retries: AtomicU64,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Arc<[Entry]>>,
    waiting: usize,
}

impl Queue {
    /// Appends samples. A full queue drops the oldest ones.
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

    /// Returns the oldest batch without removing it; `None` if the queue stays empty for `timeout`.
    pub(crate) fn first(&self, timeout: Duration) -> Option<Arc<[Entry]>> {
        let state = self.lock();
        let waited = self.came.wait_timeout_while(state, timeout, |s| s.batches.is_empty());
        let (state, _) = unpoisoned(waited);
        state.batches.front().cloned()
    }

    /// Removes a batch that was sent or refused; false if the queue has dropped it meanwhile.
    pub(crate) fn done(&self, batch: &Arc<[Entry]>) -> bool {
        let mut state = self.lock();
        let is_first = state.batches.front().is_some_and(|first| Arc::ptr_eq(first, batch));
        if is_first {
            state.batches.pop_front();
            state.waiting -= batch.len();
        }
        is_first
    }

    /// Returns the number of waiting samples.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Returns each metric with its current number.
    pub(crate) fn all(&self) -> [(&'static Metric, u64); 5] {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        [
            (&metrics::SAMPLES_SENT_TOTAL, now(&counts.sent)),
            (&metrics::SAMPLES_OVERFLOWED_TOTAL, now(&counts.overflowed)),
            (&metrics::SAMPLES_REFUSED_TOTAL, now(&counts.refused)),
            (&metrics::RETRIES_TOTAL, now(&counts.retries)),
            (&metrics::SAMPLES_WAITING, self.waiting() as u64),
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
    fn the_queue_drops_the_oldest_samples_and_counts_them() {
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
        assert!(!queue.done(&second), "it was dropped while it was sent");
        queue.put(entries(1, 3));
        let of_a_batch = MAX_BATCH as u64;
        assert_eq!((queue.waiting(), overflowed()), (MAX_WAITING + 1 - MAX_BATCH, 1 + of_a_batch));
    }
}
