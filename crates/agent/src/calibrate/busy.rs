//! Other load on a device.

use std::fs;
use std::time::{Duration, Instant};

use skopos_sense::Root;

/// The column of `/proc/diskstats` with the milliseconds in which a request was in flight
/// (Documentation/admin-guide/iostats.rst), counted from the major number.
const BUSY_COLUMN: usize = 12;

/// Measures the share of the next `time` in which the device `name` has a request in flight; `None` if the kernel
/// does not count it.
pub fn busy_ratio(root: &Root, name: &str, time: Duration) -> Option<f64> {
    let look = || {
        let text = fs::read_to_string(root.proc.join("diskstats")).ok()?;
        busy_millis(&text, name)
    };
    let (before, start) = (look()?, Instant::now());
    std::thread::sleep(time);
    let millis = look()?.checked_sub(before)? as f64;
    Some((millis / 1e3 / start.elapsed().as_secs_f64()).min(1.0))
}

fn busy_millis(diskstats: &str, name: &str) -> Option<u64> {
    diskstats.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.clone().nth(2)? == name).then(|| words.nth(BUSY_COLUMN)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::busy_millis;

    #[test]
    fn the_busy_time_is_the_tenth_column_after_the_name() {
        let text = " 254 0 vda 1 2 3 4 5 6 7 8 9 1234 11 12\n 254 1 vda1 1 1 1 1 1 1 1 1 1 77 1\n";
        assert_eq!(busy_millis(text, "vda"), Some(1234));
        assert_eq!(busy_millis(text, "vda1"), Some(77));
        assert_eq!(busy_millis(text, "sda"), None);
        assert_eq!(busy_millis("1 2 sda 3", "sda"), None);
    }
}
