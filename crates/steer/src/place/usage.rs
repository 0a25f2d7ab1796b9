//! The own transfers on a tier over time, to tell them from those of other programs in the same telemetry.

use std::collections::VecDeque;
use std::time::Duration;

/// Most events that are kept: at a thousand transfers a second, those of a quarter of a second, which is longer than the
/// window of telemetry at such a load. Older times count as the oldest event.
pub const MAX_EVENTS: usize = 512;

/// A kind of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// From the tier.
    Read,
    /// To the tier.
    Written,
}

/// Sums since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    at: Duration,
    read_bytes: f64,
    written_bytes: f64,
    busy_seconds: f64,
    /// Complete bytes less removed bytes: the part of the own bytes that is on the tier.
    present_bytes: i64,
}

/// The own transfers of a tier. Times are durations since any fixed start.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    events: VecDeque<Totals>,
    totals: Totals,
    in_flight: u32,
    queued_read_bytes: u64,
    queued_written_bytes: u64,
    /// Reserved bytes less removed bytes.
    reserved_bytes: i64,
}

/// The own load over a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    pub(crate) read_bytes_per_second: f64,
    pub(crate) written_bytes_per_second: f64,
    pub(crate) busy_ratio: f64,
}

impl Usage {
    /// Takes the start of a transfer of `bytes`.
    pub fn begin(&mut self, now: Duration, moved: Moved, bytes: u64) {
        self.advance(now);
        self.in_flight += 1;
        match moved {
            Moved::Read => self.queued_read_bytes += bytes,
            Moved::Written => {
                self.queued_written_bytes += bytes;
                self.reserved_bytes += bytes.cast_signed();
            }
        }
        self.keep();
    }

    /// Takes the end of a transfer that [`begin`](Self::begin) was told of. A failed one has moved nothing.
    pub fn end(&mut self, now: Duration, moved: Moved, bytes: u64, is_failed: bool) {
        self.advance(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        let queued = match moved {
            Moved::Read => &mut self.queued_read_bytes,
            Moved::Written => &mut self.queued_written_bytes,
        };
        *queued = queued.saturating_sub(bytes);
        match (moved, is_failed) {
            (Moved::Read, false) => self.totals.read_bytes += bytes as f64,
            (Moved::Written, false) => {
                self.totals.written_bytes += bytes as f64;
                self.totals.present_bytes += bytes.cast_signed();
            }
            (Moved::Written, true) => self.reserved_bytes -= bytes.cast_signed(),
            (Moved::Read, true) => {}
        }
        self.keep();
    }

    /// Takes the removal of `bytes`.
    pub fn remove(&mut self, now: Duration, bytes: u64) {
        self.advance(now);
        self.reserved_bytes -= bytes.cast_signed();
        self.totals.present_bytes -= bytes.cast_signed();
        self.keep();
    }

    /// Returns the bytes of transfers in flight.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_read_bytes + self.queued_written_bytes
    }

    /// Returns the bytes that were reserved by now and not complete at `then`; 0 if more were removed since.
    pub(crate) fn unseen_bytes(&self, then: Duration) -> u64 {
        let unseen = self.reserved_bytes - self.at(then).present_bytes;
        unseen.max(0).cast_unsigned()
    }

    /// Returns the mean load from `from` to `to`.
    pub(crate) fn load(&self, from: Duration, to: Duration) -> Load {
        let seconds = to.saturating_sub(from).as_secs_f64();
        if seconds <= 0.0 {
            return Load::default();
        }
        let (before, after) = (self.at(from), self.at(to));
        let mean = |before: f64, after: f64| ((after - before) / seconds).max(0.0);
        Load {
            read_bytes_per_second: mean(before.read_bytes, after.read_bytes),
            written_bytes_per_second: mean(before.written_bytes, after.written_bytes),
            busy_ratio: mean(before.busy_seconds, after.busy_seconds).min(1.0),
        }
    }

    fn advance(&mut self, now: Duration) {
        if self.in_flight > 0 {
            self.totals.busy_seconds += now.saturating_sub(self.totals.at).as_secs_f64();
        }
        self.totals.at = now.max(self.totals.at);
    }

    fn keep(&mut self) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(self.totals);
    }

    /// Returns the sums at a time. Between two events bytes and busy time grow steadily, because a transfer moves its bytes
    /// over its whole time; `present_bytes` stays as it was at the earlier one.
    fn at(&self, time: Duration) -> Totals {
        let next = self.events.partition_point(|event| event.at <= time);
        let Some(before) = next.checked_sub(1).map(|before| self.events[before]) else {
            return self.events.front().copied().unwrap_or(self.totals);
        };
        let Some(after) = self.events.get(next) else { return self.after(before, time) };
        let span = after.at.saturating_sub(before.at).as_secs_f64();
        let share = time.saturating_sub(before.at).as_secs_f64() / span.max(1e-9);
        let between = |a: f64, b: f64| a + (b - a) * share.min(1.0);
        Totals {
            at: time,
            read_bytes: between(before.read_bytes, after.read_bytes),
            written_bytes: between(before.written_bytes, after.written_bytes),
            busy_seconds: between(before.busy_seconds, after.busy_seconds),
            present_bytes: before.present_bytes,
        }
    }

    /// Returns the sums at a time after the last event: transfers in flight go on at the mean rate so far.
    fn after(&self, last: Totals, time: Duration) -> Totals {
        if self.in_flight == 0 {
            return last;
        }
        let seconds = time.saturating_sub(last.at).as_secs_f64();
        let rate = (last.read_bytes + last.written_bytes) / last.busy_seconds.max(1e-9);
        let queued = self.queued_bytes() as f64;
        let share = (rate * seconds / queued.max(1.0)).min(1.0);
        Totals {
            at: time,
            read_bytes: last.read_bytes + share * self.queued_read_bytes as f64,
            written_bytes: last.written_bytes + share * self.queued_written_bytes as f64,
            busy_seconds: last.busy_seconds + seconds,
            present_bytes: last.present_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn transfers_move_their_bytes_over_their_whole_time() {
        let mut usage = Usage::default();
        usage.begin(at(100), Moved::Written, 1000);
        usage.end(at(200), Moved::Written, 1000, false);
        usage.begin(at(300), Moved::Read, 500);
        usage.end(at(400), Moved::Read, 500, false);
        let load = usage.load(at(100), at(150));
        assert!((load.written_bytes_per_second - 10_000.0).abs() < 1e-6, "{load:?}");
        assert!((load.busy_ratio - 1.0).abs() < 1e-9, "{load:?}");
        let load = usage.load(at(200), at(400));
        assert!((load.read_bytes_per_second - 2500.0).abs() < 1e-6, "{load:?}");
        assert!((load.busy_ratio - 0.5).abs() < 1e-9, "{load:?}");
        assert_eq!(usage.load(at(400), at(400)), Load::default());
        assert_eq!(usage.load(at(0), at(100)), Load::default());
    }

    #[test]
    fn a_transfer_in_flight_goes_on_at_the_mean_rate() {
        let mut usage = Usage::default();
        usage.begin(at(0), Moved::Written, 1000);
        usage.end(at(100), Moved::Written, 1000, false);
        usage.begin(at(200), Moved::Written, 3000);
        let load = usage.load(at(200), at(300));
        assert!((load.written_bytes_per_second - 10_000.0).abs() < 1e-6, "{load:?}");
        assert!((load.busy_ratio - 1.0).abs() < 1e-9, "{load:?}");
        assert_eq!(usage.queued_bytes(), 3000);
        // It never moves more than its bytes.
        let load = usage.load(at(200), at(1200));
        assert!((load.written_bytes_per_second - 3000.0).abs() < 1e-6, "{load:?}");
    }

    #[test]
    fn bytes_that_were_not_complete_at_a_time_are_unseen_then() {
        let mut usage = Usage::default();
        usage.begin(at(0), Moved::Written, 1000);
        usage.end(at(100), Moved::Written, 1000, false);
        usage.begin(at(150), Moved::Written, 300);
        assert_eq!(usage.unseen_bytes(at(50)), 1300);
        assert_eq!(usage.unseen_bytes(at(120)), 300);
        usage.end(at(200), Moved::Written, 300, true);
        assert_eq!(usage.unseen_bytes(at(120)), 0);
        usage.remove(at(300), 1000);
        assert_eq!(usage.unseen_bytes(at(250)), 0);
    }

    #[test]
    fn old_events_make_room() {
        let mut usage = Usage::default();
        for n in 0..MAX_EVENTS as u64 {
            usage.begin(at(10 * n), Moved::Read, 10);
            usage.end(at(10 * n + 5), Moved::Read, 10, false);
        }
        assert_eq!(usage.events.len(), MAX_EVENTS);
        let oldest = usage.events.front().map(|event| event.at).unwrap_or_default();
        assert_eq!(usage.load(at(0), oldest), Load::default());
    }
}
