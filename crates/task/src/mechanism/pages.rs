//! How far the kernel's counts of resident pages may be behind.

use std::fs;

/// Kinds of pages that make resident memory, each with a count that processors keep parts of.
const KINDS: u64 = 3;

/// Pages by which the maximum of one process may be behind: `percpu_counter_batch` for each kind, on each
/// processor.
pub(super) fn behind() -> u64 {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible");
    let processors = list.map_or(1, |list| last_of(&list) + 1);
    KINDS * processors * (2 * processors).max(32)
}

/// The last number of "0-7,9".
fn last_of(list: &str) -> u64 {
    let last = list.trim().rsplit(['-', ',']).next();
    last.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_processor_is_the_last_in_the_list() {
        for (list, last) in [("0\n", 0), ("0-1\n", 1), ("0-3,8-11\n", 11), ("", 0)] {
            assert_eq!(last_of(list), last, "{list}");
        }
        assert!(behind() >= 3 * 32);
    }
}
