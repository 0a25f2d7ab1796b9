//! The pseudo-random generator of the workspace.

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
///
/// The same seed gives the same sequence on every machine, so training data, simulations and tests
/// can be repeated. It is not for secrets.
///
/// ```
/// use skopos_model::SplitMix64;
///
/// assert_eq!(SplitMix64::new(7).bits(), SplitMix64::new(7).bits());
/// ```
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts the sequence of `seed`.
    #[inline]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from the uniform distribution over `0.0..1.0`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number from the uniform distribution over `low..high`.
    #[inline]
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Returns a number from nearly the normal distribution with mean 0 and standard deviation 1: the
    /// sum of twelve uniform numbers (Irwin-Hall). It needs no logarithm, so every machine computes the
    /// same bits.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// Returns an index below `len`, or 0 if `len` is 0. The bias is below 2⁻⁴⁰ for lengths up to 2²⁴.
    #[inline]
    pub fn below(&mut self, len: usize) -> usize {
        ((u128::from(self.bits()) * len as u128) >> 64) as usize
    }
}
