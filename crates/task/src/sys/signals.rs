//! Signals of this process: received through a descriptor, and restored for the task.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

use super::pid::Pid;

/// The signal mask of this process before it monitored any task.
static BEFORE: OnceLock<libc::sigset_t> = OnceLock::new();

/// The blocked signals of this process, as a readable descriptor.
pub(crate) struct Signals {
    descriptor: OwnedFd,
    /// The signal mask before.
    pub(crate) before: libc::sigset_t,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedSignal {
    pub(crate) signal: c_int,
    /// The terminal sent it to the whole process group.
    pub(crate) from_terminal: bool,
}

impl Signals {
    /// The most signals read at once: more than are ever blocked here.
    const KINDS: usize = 16;

    /// Blocks these signals and reads them from a descriptor from now on.
    pub(crate) fn new(signals: &[c_int]) -> io::Result<Self> {
        // SAFETY: the sets outlive the calls and are made by `sigemptyset`.
        unsafe {
            let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigemptyset(before.as_mut_ptr());
            let mut set = set.assume_init();
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) < 0 {
                return Err(io::Error::last_os_error());
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            // The signals stay blocked, so for a second task the original mask is that of the first.
            let before = *BEFORE.get_or_init(|| before.assume_init());
            let descriptor = libc::signalfd(-1, &raw const set, flags);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            let descriptor = OwnedFd::from_raw_fd(descriptor);
            Ok(Self { descriptor, before })
        }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd as _;
        self.descriptor.as_fd()
    }

    /// Takes the signals that arrived. Of each kind at most one is pending.
    pub(crate) fn take(&self) -> impl Iterator<Item = ReceivedSignal> + use<> {
        let mut infos = MaybeUninit::<[libc::signalfd_siginfo; Self::KINDS]>::zeroed();
        let size = size_of_val(&infos);
        // SAFETY: the buffer has the size that is passed, and all zero is a value of it.
        let (bytes, infos) = unsafe {
            let bytes = libc::read(self.descriptor.as_raw_fd(), infos.as_mut_ptr().cast(), size);
            (bytes, infos.assume_init())
        };
        let count = usize::try_from(bytes).unwrap_or(0) / size_of::<libc::signalfd_siginfo>();
        infos.into_iter().take(count).map(|info| ReceivedSignal {
            signal: info.ssi_signo as c_int,
            from_terminal: info.ssi_code == libc::SI_KERNEL,
        })
    }
}

/// The signal mask that this process had before [`Signals`] blocked any signal.
pub(super) fn original_mask() -> Option<&'static libc::sigset_t> {
    BEFORE.get()
}

/// Makes another process group of this session the foreground group of its terminal. This process
/// must be in the foreground group itself.
pub(crate) fn give_terminal(group: Pid) {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return };
    // SAFETY: touches no memory.
    unsafe { libc::tcsetpgrp(terminal.as_raw_fd(), group) };
}

/// Ends this process as `signal` would, so that its parent sees how the task ended. It leaves no core
/// dump.
pub fn die_of(signal: c_int) {
    // SAFETY: sets handlers and the mask of this process, which is about to end.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        libc::sigaddset(&raw mut set, signal);
        libc::raise(signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
    }
}
