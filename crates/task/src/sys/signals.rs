//! Signals of this process: received through a descriptor, and restored for the task.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

use super::pid::Pid;
use super::witness::Witness;

/// The signal mask of this process before it monitored any task.
static BEFORE: OnceLock<libc::sigset_t> = OnceLock::new();

/// Signals that are not forwarded: those that cannot be caught, those of job control, which the monitor follows
/// by itself, and those that mean the monitor or that it ignores.
const NOT_FORWARDED: [c_int; 10] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGCONT,
    libc::SIGCHLD,
    libc::SIGURG,
    libc::SIGPIPE,
    libc::SIGXFSZ,
];

/// The last signal that is not a real-time one. The numbers up to `SIGRTMIN` belong to the C library.
const LAST_STANDARD: c_int = 31;

/// Returns the signals that the monitor forwards to a task that it started: the sender means the task. A fault
/// of the monitor itself ends it nevertheless, because the kernel does not let those be blocked.
pub(crate) fn forwarded() -> impl Iterator<Item = c_int> {
    (1..=LAST_STANDARD)
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
        .filter(|signal| !NOT_FORWARDED.contains(signal))
}

/// The blocked signals of this process, as a readable descriptor.
pub(crate) struct Signals {
    descriptor: OwnedFd,
    /// The signal mask before.
    pub(crate) before: libc::sigset_t,
    /// Present while a task runs, unless there is no room for another process.
    witness: Option<Witness>,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedSignal {
    pub(crate) signal: c_int,
    /// The kernel sent it: a terminal to the whole process group, or a timer or a limit to this process.
    pub(crate) from_kernel: bool,
    /// It was sent to the whole process group.
    pub(crate) to_group: bool,
    /// The value that `sigqueue` sends along.
    value: Option<usize>,
}

impl Signals {
    /// The most signals read at once. Further ones are read next time.
    const MOST: usize = 16;

    /// Blocks these signals and reads them from a descriptor from now on.
    pub(crate) fn new(signals: impl Iterator<Item = c_int>) -> io::Result<Self> {
        // SAFETY: the sets outlive the calls and are made by `sigemptyset`.
        unsafe {
            let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigemptyset(before.as_mut_ptr());
            let mut set = set.assume_init();
            for signal in signals {
                libc::sigaddset(&raw mut set, signal);
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
            Ok(Self { descriptor, before, witness: None })
        }
    }

    /// From now on [`Signals::take`] tells which signals have reached the whole process group.
    pub(crate) fn watch_group(&mut self) {
        // Without a witness, a signal to the group reaches the task twice.
        self.witness = Witness::start().ok();
    }

    /// Ends the witness of signals to the group.
    pub(crate) fn leave_group(&mut self) {
        self.witness = None;
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd as _;
        self.descriptor.as_fd()
    }

    /// Takes the signals that arrived.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = ReceivedSignal> + use<> {
        let mut infos = MaybeUninit::<[libc::signalfd_siginfo; Self::MOST]>::zeroed();
        let size = size_of_val(&infos);
        // SAFETY: the buffer has the size that is passed, and all zero is a value of it.
        let (bytes, infos) = unsafe {
            let bytes = libc::read(self.descriptor.as_raw_fd(), infos.as_mut_ptr().cast(), size);
            (bytes, infos.assume_init())
        };
        let count = usize::try_from(bytes).unwrap_or(0) / size_of::<libc::signalfd_siginfo>();
        // Signals of a terminal are known to be for the group, and the witness must not show them again.
        let others = infos.iter().take(count).filter(|i| i.ssi_signo as c_int != libc::SIGCHLD);
        let to_group = self.reached_group(others.fold(0, |all, info| all | bit(info.ssi_signo)));
        infos.into_iter().take(count).map(move |info| ReceivedSignal {
            signal: info.ssi_signo as c_int,
            from_kernel: info.ssi_code == libc::SI_KERNEL,
            to_group: to_group & bit(info.ssi_signo) != 0,
            value: (info.ssi_code == libc::SI_QUEUE).then_some(info.ssi_ptr as usize),
        })
    }

    /// Returns those of some signals that have reached the whole group, a bit each.
    fn reached_group(&mut self, signals: u64) -> u64 {
        let Some(witness) = self.witness.as_ref().filter(|_| signals != 0) else { return 0 };
        if !witness.has_any(signals) {
            return 0;
        }
        let there = witness.pending();
        if !witness.clear() {
            // It would show these signals again, and the next one of them would not reach the task.
            self.witness = None;
        }
        there
    }
}

/// The bit of a signal in a mask.
fn bit(signal: u32) -> u64 {
    signal.checked_sub(1).and_then(|n| 1u64.checked_shl(n)).unwrap_or(0)
}

/// Sends a signal on to a process, with its value if it has one.
pub(crate) fn forward(pid: Pid, received: &ReceivedSignal) {
    match received.value {
        None => {
            super::pid::kill(pid, received.signal);
        }
        Some(value) => {
            let value = libc::sigval { sival_ptr: ptr::without_provenance_mut(value) };
            // SAFETY: the value is passed on as it came, and touches no memory of this process.
            unsafe { libc::sigqueue(pid, received.signal, value) };
        }
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
