/// Numbers that look random and are the same for the same seed: SplitMix64 (Steele, Lea and Flood,
/// OOPSLA 2014), which is four lines and good enough for training data.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Even between 0 and 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Even between `low` and `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Nearly normal, with mean 0 and deviation 1: the sum of twelve even ones (Irwin-Hall). It
    /// needs no logarithm, so it is the same to the bit everywhere.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// An index below `len`; 0 for an empty range. The bias is below 2⁻⁴⁰ for any length used here.
    pub fn below(&mut self, len: usize) -> usize {
        ((u128::from(self.bits()) * len as u128) >> 64) as usize
    }
}
