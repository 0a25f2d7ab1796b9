//! Histograms of times that programs in the kernel fill. The layout is that of `bpf/histogram.h`.
//!
//! A bucket is an eighth of a power of two of units of 128 ns, and below 8 units one unit, so a time is known to an
//! eighth of itself. The last bucket ends at 275 s and has all longer times, too.

use skopos_model::schema::Metric;

/// Number of buckets: `BUCKETS` of the programs.
pub(crate) const BUCKETS: usize = 8 + 8 * 28;

const UNIT_SECONDS: f64 = 128e-9;

/// The times of one interval: the growth of a histogram that only grows.
pub(crate) struct Histogram {
    /// The kernel's counts at the last poll. They begin anew at 2^32, which a difference does not notice.
    last: Box<[u32]>,
    grown: Box<[u32]>,
}

/// Facts that tell a distribution of times.
pub(crate) struct Percentiles {
    pub(crate) p50: &'static Metric,
    pub(crate) p99: &'static Metric,
    pub(crate) max: &'static Metric,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { last: vec![0; BUCKETS].into(), grown: vec![0; BUCKETS].into() }
    }
}

impl Histogram {
    /// Takes the kernel's counts and keeps their growth since the last call.
    pub(crate) fn advance(&mut self, counts: impl IntoIterator<Item = u32>) {
        for ((count, last), grown) in counts.into_iter().zip(&mut self.last).zip(&mut self.grown) {
            *grown = count.wrapping_sub(*last);
            *last = count;
        }
    }

    /// Returns the number of times in the interval.
    pub(crate) fn total(&self) -> u64 {
        self.grown.iter().map(|&count| u64::from(count)).sum()
    }

    /// Returns the time that this share of the times does not exceed, in seconds: the place of that time among those of
    /// its bucket, evenly spread over the bucket. `None` if the interval has no times.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let rank = share * self.total() as f64;
        let mut before = 0.0;
        for (bucket, &count) in self.grown.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(count);
            if before + count >= rank {
                let (begin, end) = (begin_units(bucket), begin_units(bucket + 1));
                let within = ((rank - before) / count).clamp(0.0, 1.0);
                return Some((begin + (end - begin) * within) * UNIT_SECONDS);
            }
            before += count;
        }
        None
    }

    /// Returns the upper bound of the longest time, in seconds.
    pub(crate) fn max(&self) -> Option<f64> {
        let last = self.grown.iter().rposition(|&count| count > 0)?;
        Some(begin_units(last + 1) * UNIT_SECONDS)
    }

    /// Returns the mean, in seconds, from the middles of the buckets.
    pub(crate) fn mean(&self) -> Option<f64> {
        let middle = |bucket| (begin_units(bucket) + begin_units(bucket + 1)) / 2.0;
        let sum: f64 =
            self.grown.iter().enumerate().map(|(at, &count)| f64::from(count) * middle(at)).sum();
        match self.total() {
            0 => None,
            total => Some(sum / total as f64 * UNIT_SECONDS),
        }
    }

    /// Passes the percentiles of the interval to `set`; none if the interval has no times.
    pub(crate) fn tell(&self, facts: &Percentiles, mut set: impl FnMut(&'static Metric, f64)) {
        for (metric, value) in [
            (facts.p50, self.quantile(0.5)),
            (facts.p99, self.quantile(0.99)),
            (facts.max, self.max()),
        ] {
            if let Some(value) = value {
                set(metric, value);
            }
        }
    }
}

/// Returns the shortest time of a bucket, in units.
fn begin_units(bucket: usize) -> f64 {
    match bucket {
        0..8 => bucket as f64,
        _ => {
            let (power, eighth) = (bucket / 8 - 1, bucket % 8);
            ((8 + eighth) as u64).checked_shl(power as u32).unwrap_or(u64::MAX) as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bucket of a time, computed as the programs do.
    fn bucket_of(nanos: u64) -> usize {
        let units = (nanos >> 7).min(0x7fff_ffff);
        if units < 8 {
            return units as usize;
        }
        let power = units.ilog2();
        ((power - 2) * 8) as usize + (units >> (power - 3) & 7) as usize
    }

    fn of(nanos: &[u64]) -> Histogram {
        let mut counts = [0; BUCKETS];
        nanos.iter().for_each(|n| counts[bucket_of(*n)] += 1);
        let mut histogram = Histogram::default();
        histogram.advance(counts);
        histogram
    }

    #[test]
    fn each_time_is_between_the_bounds_of_its_bucket() {
        let times =
            (0..42).flat_map(|power| [0, 1, 3, 7].map(|more| (1_u64 << power) * (8 + more) / 8));
        for nanos in times.filter(|nanos| nanos >> 7 <= 0x7fff_ffff) {
            let bucket = bucket_of(nanos);
            let bounds = begin_units(bucket)..begin_units(bucket + 1);
            assert!(bounds.contains(&((nanos >> 7) as f64)), "{nanos}: {bucket} {bounds:?}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert!(begin_units(BUCKETS) * UNIT_SECONDS > 274.0);
        assert!((1..=BUCKETS).all(|bucket| begin_units(bucket) > begin_units(bucket - 1)));
    }

    #[test]
    fn quantiles_are_within_an_eighth_and_in_order() {
        let mut times: Vec<u64> = (1..=1000).map(|n| n * 10_000).collect();
        times.push(1_000_000_000);
        let histogram = of(&times);
        assert_eq!(histogram.total(), 1001);
        for (share, expected) in [(0.5, 5e-3), (0.9, 9e-3), (0.99, 9.9e-3)] {
            let found = histogram.quantile(share).expect("there are times");
            assert!((found / expected - 1.0).abs() < 0.125, "{share}: {found}");
        }
        let (max, mean) = (histogram.max().expect("a time"), histogram.mean().expect("a time"));
        assert!((1.0..1.125).contains(&max), "{max}");
        assert!((mean / 6e-3 - 1.0).abs() < 0.125, "{mean}");
        assert!(histogram.quantile(1.0) <= Some(max));
        // A single time is all of them.
        let one = of(&[300_000]);
        assert!(one.quantile(0.01) <= one.quantile(0.99) && one.quantile(0.99) <= one.max());
    }

    #[test]
    fn an_interval_has_what_came_since_the_last_one_even_when_a_count_begins_anew() {
        let mut histogram = Histogram::default();
        let counts =
            |bucket: usize, count| (0..BUCKETS).map(move |b| if b == bucket { count } else { 0 });
        histogram.advance(counts(20, u32::MAX - 1));
        histogram.advance(counts(20, 3));
        assert_eq!(histogram.total(), 5);
        histogram.advance(counts(20, 3));
        assert_eq!((histogram.total(), histogram.max(), histogram.mean()), (0, None, None));
        assert_eq!(histogram.quantile(0.5), None);
        let facts = skopos_model::schema::runqueue::FAMILY.metrics;
        let [p50, p99, max] = [0, 1, 2].map(|at| &facts[at]);
        histogram.tell(&Percentiles { p50, p99, max }, |_, _| panic!("there are no times"));
    }
}
