//! Continues counters of devices over wraps and restarts, and makes rates of them.

use std::time::Duration;

use super::unknown::{Reading, Unknown};

/// A share by which a plausible rate may exceed that of the link: speeds are rounded, and clocks differ.
const SLACK: f64 = 1.25;

/// The state of a counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    raw: u64,
    bits: u32,
    at: Duration,
    total: u64,
}

/// The value of a counter in a poll.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    /// The sum, continued over wraps and restarts of the device. It begins with the first value of the device.
    pub total: u64,
    /// The increase per second since the last poll.
    pub rate: Reading<f64>,
}

impl Counter {
    /// Takes the first value of a counter, of 32 or 64 bits.
    pub(super) fn new(raw: u64, bits: u32, at: Duration) -> (Self, Count) {
        let count = Count { total: raw, rate: Err(Unknown::FirstPoll) };
        (Self { raw, bits, at, total: raw }, count)
    }

    /// Takes the next value. `most` is the most that the counter can grow in a second, if that is known;
    /// `began_anew` says that the device reported a restart or a discontinuity.
    pub(super) fn next(
        &mut self,
        raw: u64,
        bits: u32,
        at: Duration,
        most: Option<f64>,
        began_anew: bool,
    ) -> Count {
        let seconds = at.saturating_sub(self.at).as_secs_f64();
        let grown = self.grown(raw, bits, seconds, most, began_anew);
        (self.raw, self.bits, self.at) = (raw, bits, at);
        if let Ok(grown) = grown {
            self.total = self.total.saturating_add(grown);
        }
        let per_second = |grown: u64| match seconds > 0.0 {
            true => Ok(grown as f64 / seconds),
            false => Err(Unknown::FirstPoll),
        };
        Count { total: self.total, rate: grown.and_then(per_second) }
    }

    /// Notes that the counter began anew while it was not read: its next value gives no rate.
    pub(super) fn expect_anew(&mut self) {
        // No counter has this width.
        self.bits = 0;
    }

    fn grown(
        &self,
        raw: u64,
        bits: u32,
        seconds: f64,
        most: Option<f64>,
        began_anew: bool,
    ) -> Reading<u64> {
        if began_anew || bits != self.bits {
            return Err(Unknown::BeganAnew);
        }
        let most = most.map(|most| most * seconds * SLACK + 1.0);
        let size = if bits == 32 { 4_294_967_296.0 } else { 18_446_744_073_709_551_616.0 };
        if most.is_some_and(|most| most >= size) {
            return Err(Unknown::Ambiguous);
        }
        if raw >= self.raw {
            return Ok(raw - self.raw);
        }
        let wrapped = match bits {
            32 => u64::from((raw as u32).wrapping_sub(self.raw as u32)),
            _ => raw.wrapping_sub(self.raw),
        };
        // A wrap is likelier than an unreported restart if it takes no more than the link can carry, or half of the
        // counter.
        if wrapped as f64 <= most.unwrap_or(size / 2.0) {
            Ok(wrapped)
        } else {
            Err(Unknown::BeganAnew)
        }
    }
}

/// Tells restarts of a device by its uptime.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uptime {
    ticks: u32,
    at: Duration,
    boots: Option<u32>,
}

/// Hundredths of a second by which an uptime may lag behind our clock: agents keep values for some seconds.
const LAG_TICKS: u64 = 1000;

impl Uptime {
    /// Takes an uptime, in hundredths of a second modulo 2^32, and the number of starts.
    pub(super) fn new(ticks: u32, at: Duration, boots: Option<u32>) -> Self {
        Self { ticks, at, boots }
    }

    /// Returns true if the device began anew between `self` and `next`.
    pub(super) fn began_anew(&self, next: &Self) -> bool {
        if let (Some(before), Some(after)) = (self.boots, next.boots)
            && after != before
        {
            return true;
        }
        let passed = next.at.saturating_sub(self.at).as_millis() as u64 / 10;
        let expected = u64::from(self.ticks) + passed;
        let lag = LAG_TICKS + passed / 10;
        // The uptime wraps after 497 days: a small one may be the wrapped one that is expected.
        let found = u64::from(next.ticks);
        let is_wrapped = expected + lag >= 1 << 32
            && found + (1 << 32) + lag >= expected
            && found <= passed + lag;
        found + lag < expected && !is_wrapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn check(bits: u32, from: u64, to: u64, most: Option<f64>, expected: Reading<f64>) {
        let (mut counter, first) = Counter::new(from, bits, SECOND);
        assert_eq!(first, Count { total: from, rate: Err(Unknown::FirstPoll) });
        let count = counter.next(to, bits, SECOND * 11, most, false);
        assert_eq!(count.rate, expected, "{from} to {to}");
        let grown = expected.map_or(0.0, |rate| rate * 10.0) as u64;
        assert_eq!(count.total, from.saturating_add(grown));
    }

    #[test]
    fn wraps_are_continued_and_restarts_are_not_invented() {
        let top32 = u64::from(u32::MAX);
        check(32, 100, 300, None, Ok(20.0));
        check(32, top32 - 99, 100, None, Ok(20.0));
        check(32, top32 - 99, 100, Some(100.0), Ok(20.0));
        // More than the link can carry.
        check(32, 3_000_000_000, 100, Some(1e6), Err(Unknown::BeganAnew));
        check(32, 1000, 500, None, Err(Unknown::BeganAnew));
        // 10 Gbit/s wrap 32 bits in 3.4 seconds.
        check(32, 100, 300, Some(1.25e9), Err(Unknown::Ambiguous));
        check(64, 100, 300, Some(1.25e9), Ok(20.0));
        check(64, u64::MAX - 99, 100, None, Ok(20.0));
        check(64, 1 << 40, 100, None, Err(Unknown::BeganAnew));
        check(64, 5, 5, None, Ok(0.0));
    }

    #[test]
    fn a_counter_goes_on_after_it_began_anew() {
        let (mut counter, _) = Counter::new(1000, 64, SECOND);
        let count = counter.next(50, 64, SECOND * 2, None, true);
        assert_eq!(count, Count { total: 1000, rate: Err(Unknown::BeganAnew) });
        assert_eq!(
            counter.next(60, 64, SECOND * 3, None, false),
            Count { total: 1010, rate: Ok(10.0) }
        );
        // Another width is another counter.
        assert_eq!(counter.next(70, 32, SECOND * 4, None, false).rate, Err(Unknown::BeganAnew));
        // No time passed.
        assert_eq!(counter.next(80, 32, SECOND * 4, None, false).rate, Err(Unknown::FirstPoll));
    }

    #[test]
    fn restarts_are_told_from_wraps_of_the_uptime() {
        let check = |from: u32, seconds: u64, to: u32, expected| {
            let before = Uptime::new(from, SECOND, None);
            let after = Uptime::new(to, SECOND + SECOND * seconds as u32, None);
            assert_eq!(before.began_anew(&after), expected, "{from} {seconds} {to}");
        };
        check(100_000, 60, 106_000, false);
        check(100_000, 60, 105_500, false);
        check(100_000, 60, 500, true);
        // A restart shortly after a start: the uptime grew, and by too little.
        check(500, 600, 3000, true);
        check(u32::MAX - 2999, 60, 3000, false);
        check(u32::MAX - 3000, 60, 60_000, true);
        let boots = |boots| Uptime::new(100, SECOND, Some(boots));
        assert!(boots(1).began_anew(&boots(2)) && !boots(2).began_anew(&boots(2)));
    }
}
