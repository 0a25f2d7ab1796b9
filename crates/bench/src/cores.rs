//! Keeps the two sides of a measurement on cores of their own.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A core that this process may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Core {
    First,
    Last,
}

/// Runs `work` on a thread that stays on the first core.
pub(crate) fn on_first_core<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(Core::First);
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Pins this thread to a core that it may use. If that is not allowed, the scheduler goes on to choose
/// the core, which adds noise but is not an error.
pub(crate) fn pin(core: Core) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let chosen = match core {
        Core::First => cores.next(),
        Core::Last => cores.next_back(),
    };
    if let Some(cpu) = chosen {
        let mut one = CpuSet::new();
        one.set(cpu);
        let _ = sched_setaffinity(None, &one);
    }
}
