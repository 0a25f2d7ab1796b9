//! The checks of telemetry, and the expected time of a transfer.

use std::time::Duration;

use crate::place::mean::Mean;
use crate::place::tier::{Aged, Tier};

/// Age from which a load is unknown: loads of storage change within seconds.
pub const MAX_LOAD_AGE: Duration = Duration::from_secs(2);
/// Age from which a remaining capacity is unknown. At a gigabyte a second, another program fills ten gigabytes meanwhile.
pub const MAX_CAPACITY_AGE: Duration = Duration::from_secs(10);
/// Age from which a speed, a health or a fault tolerance is unknown. Calibrations are values for months, and their
/// sensors are polled every few minutes; after a day, the agent is gone.
pub const MAX_PROPERTY_AGE: Duration = Duration::from_secs(86_400);
/// A device with a smaller health is used last. Even a dying disk has most of its 10^10 blocks, so a ten-thousandth of them,
/// a million bad blocks, is much.
pub const SICK_BELOW: f64 = 0.9999;
/// Largest share of others on a tier that counts: a write on the busiest tier still gets a twentieth of it. A write is synced in
/// several steps, and each of them waits for requests of others.
const MAX_OTHERS: f64 = 0.95;
/// Share of a tier that a read loses to others that use it all the time: the tier serves both in turns, and a file is read by
/// few large requests.
const TURNS: f64 = 0.5;

/// A tier after the checks of its values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    read_bytes_per_second: Option<f64>,
    write_bytes_per_second: Option<f64>,
    access_seconds: f64,
    /// Share of the tier that other programs use.
    others: Option<f64>,
    /// Its mean over the polls that decisions saw.
    mean_others: Option<f64>,
    queued_bytes: u64,
    /// Bytes of writes that have not begun.
    chosen_bytes: u64,
    pub(super) awaited_bytes: u64,
    /// Bytes that can be written, as far as is known.
    pub(super) room_bytes: u64,
    pub(super) evictable_bytes: u64,
    pub(super) is_failed: bool,
    pub(super) is_sick: bool,
    pub(super) fault_tolerance: Option<f64>,
}

/// Checks the values of all tiers, of which `means` has the load of others so far. Returns the number of values that were
/// refused: NaN, infinite or negative.
pub(super) fn estimate(tiers: &[Tier], means: &mut Vec<Mean>, into: &mut Vec<Estimate>) -> u64 {
    let mut refused = 0;
    means.resize(tiers.len(), Mean::default());
    into.clear();
    into.extend(tiers.iter().zip(means).map(|(tier, mean)| one(tier, mean, &mut refused)));
    // A tier of unknown load is neither idle nor full: it counts as the mean of the others.
    let others = known_mean(into.iter().map(|e| e.others));
    let mean_others = known_mean(into.iter().map(|e| e.mean_others));
    for e in into {
        e.others = Some(e.others.unwrap_or(others));
        e.mean_others = Some(e.mean_others.unwrap_or(mean_others));
    }
    refused
}

/// Returns the mean of the known values; 0 if all are unknown.
fn known_mean(values: impl Iterator<Item = Option<f64>>) -> f64 {
    let (sum, count) = values.flatten().fold((0.0, 0.0), |(sum, count), v| (sum + v, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

fn one(tier: &Tier, mean: &mut Mean, refused: &mut u64) -> Estimate {
    let (own, telemetry) = (&tier.own, &tier.telemetry);
    let mut take = |value: Option<Aged>, max_age: Duration| {
        let value = value?;
        if !value.value.is_finite() || value.value < 0.0 {
            *refused += 1;
            return None;
        }
        (value.age <= max_age).then_some(value.value)
    };
    let mut property = |value| take(value, MAX_PROPERTY_AGE);
    let read = property(telemetry.read_bytes_per_second).filter(|rate| *rate > 0.0);
    let write = property(telemetry.write_bytes_per_second).filter(|rate| *rate > 0.0);
    let access_seconds = property(telemetry.access_seconds).unwrap_or(0.0);
    let health = property(telemetry.health_ratio);
    let fault_tolerance = property(telemetry.fault_tolerance);
    let interference = take(telemetry.interference_ratio, MAX_LOAD_AGE);
    let busy = take(telemetry.busy_ratio, MAX_LOAD_AGE);
    let remaining = take(telemetry.remaining_bytes, MAX_CAPACITY_AGE);
    // Both shares count the own transfers too, which are not interference.
    let of_bytes = interference.map(|share| {
        let own_share = |rate: f64, most: Option<f64>| most.map_or(0.0, |most| rate / most);
        share
            - own_share(own.read_bytes_per_second, read)
            - own_share(own.written_bytes_per_second, write)
    });
    let of_time = busy.map(|share| share - own.busy_ratio);
    let others = of_bytes.into_iter().chain(of_time).reduce(f64::max);
    // A request at the end of a window counts in this poll or in the next one, so the own part of one poll can be too large. The
    // mean is right only if it has such polls with their sign.
    let mean_others = mean.take(own.polled_at, others.map(|share| share.clamp(-1.0, 1.0)));
    let seen = remaining.map(|bytes| (bytes as u64).saturating_sub(own.unseen_bytes));
    Estimate {
        read_bytes_per_second: read,
        write_bytes_per_second: write,
        access_seconds,
        others: others.map(|share| share.clamp(0.0, MAX_OTHERS)),
        mean_others: mean_others.map(|share| share.clamp(0.0, MAX_OTHERS)),
        queued_bytes: own.queued_bytes,
        chosen_bytes: own.chosen_bytes,
        awaited_bytes: own.awaited_bytes,
        room_bytes: seen.map_or(own.room_bytes, |seen| seen.min(own.room_bytes)),
        evictable_bytes: own.evictable_bytes,
        is_failed: own.is_failed,
        is_sick: health.is_some_and(|health| health < SICK_BELOW),
        fault_tolerance,
    }
}

impl Estimate {
    /// Returns the expected seconds of a write behind the transfers in flight and the writes that are about to begin; `None` if
    /// the speed is unknown.
    pub(super) fn write_seconds(&self, bytes: u64) -> Option<f64> {
        let left = 1.0 - self.others.unwrap_or(0.0);
        let bytes = bytes.saturating_add(self.queued_bytes).saturating_add(self.chosen_bytes);
        Some(self.seconds(bytes, self.write_bytes_per_second?) / left)
    }

    /// Returns the expected seconds of a read behind the transfers in flight; `None` if the speed is unknown.
    pub(super) fn read_seconds(&self, bytes: u64) -> Option<f64> {
        let left = 1.0 - TURNS * self.others.unwrap_or(0.0);
        let bytes = bytes.saturating_add(self.queued_bytes);
        Some(self.seconds(bytes, self.read_bytes_per_second?) / left)
    }

    /// Returns the expected seconds of a read that comes later, when the transfers of now have ended and others load the tier
    /// as they did in the mean; `None` if the speed is unknown.
    pub(super) fn later_seconds(&self, bytes: u64) -> Option<f64> {
        let left = 1.0 - TURNS * self.mean_others.unwrap_or(0.0);
        Some(self.seconds(bytes, self.read_bytes_per_second?) / left)
    }

    fn seconds(&self, bytes: u64, rate: f64) -> f64 {
        self.access_seconds + bytes as f64 / rate
    }
}
