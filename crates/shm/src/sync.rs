//! The atomics of the protocols: the real ones, or loom's when a test explores every interleaving.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

/// Gives the core away for a moment while another thread finishes.
pub(crate) fn pause(round: u32) {
    #[cfg(loom)]
    {
        let _ = round;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    {
        /// Rounds of spinning: longer than a whole publish, shorter than a system call.
        const SPINS: u32 = 64;
        /// Rounds of yielding before sleeping, for a holder that the scheduler put aside.
        const YIELDS: u32 = 256;
        /// Long enough to let a holder of lower priority run.
        const NAP: std::time::Duration = std::time::Duration::from_micros(50);
        match round {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
    }
}
