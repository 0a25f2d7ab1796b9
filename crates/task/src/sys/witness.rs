//! A process that shows which signals reach the whole process group.
//!
//! A signal for the monitor alone is meant for the task, and is forwarded. A signal for the group has
//! reached the task already. The kernel does not tell the two apart, but a second process of the same group
//! gets the second kind only. The witness blocks all signals, so they stay pending and can be read in
//! `/proc`. It has no descriptors of the monitor but the one by which it notices the monitor's end, and it
//! is not a child of the monitor, whose children are the task.

use std::ffi::c_int;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{read, write};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use super::pid::Pid;

/// Time after which a signal to the group has reached all its processes: the kernel sends it in one go.
const SPREAD: Duration = Duration::from_millis(1);

/// The longest wait for an answer or the exit of the witness. Either takes microseconds, unless a signal has
/// stopped the group.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Time between two looks at a witness that exits.
const EXIT_PAUSE: Duration = Duration::from_micros(50);

/// The least limit on descriptors with a witness: below it, all are for mechanisms and for files of `/proc`.
const LEAST_DESCRIPTORS: u64 = 32;

/// The first process of a system or of a container adopts all orphans, also the witness.
const INIT: u32 = 1;

pub(crate) struct Witness {
    pid: Pid,
    /// Its other end is held by the witness alone.
    alive: OwnedFd,
}

impl Witness {
    /// Starts a witness in the group of this process.
    ///
    /// # Errors
    /// A limit on processes or descriptors is reached or near, or this process adopts all orphans.
    pub(crate) fn start() -> io::Result<Self> {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if std::process::id() == INIT || descriptors.is_some_and(|most| most < LEAST_DESCRIPTORS) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
        let (alive, of_witness) = socketpair(kind.0, kind.1, kind.2, None)?;
        let pid = fork_orphan(of_witness.as_raw_fd())?;
        drop(of_witness);
        Ok(Self { pid, alive })
    }

    /// True if one of these signals has reached the witness. Waits a moment if none has.
    pub(crate) fn has_any(&self, signals: u64) -> bool {
        if self.pending() & signals == 0 {
            std::thread::sleep(SPREAD);
        }
        self.pending() & signals != 0
    }

    /// The signals that have reached the witness, a bit each: bit 0 is signal 1.
    pub(crate) fn pending(&self) -> u64 {
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", self.pid)) else { return 0 };
        let mask = |line: &str| {
            let bits = line.strip_prefix("ShdPnd:").or_else(|| line.strip_prefix("SigPnd:"))?;
            u64::from_str_radix(bits.trim(), 16).ok()
        };
        status.lines().filter_map(mask).fold(0, |all, bits| all | bits)
    }
}

impl Witness {
    /// Makes the witness take all signals that have reached it. False if it does not answer.
    pub(crate) fn clear(&self) -> bool {
        write(&self.alive, &[0]).is_ok()
            && self.is_readable()
            && read(&self.alive, &mut [0]).is_ok()
    }

    /// True until it is a zombie or gone.
    fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
        state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// Waits until the witness has answered or exited.
    fn is_readable(&self) -> bool {
        let Ok(timeout) = Timespec::try_from(TIMEOUT) else { return false };
        let mut fds = [PollFd::new(&self.alive, PollFlags::IN)];
        loop {
            match poll(&mut fds, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => {}
                answered => return answered.is_ok_and(|n| n > 0),
            }
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = shutdown(&self.alive, Shutdown::Write);
        // Its end of the pair closes when it exits. It leaves its control group a moment later, which the monitor may
        // be about to remove.
        let begun = Instant::now();
        if self.is_readable() {
            while self.is_running() && begun.elapsed() < TIMEOUT {
                std::thread::sleep(EXIT_PAUSE);
            }
        }
    }
}

/// Forks the witness with a process between, so that it is an orphan.
fn fork_orphan(alive: RawFd) -> io::Result<Pid> {
    // SAFETY: the children make only calls that are allowed after a fork, and do not return; the mask and the
    // flag that are changed belong to this process and are restored. `pipe` is as the call expects.
    unsafe {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        libc::sigfillset(all.as_mut_ptr());
        let mut pipe: [c_int; 2] = [-1; 2];
        if libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut adopts: c_int = 0;
        libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut adopts);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let between = libc::fork();
        if between == 0 {
            match libc::fork() {
                0 => watch(alive),
                witness => {
                    libc::write(pipe[1], (&raw const witness).cast(), size_of::<Pid>());
                    libc::_exit(0);
                }
            }
        }
        let failed = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        libc::close(pipe[1]);
        let mut witness: Pid = -1;
        if between > 0 {
            libc::read(pipe[0], (&raw mut witness).cast(), size_of::<Pid>());
            libc::waitpid(between, ptr::null_mut(), 0);
        }
        libc::close(pipe[0]);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, adopts, 0, 0, 0);
        if witness > 0 { Ok(witness) } else { Err(failed) }
    }
}

/// Takes the pending signals whenever the monitor asks for it, until the monitor is gone. All signals are
/// blocked.
fn watch(alive: RawFd) -> ! {
    let only = alive as u32;
    // SAFETY: raw system calls of a process that has only this thread; nothing is allocated, and each buffer
    // is as large as its call is told.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"skopos-witness".as_ptr());
        libc::chdir(c"/".as_ptr());
        if only > 0 {
            libc::syscall(libc::SYS_close_range, 0, only - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, only + 1, u32::MAX, 0);
        let mut all = MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut word = 0u8;
        while libc::read(alive, (&raw mut word).cast(), 1) == 1 {
            while libc::sigtimedwait(all.as_ptr(), ptr::null_mut(), &raw const no_time) > 0 {}
            libc::write(alive, (&raw const word).cast(), 1);
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_shows_signals_until_it_is_cleared_and_ends_with_its_monitor() {
        let witness = Witness::start().expect("a process more");
        assert!(!witness.has_any(u64::MAX));
        super::super::pid::kill(witness.pid, libc::SIGUSR1);
        assert!(witness.has_any(1 << (libc::SIGUSR1 - 1)));
        assert!(witness.clear() && witness.pending() == 0);
        let place = format!("/proc/{}/status", witness.pid);
        drop(witness);
        let status = fs::read_to_string(place).unwrap_or_default();
        assert!(!status.contains("skopos-witness") || status.contains("State:\tZ"), "{status}");
    }
}
