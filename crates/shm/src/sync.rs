//! The atomics of the protocols: the real ones, or loom's when a test explores every interleaving.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

/// Stays away from a lock for a while; `round` counts the tries so far.
///
/// A core that tries for the lock takes the vertex's cache lines from the core that is at work, and
/// gives them back when it is turned away: that costs both of them ten publishes. So whoever finds
/// the lock taken stays away for about fifty. Then cores publish in turns of many, which is several
/// times faster than one by one, and a chance meeting of two rare publishers costs microseconds.
pub(crate) fn pause(round: u32) {
    #[cfg(loom)]
    {
        let _ = round;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    {
        use std::time::{Duration, Instant};
        /// The first spell of staying away. The clock counts it, not the loop: how long a core's
        /// pause instruction takes differs tenfold.
        const SPELL: Duration = Duration::from_micros(3);
        /// Spells, each twice the one before it, until the holder is likely not running at all.
        const SPELLS: u32 = 2;
        /// Rounds before sleeping, yielding to a holder that the scheduler put aside.
        const ROUNDS: u32 = 16;
        /// Long enough to let a holder of lower priority run.
        const NAP: Duration = Duration::from_micros(50);
        match round {
            0..SPELLS => {
                let started = Instant::now();
                while started.elapsed() < SPELL * (1 << round) {
                    std::hint::spin_loop();
                }
            }
            SPELLS..ROUNDS => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
    }
}
