//! The regions that are accessed most, over all devices: a table of bounded size whose rates decay.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use skopos_model::Structured;

/// Sectors are of 512 bytes in the kernel, and a region has 2^11 of them.
pub(super) const REGION_BYTES: u64 = 512 << 11;

/// The most regions: 4 GiB of one device, or of several.
const MAX_REGIONS: usize = 4096;

/// How many regions of a device are told.
const TOP: usize = 16;

/// How long an access is remembered in a rate.
const MEMORY: Duration = Duration::from_secs(30);

/// A rate below this many accesses a second is none: nothing has come for minutes.
const MIN_RATE: f64 = 1e-3;

/// What is known of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Region {
    accesses: u64,
    rate: f64,
}

/// By device number << 32 | region, as the kernel's program has it.
#[derive(Default)]
pub(super) struct Regions {
    table: BTreeMap<u64, Region>,
}

impl Regions {
    /// Takes what was counted in the time `passed`; returns what was forgotten for lack of room, by
    /// device: accesses of the coldest regions.
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
        // Over no time at all there is no rate.
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

    /// Forgets a device that is gone.
    pub(super) fn remove(&mut self, device: u64) {
        self.table.retain(|key, _| key >> 32 != device);
    }

    /// The hottest regions of a device, hottest first.
    pub(super) fn hottest(&self, device: u64) -> Option<Structured> {
        let keys = device << 32..=device << 32 | u64::from(u32::MAX);
        let mut regions: Vec<_> = self.table.range(keys).map(|(key, r)| (*key, *r)).collect();
        regions.sort_by(|(_, a), (_, b)| a.hotter(b));
        regions.truncate(TOP);
        let list: Vec<_> = regions.iter().map(|(key, region)| region.record(*key)).collect();
        // Sixteen records of four numbers are far from too long.
        Structured::new(list.into()).ok()
    }
}

impl Region {
    /// The order of heat: rate first; among those that nobody accesses now, what was accessed most.
    fn hotter(&self, other: &Self) -> std::cmp::Ordering {
        other.rate.total_cmp(&self.rate).then(other.accesses.cmp(&self.accesses))
    }

    fn record(&self, key: u64) -> serde_json::Value {
        json!({
            "start_byte": (key & u64::from(u32::MAX)) * REGION_BYTES,
            "bytes": REGION_BYTES,
            "accesses": self.accesses,
            // More digits than a sample of a decaying mean has would be noise.
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
    fn a_rate_comes_near_the_truth_and_fades_when_nothing_comes() {
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
    fn what_is_hot_now_comes_before_what_was_hot_once() {
        let mut regions = Regions::default();
        regions.add([(key(1, 0), 1_000_000)].into_iter(), SECOND);
        regions.add([].into_iter(), 3600 * SECOND);
        regions.add([(key(1, 1), 1)].into_iter(), SECOND);
        assert_eq!(column(&regions, 1, "accesses"), [1.0, 1_000_000.0]);
    }

    #[test]
    fn the_coldest_are_forgotten_and_counted() {
        let mut regions = Regions::default();
        let rows = (0..MAX_REGIONS as u64 + 10).map(|n| (key(1 + n % 2, n), n + 1));
        let forgotten = regions.add(rows, SECOND);
        assert_eq!(regions.table.len(), MAX_REGIONS);
        // 1 to 10 accesses, the odd ones of the first device.
        assert_eq!(forgotten, [(1, 25), (2, 30)].into());
        assert_eq!(column(&regions, 1, "accesses").len(), TOP);
    }

    #[test]
    fn no_time_between_two_polls_is_no_infinite_rate() {
        let mut regions = Regions::default();
        regions.add([(key(1, 0), u64::MAX / 2)].into_iter(), Duration::ZERO);
        assert_eq!(column(&regions, 1, "rate"), [0.0]);
    }
}
