//! The regions that are accessed most, over all devices: a table of bounded size whose rates decay.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use skopos_model::Structured;

/// The kernel's sectors have 512 bytes, and a region has 2^11 of them.
pub(super) const REGION_BYTES: u64 = 512 << 11;

/// The most regions: 4 GiB of one device, or of several.
const MAX_REGIONS: usize = 4096;

/// The number of regions of a device that are published.
const TOP: usize = 16;

/// The time constant of the decaying rates.
const MEMORY: Duration = Duration::from_secs(30);

/// A rate below this many accesses a second counts as zero: there has been no access for minutes.
const MIN_RATE: f64 = 1e-3;

/// The state of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Region {
    accesses: u64,
    rate: f64,
}

/// The regions by device number << 32 | region, as in the kernel's program.
#[derive(Default)]
pub(super) struct Regions {
    table: BTreeMap<u64, Region>,
}

impl Regions {
    /// Adds the counts of the time `passed`. Returns the accesses of the coldest regions that were
    /// dropped for lack of room, by device.
    pub(super) fn add(
        &mut self,
        rows: impl Iterator<Item = (u64, u64)>,
        passed: Duration,
    ) -> BTreeMap<u64, u64> {
        let kept = (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        for region in self.table.values_mut() {
            region.rate *= kept;
            if region.rate < MIN_RATE {
                region.rate = 0.0;
            }
        }
        // A rate needs some time.
        let seconds = passed.as_secs_f64().max(1e-3);
        for (key, count) in rows {
            let region = self.table.entry(key).or_default();
            region.accesses += count;
            region.rate += count as f64 / seconds * (1.0 - kept);
        }
        self.forget()
    }

    fn forget(&mut self) -> BTreeMap<u64, u64> {
        let mut forgotten = BTreeMap::new();
        let surplus = self.table.len().saturating_sub(MAX_REGIONS);
        if surplus > 0 {
            let mut keys: Vec<_> = self.table.iter().map(|(key, r)| (*key, *r)).collect();
            keys.select_nth_unstable_by(surplus - 1, |(_, a), (_, b)| b.hotter(a));
            for (key, region) in &keys[..surplus] {
                self.table.remove(key);
                *forgotten.entry(key >> 32).or_default() += region.accesses;
            }
        }
        forgotten
    }

    /// Removes a device that is gone.
    pub(super) fn remove(&mut self, device: u64) {
        self.table.retain(|key, _| key >> 32 != device);
    }

    /// Returns the hottest regions of a device, hottest first.
    pub(super) fn hottest(&self, device: u64) -> Option<Structured> {
        let keys = device << 32..=device << 32 | u64::from(u32::MAX);
        let mut regions: Vec<_> = self.table.range(keys).map(|(key, r)| (*key, *r)).collect();
        regions.sort_by(|(_, a), (_, b)| a.hotter(b));
        regions.truncate(TOP);
        let list: Vec<_> = regions.iter().map(|(key, region)| region.record(*key)).collect();
        // Sixteen records of four numbers are short enough.
        Structured::new(list.into()).ok()
    }
}

impl Region {
    /// Compares by rate, and among regions without accesses now by the number of all accesses.
    fn hotter(&self, other: &Self) -> std::cmp::Ordering {
        other.rate.total_cmp(&self.rate).then(other.accesses.cmp(&self.accesses))
    }

    fn record(&self, key: u64) -> serde_json::Value {
        json!({
            "start_byte": (key & u64::from(u32::MAX)) * REGION_BYTES,
            "bytes": REGION_BYTES,
            "accesses": self.accesses,
            // More digits would be noise in a decaying mean.
            "rate": (self.rate * 1000.0).round() / 1000.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(device: u64, region: u64) -> u64 {
        device << 32 | region
    }

    fn column(regions: &Regions, device: u64, name: &str) -> Vec<f64> {
        let list = regions.hottest(device).expect("short enough");
        let list = list.as_json().as_array().expect("a list").clone();
        list.iter().map(|record| record[name].as_f64().expect("a number")).collect()
    }

    #[test]
    fn the_hottest_regions_of_each_device_come_first() {
        let mut regions = Regions::default();
        let rows = [(key(1, 5), 10), (key(1, 2), 30), (key(2, 0), 99), (key(1, 7), 20)];
        assert!(regions.add(rows.into_iter(), SECOND).is_empty());
        let mib = REGION_BYTES as f64;
        assert_eq!(column(&regions, 1, "start_byte"), [2.0 * mib, 7.0 * mib, 5.0 * mib]);
        assert_eq!(column(&regions, 1, "accesses"), [30.0, 20.0, 10.0]);
        assert_eq!(column(&regions, 2, "accesses"), [99.0]);
        assert_eq!(column(&regions, 3, "accesses"), [0.0; 0]);
        regions.remove(1);
        assert_eq!(column(&regions, 1, "accesses"), [0.0; 0]);
        assert_eq!(column(&regions, 2, "accesses"), [99.0]);
    }

    #[test]
    fn a_rate_approaches_the_truth_and_fades_without_accesses() {
        for (passed, polls) in [(SECOND, 300), (10 * SECOND, 30)] {
            let mut regions = Regions::default();
            for _ in 0..polls {
                regions.add([(key(1, 0), 7 * passed.as_secs())].into_iter(), passed);
            }
            let rate = column(&regions, 1, "rate")[0];
            assert!((rate - 7.0).abs() < 0.01, "{rate}");
            regions.add([].into_iter(), 30 * SECOND);
            let rate = column(&regions, 1, "rate")[0];
            assert!((rate - 7.0 / std::f64::consts::E).abs() < 0.01, "{rate}");
            regions.add([].into_iter(), 600 * SECOND);
            assert_eq!(column(&regions, 1, "rate"), [0.0]);
        }
    }

    #[test]
    fn regions_that_are_hot_now_come_before_regions_that_were_hot_once() {
        let mut regions = Regions::default();
        regions.add([(key(1, 0), 1_000_000)].into_iter(), SECOND);
        regions.add([].into_iter(), 3600 * SECOND);
        regions.add([(key(1, 1), 1)].into_iter(), SECOND);
        assert_eq!(column(&regions, 1, "accesses"), [1.0, 1_000_000.0]);
    }

    #[test]
    fn the_coldest_regions_are_dropped_and_counted() {
        let mut regions = Regions::default();
        let rows = (0..MAX_REGIONS as u64 + 10).map(|n| (key(1 + n % 2, n), n + 1));
        let forgotten = regions.add(rows, SECOND);
        assert_eq!(regions.table.len(), MAX_REGIONS);
        // 1 to 10 accesses, the odd ones of the first device.
        assert_eq!(forgotten, [(1, 25), (2, 30)].into());
        assert_eq!(column(&regions, 1, "accesses").len(), TOP);
    }

    #[test]
    fn two_polls_at_the_same_time_do_not_make_an_infinite_rate() {
        let mut regions = Regions::default();
        regions.add([(key(1, 0), u64::MAX / 2)].into_iter(), Duration::ZERO);
        assert_eq!(column(&regions, 1, "rate"), [0.0]);
    }
}
