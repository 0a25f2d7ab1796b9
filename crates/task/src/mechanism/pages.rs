//! The lag of the kernel's counts of resident pages.

use std::fs;

/// Number of kinds of resident pages. Each has a count of which processors hold parts back.
const KINDS: u64 = 3;

/// The most pages by which the peak of one process may lag: `percpu_counter_batch` for each kind,
/// on each processor.
pub(super) fn max_lag() -> u64 {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible");
    let processors = list.map_or(1, |list| last_number(&list) + 1);
    KINDS * processors * (2 * processors).max(32)
}

/// Returns the last number of a list such as "0-7,9".
fn last_number(list: &str) -> u64 {
    let last = list.trim().rsplit(['-', ',']).next();
    last.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_processor_is_the_last_number_in_the_list() {
        for (list, last) in [("0\n", 0), ("0-1\n", 1), ("0-3,8-11\n", 11), ("", 0)] {
            assert_eq!(last_number(list), last, "{list}");
        }
        assert!(max_lag() >= 3 * 32);
    }
}
