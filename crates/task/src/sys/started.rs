//! How this process was started, which is how its task is to start. Rust's runtime changes some of that
//! before `main`: it ignores SIGPIPE, and opens `/dev/null` in the place of standard streams that are
//! closed. The monitor changes more: its own limits must not end it before the task does.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// Whether these were ignored when the process started.
static IGNORES_PIPE: AtomicBool = AtomicBool::new(false);
static IGNORES_FILE_SIZE: AtomicBool = AtomicBool::new(false);
static IGNORES_CHILDREN: AtomicBool = AtomicBool::new(false);

/// The standard streams that were closed then, a bit for each.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The limit of descriptors before the monitor raised its own.
static DESCRIPTORS: OnceLock<libc::rlimit> = OnceLock::new();

/// The standard streams.
const STREAMS: [c_int; 3] = [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO];

// SAFETY: the C library calls what this section points to before `main`, and so before Rust's runtime:
// with arguments that a function without any ignores, and nothing of that runtime is used.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = remember;

extern "C" fn remember() {
    IGNORES_PIPE.store(is_ignored(libc::SIGPIPE), Relaxed);
    IGNORES_FILE_SIZE.store(is_ignored(libc::SIGXFSZ), Relaxed);
    IGNORES_CHILDREN.store(is_ignored(libc::SIGCHLD), Relaxed);
    // SAFETY: asks for a flag.
    let is_closed = |stream: c_int| unsafe { libc::fcntl(stream, libc::F_GETFD) } < 0;
    let closed = STREAMS.into_iter().filter(|stream| is_closed(*stream));
    CLOSED.store(closed.fold(0, |bits, stream| bits | 1 << stream), Relaxed);
}

fn is_ignored(signal: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the place is as large as the call wants, and all zero is a value of it.
    unsafe {
        libc::sigaction(signal, ptr::null(), now.as_mut_ptr());
        now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Lets this process have as many descriptors as it may, and fail to write a file that grows too large,
/// rather than die of it: both limits are meant for the task, which starts with them as they were.
/// And hear of the end of its children, which the kernel takes away unseen where SIGCHLD is ignored.
pub fn prepare_monitor() {
    let mut now = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: the place is as large as the call wants, and all zero is a value of it; what is changed is
    // this process's own.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        if libc::getrlimit(libc::RLIMIT_NOFILE, now.as_mut_ptr()) == 0 {
            let before = *DESCRIPTORS.get_or_init(|| now.assume_init());
            let raised = libc::rlimit { rlim_cur: before.rlim_max, ..before };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised);
        }
    }
}

/// In the child, before it becomes the program: all is as it was. What is called here may be called after
/// a fork, and a filter asks about none of it.
pub(super) fn restore() {
    let closed = CLOSED.load(Relaxed);
    // SAFETY: what is changed is this process's own; the limit is one that it had.
    unsafe {
        for stream in STREAMS.into_iter().filter(|stream| closed & 1 << stream != 0) {
            // To close them is left to `exec`: the call might be asked about.
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
        if let Some(before) = DESCRIPTORS.get() {
            libc::setrlimit(libc::RLIMIT_NOFILE, before);
        }
    }
}
