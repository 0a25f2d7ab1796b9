//! Sums over blocks of time, and intervals of confidence from them.
//!
//! Neighbouring calls are alike: they share a queue, a burst, a phase of the program. A test that takes each call for an
//! independent sample finds every difference significant. So a run is divided into blocks of time, and the blocks are
//! the samples (Künsch, 1989).

/// The most blocks of a series: twice as many as the least number for a bootstrap, after they were joined in pairs.
const MAX_BLOCKS: usize = 64;

/// The first length of a block in ns. It doubles when a run is longer than [`MAX_BLOCKS`] of them.
const FIRST_BLOCK_NS: i64 = 1_000_000;

/// Rounds of a bootstrap. The ends of a 95 % interval move by less than a twentieth of its width from seed to seed.
const ROUNDS: usize = 1000;

/// A sum with a weight, for each block of time.
#[derive(Clone, Debug)]
pub struct Blocks {
    origin: i64,
    length: i64,
    blocks: Vec<Sum>,
}

/// The sums of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// The part: time of the kind that is measured.
    pub part: f64,
    /// The whole: number of calls, or all time.
    pub whole: f64,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { origin: 0, length: FIRST_BLOCK_NS, blocks: Vec::new() }
    }
}

impl Blocks {
    /// Adds to the block of a time in ns.
    #[inline]
    pub fn add(&mut self, time: i64, part: f64, whole: f64) {
        if self.blocks.is_empty() {
            self.origin = time;
        }
        let mut at = self.place(time);
        while !(0..MAX_BLOCKS as i64).contains(&at) {
            self.widen(at);
            at = self.place(time);
        }
        let at = at as usize;
        if self.blocks.len() <= at {
            self.blocks.resize(at + 1, Sum::default());
        }
        self.blocks[at].part += part;
        self.blocks[at].whole += whole;
    }

    fn place(&self, time: i64) -> i64 {
        time.saturating_sub(self.origin).div_euclid(self.length)
    }

    /// Doubles the length of the blocks, at their end or at their beginning.
    fn widen(&mut self, towards: i64) {
        let length = self.length.saturating_mul(2);
        if towards < 0 {
            // Old block 0 becomes the second half of the new blocks' first half.
            self.blocks.resize(MAX_BLOCKS, Sum::default());
            let mut shifted = vec![Sum::default(); MAX_BLOCKS];
            shifted.append(&mut self.blocks);
            self.origin = self.origin.saturating_sub(self.length.saturating_mul(MAX_BLOCKS as i64));
            self.blocks = shifted;
        }
        self.blocks = self
            .blocks
            .chunks(2)
            .map(|pair| Sum {
                part: pair.iter().map(|sum| sum.part).sum(),
                whole: pair.iter().map(|sum| sum.whole).sum(),
            })
            .collect();
        self.length = length;
    }

    /// The blocks that have a whole.
    pub fn filled(&self) -> Vec<Sum> {
        self.blocks.iter().copied().filter(|sum| sum.whole > 0.0).collect()
    }
}

/// A number with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// A number whose interval is itself.
    pub fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// Applies a function that does not change the order, or reverses it.
    #[must_use]
    pub fn map(self, by: impl Fn(f64) -> f64) -> Self {
        let (value, low, high) = (by(self.value), by(self.low), by(self.high));
        Self { value, low: low.min(high), high: low.max(high) }
    }
}

/// A generator of pseudo-random numbers: SplitMix64 (Steele, Lea and Flood, 2014). Analyses of the same input with the
/// same seed give the same output.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`; 0 if it is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The high half of the product is uniform enough for bounds far below 2^64.
        (u128::from(self.bits()) * bound as u128 >> 64) as usize
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// An exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.unit()).ln() * mean
    }
}

/// The ratio of the parts to the wholes with its interval, by a bootstrap over the blocks. `None` without a whole.
pub fn ratio(blocks: &[Sum], seed: u64) -> Option<Estimate> {
    let total = |picked: &mut dyn Iterator<Item = Sum>| {
        let sum = picked
            .fold(Sum::default(), |a, b| Sum { part: a.part + b.part, whole: a.whole + b.whole });
        (sum.whole > 0.0).then(|| sum.part / sum.whole)
    };
    let value = total(&mut blocks.iter().copied())?;
    let mut random = Random::new(seed);
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .filter_map(|_| {
            let mut picked = (0..blocks.len()).map(|_| blocks[random.below(blocks.len())]);
            total(&mut picked)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    let at = |share: f64| rounds.get((rounds.len() as f64 * share) as usize).copied();
    Some(Estimate { value, low: at(0.025).unwrap_or(value), high: at(0.975).unwrap_or(value) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_time_is_lost_in_any_order(times in proptest::collection::vec(-1i64 << 50..1 << 50, 1..200)) {
            let mut blocks = Blocks::default();
            times.iter().for_each(|time| blocks.add(*time, 2.0, 1.0));
            let filled = blocks.filled();
            prop_assert!(filled.len() <= MAX_BLOCKS);
            let whole: f64 = filled.iter().map(|sum| sum.whole).sum();
            prop_assert_eq!(whole, times.len() as f64);
            let ratio = ratio(&filled, 1).unwrap();
            prop_assert!((ratio.value - 2.0).abs() < 1e-9 && (ratio.high - ratio.low).abs() < 1e-9);
        }
    }

    #[test]
    fn extreme_times_end() {
        let mut blocks = Blocks::default();
        [0, i64::MIN, i64::MAX].iter().for_each(|time| blocks.add(*time, 1.0, 1.0));
        assert_eq!(blocks.filled().iter().map(|sum| sum.whole).sum::<f64>(), 3.0);
    }

    #[test]
    fn the_interval_of_a_noisy_ratio_has_its_value() {
        let mut random = Random::new(3);
        let blocks: Vec<Sum> =
            (0..32).map(|_| Sum { part: random.exponential(5.0), whole: 1.0 }).collect();
        let ratio = ratio(&blocks, 1).unwrap();
        assert!(ratio.low < ratio.value && ratio.value < ratio.high && ratio.low > 2.0);
        assert!(super::ratio(&[], 1).is_none());
    }
}
