//! Latencies of calls, which processes pass on as pairs of a value and its count.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency that is told apart: ten minutes. A longer one counts as this.
const MAX_NANOSECONDS: u64 = 600_000_000_000;

/// A histogram of latencies with a relative error of 0.1 %.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u64,
}

/// The wire form of [`Latencies`].
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Pairs {
    /// Nanoseconds, and the number of calls that took so long.
    pub counts: Vec<(u64, u64)>,
    /// The sum of all latencies.
    pub sum_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        // Three digits and these bounds are valid, by the documentation of the constructor.
        let histogram = Histogram::new_with_bounds(1, MAX_NANOSECONDS, 3);
        Self { histogram: histogram.unwrap_or_else(|_| unreachable!("valid bounds")), sum_ns: 0 }
    }
}

impl Latencies {
    /// Adds a latency.
    pub fn add(&mut self, nanoseconds: u64) {
        self.histogram.saturating_record(nanoseconds);
        self.sum_ns = self.sum_ns.saturating_add(nanoseconds);
    }

    /// Adds those of another process.
    pub fn merge(&mut self, pairs: &Pairs) {
        for (value, count) in &pairs.counts {
            self.histogram.saturating_record_n(*value, *count);
        }
        self.sum_ns = self.sum_ns.saturating_add(pairs.sum_ns);
    }

    /// Returns the wire form.
    #[must_use]
    pub fn to_pairs(&self) -> Pairs {
        let recorded = self.histogram.iter_recorded();
        let counts = recorded.map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
        Pairs { counts, sum_ns: self.sum_ns }
    }

    /// Number of calls.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The sum of all latencies in seconds: the cumulative execution time of the paper.
    #[must_use]
    pub fn cumulative_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// A quantile in microseconds; 0 without calls.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_two_processes_merge() {
        let (mut a, mut b) = (Latencies::default(), Latencies::default());
        (1..=100).for_each(|n| a.add(n * 1000));
        (101..=200).for_each(|n| b.add(n * 1000));
        a.merge(&b.to_pairs());
        assert_eq!(a.count(), 200);
        assert!((a.quantile_us(0.5) - 100.0).abs() < 1.0, "{}", a.quantile_us(0.5));
        assert!((a.cumulative_seconds() - 0.0201).abs() < 1e-9);
    }
}
