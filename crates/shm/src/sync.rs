//! The atomics of the protocols: those of the standard library, or loom's in a test that explores every
//! interleaving.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, compiler_fence, fence,
};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// A load with Acquire ordering of memory that may be mapped for reading only.
///
/// For such memory `std` promises relaxed loads and no others, so this is a relaxed load and a fence. On x86 the fence is
/// no instruction; elsewhere it costs a little more than a load with ordering.
pub(crate) trait AcquireLoad {
    /// The type of the value.
    type Value;
    /// Loads the value: what the writer stored before its Release store is visible afterwards.
    fn load_acquire(&self) -> Self::Value;
}

macro_rules! acquire_load {
    ($($atomic:ty => $value:ty),*) => {$(
        impl AcquireLoad for $atomic {
            type Value = $value;

            #[inline(always)]
            fn load_acquire(&self) -> $value {
                let value = self.load(Ordering::Relaxed);
                // SYNC: pairs with the Release store or fence that the caller names.
                fence(Ordering::Acquire);
                value
            }
        }
    )*};
}
acquire_load!(AtomicU32 => u32, AtomicU64 => u64, AtomicI64 => i64);

/// Waits before the next attempt at a lock; `round` counts the attempts so far.
///
/// A core that tries to take the lock pulls the vertex's cache lines away from the core that holds it,
/// and gives them back when the attempt fails: that costs both cores the time of ten publishes. So a
/// writer that finds the lock taken waits for the time of about fifty. Then cores publish in turns of
/// many samples, which is several times faster than one by one, and a collision of two rare publishers
/// costs microseconds.
pub(crate) fn pause(round: u32) {
    #[cfg(loom)]
    {
        let _ = round;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    {
        use std::time::{Duration, Instant};
        /// Length of the first spin. The clock measures it, not a loop count: the time of a pause
        /// instruction differs tenfold between cores.
        const SPELL: Duration = Duration::from_micros(3);
        /// Number of spins, each twice as long as the one before. After them the holder is probably not
        /// running.
        const SPELLS: u32 = 2;
        /// Number of rounds before sleeping; they yield to a holder that the scheduler preempted.
        const ROUNDS: u32 = 16;
        /// Length of a sleep: long enough to let a holder of lower priority run.
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
