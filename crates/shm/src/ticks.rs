//! The cheapest clock of the machine: the counter of the processor, where it is the same on all cores and never stops.
//!
//! A processor's counter is used only if the processor says that it runs at a constant rate and in all sleep states, and
//! the kernel itself keeps time by it: the kernel watches it on all cores and leaves it if they disagree. Otherwise a tick
//! is a nanosecond of `CLOCK_MONOTONIC`.

use std::fs;
use std::sync::OnceLock;

/// The source of ticks of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    is_counter: bool,
}

/// A moment on three clocks, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickMoment {
    /// Ticks.
    pub ticks: u64,
    /// UNIX time, ns.
    pub unix_ns: i64,
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: u64,
    /// Ticks between the readings before and after the other clocks: the moment is known to half of it.
    pub width: u64,
}

/// Attempts at a moment: the narrowest counts, so that an interrupt in one of them does no harm.
const ATTEMPTS: u32 = 8;

impl Ticks {
    /// Finds the source; asks the system once in the life of a process.
    pub fn find() -> Self {
        static FOUND: OnceLock<Ticks> = OnceLock::new();
        *FOUND.get_or_init(|| Self { is_counter: !cfg!(miri) && has_steady_counter() })
    }

    /// Returns a source that never uses the processor's counter.
    pub const fn monotonic() -> Self {
        Self { is_counter: false }
    }

    /// Returns true if a tick is one of the processor's counter.
    pub const fn is_counter(self) -> bool {
        self.is_counter
    }

    /// Returns the time in ticks.
    ///
    /// A processor may read its counter while earlier instructions still wait for memory. So a reading after a lock was taken
    /// may be lower than one before the lock was released, by some hundred nanoseconds. Those of one thread never go back.
    #[inline(always)]
    pub fn now(self) -> u64 {
        if self.is_counter { crate::sys::counter() } else { crate::sys::monotonic() }
    }

    /// Reads all clocks at nearly the same time.
    pub fn moment(self) -> TickMoment {
        let read = || {
            let before = self.now();
            let (unix_ns, monotonic_ns) = (crate::sys::now().as_nanos(), crate::sys::monotonic());
            let width = self.now().saturating_sub(before);
            TickMoment { ticks: before.saturating_add(width / 2), unix_ns, monotonic_ns, width }
        };
        let first = read();
        (1..ATTEMPTS).map(|_| read()).fold(
            first,
            |best, next| {
                if next.width < best.width { next } else { best }
            },
        )
    }
}

impl TickMoment {
    /// Returns the length of a tick in ns, from an earlier moment to this one; `None` if they are the same.
    pub fn ns_per_tick(&self, earlier: &Self) -> Option<f64> {
        let ticks = self.ticks.checked_sub(earlier.ticks).filter(|ticks| *ticks > 0)?;
        let ns = self.monotonic_ns.checked_sub(earlier.monotonic_ns).filter(|ns| *ns > 0)?;
        Some(ns as f64 / ticks as f64)
    }
}

/// Returns true if the processor has a counter that is the same on all cores.
fn has_steady_counter() -> bool {
    if cfg!(target_arch = "aarch64") {
        // The architecture's timer is one for all cores, and runs at a constant rate.
        return true;
    }
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    let source =
        fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpus.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    source.is_ok_and(|source| source.trim() == "tsc") && has("constant_tsc") && has("nonstop_tsc")
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn ticks_never_go_back_between_threads() {
        for clock in [Ticks::find(), Ticks::monotonic()] {
            let latest = std::sync::Mutex::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            // The lock and the fence order the readings, so each is later than the one before.
                            let mut latest = latest.lock().expect("no panic");
                            crate::sys::wait_for_loads();
                            let now = clock.now();
                            assert!(now >= *latest, "{now} after {latest}");
                            *latest = now;
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_tick_has_the_same_length_as_by_the_kernels_clock() {
        let clock = Ticks::find();
        let first = clock.moment();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let ns_per_tick = clock.moment().ns_per_tick(&first).expect("later");
        let second = clock.moment();
        let expected = (second.monotonic_ns - first.monotonic_ns) as f64;
        let ticks = (second.ticks - first.ticks) as f64;
        // Each moment is known to its width; a busy machine widens it.
        let allowed = (first.width + 2 * second.width) as f64 * ns_per_tick + expected / 100.0;
        assert!((ticks * ns_per_tick - expected).abs() <= allowed);
        assert_eq!(first.ns_per_tick(&first), None);
    }
}
