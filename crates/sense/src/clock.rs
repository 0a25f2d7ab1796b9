//! `clock`: the system clock, compared with the hardware counter that it is made from
//! (Documentation/timers/timekeeping.rst, clock_gettime(2)).
//!
//! The kernel derives the system time from a hardware counter. A time service adjusts it in two
//! ways: it *slews* the clock, which makes it run faster or slower than the counter, or it *steps*
//! it, which sets it. With d(x) as the growth of x since the last poll,
//!
//! ```text
//! drift_ppm = (d(CLOCK_MONOTONIC) / d(CLOCK_MONOTONIC_RAW) - 1) * 10^6
//! step      = d(CLOCK_REALTIME) - d(CLOCK_BOOTTIME), if larger than the clocks can be read apart
//! ```
//!
//! `CLOCK_MONOTONIC_RAW` is the bare counter, `CLOCK_MONOTONIC` is slewed and never stepped,
//! `CLOCK_REALTIME` is both, and only `CLOCK_BOOTTIME` continues while the machine sleeps. The
//! distance from the clocks of other machines cannot be measured on one machine; `peer` measures
//! it.
//!
//! Other sensors do not read clocks. This one measures them, and [`now`] is the only place that
//! reads them.

use std::io;
use std::time::Duration;

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use skopos_model::schema::Family;
use skopos_model::schema::clock::{self, *};

use crate::facts::Facts;
use crate::sensor::{Sensor, Skip, Tick};

/// Reading five clocks takes a fifth of a microsecond. If it took longer than this, the thread was
/// interrupted in between, and the clocks were not read at the same time.
const MAX_READING_NANOS: i64 = 5_000;

/// The number of attempts to read the clocks without an interruption. The best attempt counts.
const ATTEMPTS: usize = 4;

/// A smaller difference is not a step but an interruption between two clocks. Time services slew
/// differences below 0.1 s; those that step do it by at least a millisecond.
const MIN_STEP_NANOS: i64 = 500_000;

/// In a shorter time the drift would be noise: clocks that are read 50 ns apart, over this time,
/// are wrong by half a millionth.
const MIN_DRIFT_TIME: Duration = Duration::from_millis(100);

/// The drift of a clock changes within minutes, and a longer time between two readings measures it
/// better.
const INTERVAL: Duration = Duration::from_secs(10);

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Returns the nanoseconds of the kernel's clock with this name.
pub(crate) fn now(clock: ClockId) -> i64 {
    nanos(clock_gettime(clock))
}

fn nanos(time: Timespec) -> i64 {
    time.tv_sec * NANOS_PER_SECOND + time.tv_nsec
}

/// All clocks at one time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    raw: i64,
    monotonic: i64,
    boottime: i64,
    realtime: i64,
    /// `None` where the kernel does not have this clock.
    tai: Option<i64>,
    /// The time that the reading took.
    took: i64,
}

impl Reading {
    /// Returns the best of a few attempts.
    fn take() -> Self {
        let mut best = Self::take_once();
        for _ in 1..ATTEMPTS {
            if best.took <= MAX_READING_NANOS {
                break;
            }
            let next = Self::take_once();
            if next.took < best.took {
                best = next;
            }
        }
        best
    }

    fn take_once() -> Self {
        let before = now(ClockId::MonotonicRaw);
        let monotonic = now(ClockId::Monotonic);
        let realtime = now(ClockId::Realtime);
        let boottime = now(ClockId::Boottime);
        let tai = clock_gettime_dynamic(DynamicClockId::Tai).ok().map(nanos);
        let took = now(ClockId::MonotonicRaw) - before;
        Self { raw: before + took / 2, monotonic, boottime, realtime, tai, took }
    }
}

/// The course of the clock since the first reading.
struct Course {
    first: Reading,
    last: Reading,
    steps: u64,
    /// The sum of all steps, in nanoseconds.
    stepped: i64,
}

impl Course {
    fn new(first: Reading) -> Self {
        Self { first, last: first, steps: 0, stepped: 0 }
    }

    /// Continues with `next`. Returns the drift since the reading before, in millionths, if enough
    /// time has passed.
    fn advance(&mut self, next: Reading) -> Option<f64> {
        let last = std::mem::replace(&mut self.last, next);
        let step = (next.realtime - last.realtime) - (next.boottime - last.boottime);
        if step.abs() >= MIN_STEP_NANOS {
            self.steps += 1;
            self.stepped += step;
        }
        let raw = next.raw - last.raw;
        let is_enough = raw >= MIN_DRIFT_TIME.as_nanos() as i64;
        is_enough.then(|| (next.monotonic - last.monotonic - raw) as f64 * 1e6 / raw as f64)
    }

    /// Returns the nanoseconds that the system time gained on the bare counter. Sleep does not
    /// count.
    fn deviation(&self) -> i64 {
        let slewed =
            (self.last.monotonic - self.first.monotonic) - (self.last.raw - self.first.raw);
        slewed + self.stepped
    }

    /// Returns whole seconds, since the two clocks differ by a number of seconds only.
    fn tai_offset_seconds(&self) -> Option<f64> {
        self.last.tai.map(|tai| seconds(tai - self.last.realtime).round())
    }
}

pub(crate) struct Clock {
    facts: Facts,
    course: Course,
}

impl Clock {
    /// Always succeeds: every machine has clocks.
    pub(crate) fn open() -> Result<Self, Skip> {
        Ok(Self { facts: Facts::of_node(&clock::FAMILY), course: Course::new(Reading::take()) })
    }
}

impl Sensor for Clock {
    fn family(&self) -> &'static Family {
        &clock::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { facts, course } = self;
        if let Some(drift) = course.advance(Reading::take()) {
            facts.set(tick, &DRIFT_PPM, drift);
        }
        facts.set(tick, &DEVIATION_SECONDS, seconds(course.deviation()));
        facts.set(tick, &STEPS_TOTAL, course.steps);
        facts.set(tick, &STEPPED_SECONDS, seconds(course.stepped));
        if let Some(offset) = course.tai_offset_seconds() {
            facts.set(tick, &TAI_OFFSET_SECONDS, offset);
        }
        Ok(())
    }

    fn interval_hint(&self) -> Option<Duration> {
        Some(INTERVAL)
    }
}

fn seconds(nanos: i64) -> f64 {
    nanos as f64 / NANOS_PER_SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Reading = Reading {
        raw: 1_000,
        monotonic: 2_000,
        boottime: 3_000,
        realtime: 1_790_000_000_000_000_000,
        tai: Some(1_790_000_037_000_000_000),
        took: 200,
    };

    /// Returns a reading taken this many nanoseconds of the bare counter later.
    fn later(from: Reading, raw: i64, gained: i64, slept: i64, step: i64) -> Reading {
        let awake = raw + gained;
        Reading {
            raw: from.raw + raw,
            monotonic: from.monotonic + awake,
            boottime: from.boottime + awake + slept,
            realtime: from.realtime + awake + slept + step,
            tai: from.tai.map(|tai| tai + awake + slept + step),
            took: 200,
        }
    }

    #[test]
    fn drift_is_the_gain_of_the_clock_on_the_counter() {
        let mut course = Course::new(START);
        let ten = 10 * NANOS_PER_SECOND;
        let faster = later(START, ten, 420_000, 0, 0);
        assert_eq!(course.advance(faster), Some(42.0));
        let slower = later(faster, ten, -1_000, 0, 0);
        assert_eq!(course.advance(slower), Some(-0.1));
        assert_eq!((course.deviation(), course.steps), (419_000, 0));
        assert_eq!(course.tai_offset_seconds(), Some(37.0));
    }

    #[test]
    fn a_step_is_not_drift_and_sleep_is_not_a_step() {
        let mut course = Course::new(START);
        let set_back = later(START, NANOS_PER_SECOND, 0, 0, -2_500_000_000);
        assert_eq!(course.advance(set_back), Some(0.0));
        let slept = later(set_back, NANOS_PER_SECOND, 0, 3600 * NANOS_PER_SECOND, 0);
        assert_eq!(course.advance(slept), Some(0.0));
        let set_on = later(slept, NANOS_PER_SECOND, 0, 0, 1_000_000);
        assert_eq!(course.advance(set_on), Some(0.0));
        assert_eq!((course.steps, course.stepped), (2, -2_499_000_000));
        assert_eq!(course.deviation(), -2_499_000_000);
    }

    #[test]
    fn an_interruption_between_two_clocks_is_not_a_step() {
        let mut course = Course::new(START);
        course.advance(later(START, NANOS_PER_SECOND, 0, 0, MIN_STEP_NANOS - 1));
        assert_eq!((course.steps, course.stepped), (0, 0));
    }

    #[test]
    fn a_moment_is_too_short_to_measure_drift() {
        let mut course = Course::new(START);
        assert_eq!(course.advance(later(START, 99_000_000, 50, 0, 0)), None);
    }
}
