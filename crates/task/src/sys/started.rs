//! Remembers how this process was started, so that its task starts the same way. Rust's runtime
//! changes some of that before `main`: it ignores SIGPIPE, and opens `/dev/null` in place of closed
//! standard streams. The monitor changes more: its own limits must not end it before the task ends.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// Signals that were ignored when the process started.
static IGNORES_PIPE: AtomicBool = AtomicBool::new(false);
static IGNORES_FILE_SIZE: AtomicBool = AtomicBool::new(false);
static IGNORES_CHILDREN: AtomicBool = AtomicBool::new(false);

/// The standard streams that were closed at the start, one bit each.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The limits that the monitor raises for itself, as they were before: descriptors and address space.
static RAISED: [(Limited, OnceLock<libc::rlimit>); 2] =
    [(libc::RLIMIT_NOFILE, OnceLock::new()), (libc::RLIMIT_AS, OnceLock::new())];

/// The type that the C library gives to the names of limits.
type Limited = libc::__rlimit_resource_t;

/// The address space that a monitor needs beyond its own program: what it allocates for a large task.
const NEEDED_BYTES: u64 = 32 << 20;

/// The standard streams.
const STREAMS: [c_int; 3] = [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO];

// SAFETY: the C library calls the function in this section before `main`, and so before Rust's
// runtime, with arguments that a function without parameters ignores. It uses nothing of that
// runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = remember;

extern "C" fn remember() {
    IGNORES_PIPE.store(is_ignored(libc::SIGPIPE), Relaxed);
    IGNORES_FILE_SIZE.store(is_ignored(libc::SIGXFSZ), Relaxed);
    IGNORES_CHILDREN.store(is_ignored(libc::SIGCHLD), Relaxed);
    // SAFETY: reads a flag of a descriptor.
    let is_closed = |stream: c_int| unsafe { libc::fcntl(stream, libc::F_GETFD) } < 0;
    let closed = STREAMS.into_iter().filter(|stream| is_closed(*stream));
    CLOSED.store(closed.fold(0, |bits, stream| bits | 1 << stream), Relaxed);
}

fn is_ignored(signal: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the buffer is as large as the call expects, and all zero is a value of it.
    unsafe {
        libc::sigaction(signal, ptr::null(), now.as_mut_ptr());
        now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Prepares this process to be a monitor. It raises its limits of descriptors and address space to the
/// maximum and ignores SIGXFSZ, so that a write beyond the file size limit fails instead of ending it: these
/// limits are meant for the task, which starts with the original ones. It also stops ignoring SIGCHLD, since
/// the kernel discards the exits of children otherwise.
pub fn prepare_monitor() {
    // SAFETY: only the state of this process changes.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
    for (resource, before) in &RAISED {
        if let Some(now) = limit(*resource) {
            let before = *before.get_or_init(|| now);
            let raised = libc::rlimit { rlim_cur: before.rlim_max, ..before };
            // SAFETY: the limit is one that this process may set for itself.
            unsafe { libc::setrlimit(*resource, &raw const raised) };
        }
    }
}

fn limit(resource: Limited) -> Option<libc::rlimit> {
    let mut now = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: the buffer is as large as the call expects, and all zero is a value of it.
    unsafe { (libc::getrlimit(resource, now.as_mut_ptr()) == 0).then(|| now.assume_init()) }
}

/// The address space to which a task is limited, in bytes; `None` without a limit.
pub(crate) fn address_space() -> Option<u64> {
    let before = RAISED.iter().find(|(resource, _)| *resource == libc::RLIMIT_AS);
    let limit =
        before.and_then(|(_, before)| before.get().copied()).or_else(|| limit(libc::RLIMIT_AS))?;
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// True if this process may use enough address space to be a monitor (`ulimit -v`).
pub fn has_room() -> bool {
    let most = limit(libc::RLIMIT_AS).map_or(libc::RLIM_INFINITY, |limit| limit.rlim_cur);
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    let used = pages.saturating_mul(rustix::param::page_size() as u64);
    most.saturating_sub(used) >= NEEDED_BYTES
}

/// Restores the original state in the child before exec. It only makes calls that are allowed after
/// a fork, and none that the seccomp filter asks about.
pub(super) fn restore() {
    let closed = CLOSED.load(Relaxed);
    // SAFETY: only the state of this process changes; the limit is one that it had.
    unsafe {
        for stream in STREAMS.into_iter().filter(|stream| closed & 1 << stream != 0) {
            // `exec` closes them: the filter might ask about a call of `close`.
            libc::fcntl(stream, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        for (signal, ignored) in [
            (libc::SIGPIPE, &IGNORES_PIPE),
            (libc::SIGXFSZ, &IGNORES_FILE_SIZE),
            (libc::SIGCHLD, &IGNORES_CHILDREN),
        ] {
            let ignored = ignored.load(Relaxed);
            libc::signal(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL });
        }
        for (resource, before) in &RAISED {
            if let Some(before) = before.get() {
                libc::setrlimit(*resource, before);
            }
        }
    }
}
