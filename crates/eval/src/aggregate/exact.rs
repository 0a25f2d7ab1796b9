//! A sum without rounding, from which added numbers can be taken away again.
//!
//! A running double drifts: after a day of additions and subtractions, an empty sum is no longer zero.
//! This sum is a whole number in steps of the smallest double, long enough for the largest (Kulisch's
//! accumulator, "Computer Arithmetic and Validity", 2013). It is rounded once, when it is read, so it
//! depends neither on the order nor on earlier numbers.

/// Number of bits of a limb that hold digits; the others collect carries until they are spread.
const LIMB_BITS: u32 = 32;

/// Number of limbs. The lowest bit of a double stands for 2^-1074, the highest for 2^1023: 2,098 bits in
/// 66 limbs, and two more limbs for carries.
const LIMBS: usize = 68;

/// The exponent of the lowest bit.
const LOWEST: i32 = -1074;

/// Number of operations between two spreads of carries: each adds less than 2^32 to a limb, which has
/// 31 bits of room.
const BETWEEN_CARRIES: u32 = 1 << 30;

/// The sum.
#[derive(Clone, Debug)]
pub struct Exact {
    limbs: [i64; LIMBS],
    pending: u32,
}

impl Default for Exact {
    fn default() -> Self {
        Self { limbs: [0; LIMBS], pending: 0 }
    }
}

impl Exact {
    /// Makes a sum of zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a finite number.
    #[inline]
    pub fn add(&mut self, number: f64) {
        self.put(number, 1);
    }

    /// Takes away a finite number.
    #[inline]
    pub fn take(&mut self, number: f64) {
        self.put(number, -1);
    }

    #[inline]
    fn put(&mut self, number: f64, times: i64) {
        let bits = number.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as u32;
        let fraction = bits & ((1 << 52) - 1);
        // Subnormal numbers have the exponent of the smallest normal ones and no hidden bit.
        let (digits, place) = match exponent {
            0 => (fraction, 0),
            _ => (fraction | 1 << 52, exponent - 1),
        };
        let shifted = u128::from(digits) << (place % LIMB_BITS);
        let sign = if bits >> 63 == 0 { times } else { -times };
        let first = (place / LIMB_BITS) as usize;
        for (at, limb) in self.limbs[first..first + 3].iter_mut().enumerate() {
            let part = (shifted >> (LIMB_BITS as usize * at)) as u32;
            *limb += sign * i64::from(part);
        }
        self.pending += 1;
        if self.pending == BETWEEN_CARRIES {
            spread(&mut self.limbs);
            self.pending = 0;
        }
    }

    /// Returns the sum, rounded to the nearest double; infinite if it is beyond the largest.
    pub fn value(&self) -> f64 {
        let mut limbs = self.limbs;
        spread(&mut limbs);
        let negative = limbs[LIMBS - 1] < 0;
        if negative {
            limbs.iter_mut().for_each(|limb| *limb = -*limb);
            spread(&mut limbs);
        }
        let magnitude = magnitude(&limbs);
        if negative { -magnitude } else { magnitude }
    }
}

/// Carries the excess of each limb to the next one. The last limb keeps the sign.
fn spread(limbs: &mut [i64; LIMBS]) {
    let mut carry = 0;
    for limb in &mut limbs[..LIMBS - 1] {
        let sum = *limb + carry;
        carry = sum >> LIMB_BITS;
        *limb = sum & 0xffff_ffff;
    }
    limbs[LIMBS - 1] += carry;
}

/// Returns the double nearest to spread limbs that are not negative.
fn magnitude(limbs: &[i64; LIMBS]) -> f64 {
    let Some(top) = limbs.iter().rposition(|&limb| limb != 0) else { return 0.0 };
    let digit = |at: usize| limbs[at].cast_unsigned();
    if top < 2 {
        // At most 64 bits: the conversion rounds them correctly.
        return (digit(0) | digit(1) << LIMB_BITS) as f64 * power_of_two(LOWEST);
    }
    // Take the 64 highest bits, and set the lowest of them if any bit below is set: the conversion
    // rounds to 53 bits, so this bit decides a tie.
    let three = u128::from(digit(top)) << (2 * LIMB_BITS)
        | u128::from(digit(top - 1)) << LIMB_BITS
        | u128::from(digit(top - 2));
    let dropped = 64 - three.leading_zeros();
    let below = three & ((1 << dropped) - 1) != 0 || limbs[..top - 2].iter().any(|&limb| limb != 0);
    let highest = (three >> dropped) as u64 | u64::from(below);
    let place = LOWEST + (LIMB_BITS as usize * (top - 2)) as i32 + dropped as i32;
    // Scale in two steps, because the power alone may be beyond the largest double.
    let half = place / 2;
    highest as f64 * power_of_two(half) * power_of_two(place - half)
}

/// Returns 2^`exponent`, for exponents of doubles.
fn power_of_two(exponent: i32) -> f64 {
    if exponent >= -1022 {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    } else {
        f64::from_bits(1 << (exponent - LOWEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(numbers: &[f64]) -> f64 {
        let mut exact = Exact::new();
        numbers.iter().for_each(|&number| exact.add(number));
        exact.value()
    }

    #[test]
    fn nothing_is_lost_below_a_large_number() {
        assert_eq!(sum(&[1e300, 1.0, -1e300]), 1.0);
        assert_eq!(sum(&[1e300, 1e-300, 1.0, -1e300, -1.0]), 1e-300);
        assert_eq!(sum(&[0.1; 10]), 1.0);
        assert_eq!(sum(&[-2.5, 1.0]), -1.5);
        assert_eq!(sum(&[]), 0.0);
    }

    #[test]
    fn ends_of_the_range() {
        for number in [5e-324, 2.2e-308, f64::MAX, f64::MIN_POSITIVE, 1.0 / 3.0, 4503599627370497.5]
        {
            assert_eq!(sum(&[number]), number);
            assert_eq!(sum(&[-number]), -number);
        }
        assert_eq!(sum(&[5e-324, 5e-324]), 1e-323);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
        assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
    }

    #[test]
    fn a_tie_is_rounded_to_even_unless_anything_below_decides() {
        let two_to_53 = 9_007_199_254_740_992.0;
        assert_eq!(sum(&[two_to_53, 1.0]), two_to_53);
        assert_eq!(sum(&[two_to_53, 1.0, 1e-300]), two_to_53 + 2.0);
        assert_eq!(sum(&[two_to_53, 1.0, -1e-300]), two_to_53);
    }

    #[test]
    fn carries_are_spread_before_a_limb_is_full() {
        let mut exact = Exact::new();
        exact.pending = BETWEEN_CARRIES - 2;
        for _ in 0..4 {
            exact.add(-3.75);
        }
        assert_eq!((exact.value(), exact.pending), (-15.0, 2));
    }
}
