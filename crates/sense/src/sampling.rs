//! The share of events that programs in the kernel measure when there are many.

use std::time::Duration;

/// The coarsest sampling: one in 65,536.
const MAX_MASK: u32 = 0xffff;

/// Returns the mask for sampling: of `came` events in the time `passed`, at most `most` a second are measured, one in
/// `mask + 1`, which is a power of two.
pub(crate) fn mask_for(came: u64, passed: Duration, most: f64) -> u32 {
    // The first poll does not know for how long the programs have counted.
    if passed.is_zero() {
        return 0;
    }
    let rate = came as f64 / passed.as_secs_f64();
    let one_in = (rate / most).ceil().clamp(1.0, f64::from(MAX_MASK + 1));
    (one_in as u32).next_power_of_two() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sampled_by_their_rate_and_not_at_the_first_poll() {
        let second = Duration::from_secs(1);
        for (came, passed, expected) in [
            (20_000, second, 0),
            (20_001, second, 1),
            (200_000, second, 15),
            (u64::MAX, second, MAX_MASK),
            (0, second, 0),
            (1_000_000, Duration::ZERO, 0),
        ] {
            assert_eq!(mask_for(came, passed, 20_000.0), expected, "{came} in {passed:?}");
        }
    }
}
