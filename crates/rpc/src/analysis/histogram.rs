//! A histogram of durations and amounts with a relative error of at most 0.4 %.
//!
//! Values below 256 have a bucket each. Above, every power of two is divided into 128 buckets of equal width, so the
//! middle of a bucket differs from a value in it by at most 1/256. Two histograms add up bucket by bucket.

use serde::{Serialize, Serializer};

/// Buckets of a power of two: 2^7. The middle of a bucket is within 1/256 = 0.4 % of every value in it.
const PER_OCTAVE: usize = 128;
/// log2 of [`PER_OCTAVE`].
const SHIFT: u32 = 7;
/// Octaves of a 64-bit value: the first holds the values below 128, each next one those with one more bit.
const OCTAVES: usize = 58;

type Octave = Box<[u64; PER_OCTAVE]>;

/// Counts of values in buckets of bounded relative width.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    octaves: Vec<Option<Octave>>,
    count: u64,
    sum: u128,
    least: u64,
    greatest: u64,
}

/// The numbers of a histogram that reports show. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Sum of the values, exact.
    pub sum: f64,
    /// Mean of the values, exact; 0 without values.
    pub mean: f64,
    /// The least value, exact.
    pub min: u64,
    /// The median, within 0.4 %.
    pub p50: u64,
    /// The 90th percentile, within 0.4 %.
    pub p90: u64,
    /// The 99th percentile, within 0.4 %.
    pub p99: u64,
    /// The 99.9th percentile, within 0.4 %.
    pub p999: u64,
    /// The greatest value, exact.
    pub max: u64,
}

fn place(value: u64) -> (usize, usize) {
    if value < PER_OCTAVE as u64 {
        return (0, value as usize);
    }
    let top = 63 - value.leading_zeros();
    let within = (value >> (top - SHIFT)) as usize & (PER_OCTAVE - 1);
    ((top - SHIFT + 1) as usize, within)
}

/// Returns the least value of a bucket and its width.
fn bounds(octave: usize, within: usize) -> (u64, u64) {
    if octave == 0 {
        return (within as u64, 1);
    }
    let shift = octave as u32 - 1;
    (((PER_OCTAVE + within) as u64) << shift, 1 << shift)
}

impl Histogram {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    /// Adds a value that occurred `times` times.
    pub fn add_many(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        let (octave, within) = place(value);
        self.octave(octave)[within] += times;
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.greatest = self.greatest.max(value);
        self.count += times;
        self.sum += u128::from(value) * u128::from(times);
    }

    fn octave(&mut self, octave: usize) -> &mut Octave {
        debug_assert!(octave < OCTAVES);
        if self.octaves.len() <= octave {
            self.octaves.resize_with(octave + 1, || None);
        }
        self.octaves[octave].get_or_insert_with(|| Box::new([0; PER_OCTAVE]))
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        for (at, octave) in other.octaves.iter().enumerate() {
            let Some(octave) = octave else { continue };
            let own = self.octave(at);
            own.iter_mut().zip(octave.iter()).for_each(|(own, more)| *own += more);
        }
        self.least = if self.count == 0 { other.least } else { self.least.min(other.least) };
        self.greatest = self.greatest.max(other.greatest);
        self.count += other.count;
        self.sum += other.sum;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the values.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Mean of the values; 0 without values.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The buckets with values, in order: least value, width, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.octaves.iter().enumerate().flat_map(|(at, octave)| {
            octave.iter().flat_map(move |counts| {
                counts.iter().enumerate().filter(|(_, count)| **count > 0).map(
                    move |(within, count)| {
                        let (low, width) = bounds(at, within);
                        (low, width, *count)
                    },
                )
            })
        })
    }

    /// The value below which the share `quantile` of the values lies, within 0.4 %; 0 without values.
    pub fn quantile(&self, quantile: f64) -> u64 {
        // NaN and negative quantiles become 0 by the cast.
        let rank = ((quantile.min(1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (low, width, count) in self.buckets() {
            seen += count;
            if seen >= rank {
                return (low + width / 2).clamp(self.least, self.greatest);
            }
        }
        self.greatest
    }

    /// The share of the values that are at least `value`, as exact as the buckets.
    pub fn share_from(&self, value: u64) -> f64 {
        let above: u64 = self.buckets().filter(|(low, ..)| *low >= value).map(|b| b.2).sum();
        if self.count == 0 { 0.0 } else { above as f64 / self.count as f64 }
    }

    /// The numbers that reports show.
    pub fn summary(&self) -> Summary {
        Summary {
            count: self.count,
            sum: self.sum as f64,
            mean: self.mean(),
            min: self.least,
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.greatest,
        }
    }
}

/// A histogram is serialised as its summary; [`Histogram::buckets`] has all of it.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.summary().serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_values_are_exact() {
        let mut histogram = Histogram::default();
        (0..256).for_each(|value| histogram.add(value));
        assert_eq!(histogram.quantile(0.5), 127);
        assert_eq!(histogram.summary().max, 255);
        assert_eq!(Histogram::default().summary(), Summary::default());
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_values_within_the_error(value in 0u64..) {
            let (octave, within) = place(value);
            prop_assert!(octave < OCTAVES);
            let (low, width) = bounds(octave, within);
            prop_assert!(low <= value && value - low < width);
            prop_assert!((width / 2) as f64 <= low as f64 / 255.0 || width == 1);
        }

        #[test]
        fn quantiles_are_within_one_percent_and_sums_exact(
            mut values in proptest::collection::vec(1u64..1 << 40, 1..300),
            quantile in 0.0f64..1.0,
        ) {
            let (mut all, mut half) = (Histogram::default(), Histogram::default());
            let (left, right) = values.split_at(values.len() / 2);
            left.iter().for_each(|value| all.add(*value));
            right.iter().for_each(|value| half.add(*value));
            all.merge(&half);
            prop_assert_eq!(all.sum(), values.iter().map(|v| u128::from(*v)).sum::<u128>());
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).max(1) - 1;
            let (exact, got) = (values[rank] as f64, all.quantile(quantile) as f64);
            prop_assert!((got - exact).abs() <= 0.01 * exact, "{got} for {exact}");
        }
    }
}
