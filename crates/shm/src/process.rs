//! Processes: the one that made a segment, as it knows itself, and as its readers know it.
//!
//! A child after `fork` has all that its parent has: handles, the mapping, and the open file with the lock that marks a
//! publisher as alive. So the parent's segment must know the parent: the child must not write it, and must not keep it
//! alive.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Mutex;

use skopos_model::unpoisoned;

use crate::error::Error;
use crate::sync::{AtomicU64, Ordering};
use crate::sys;

/// The process that made a segment. Its children are others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maker {
    page: &'static AtomicU64,
    number: u64,
}

/// The number of this process, in a page that the kernel empties in a child; `None` before it is first asked for.
static PAGE: Mutex<Option<&'static AtomicU64>> = Mutex::new(None);

impl Maker {
    /// Returns this process.
    pub(crate) fn this() -> io::Result<Self> {
        let mut known = unpoisoned(PAGE.lock());
        let page = match *known {
            Some(page) => page,
            None => *known.insert(page_wiped_on_fork()?),
        };
        // A child is younger than its parent, so the time distinguishes them.
        let _ = page.compare_exchange(0, sys::boottime(), Ordering::Relaxed, Ordering::Relaxed);
        Ok(Self { page, number: page.load(Ordering::Relaxed) })
    }

    /// Returns true in the process that made the segment. One load: this is on the path of each publish.
    #[inline]
    pub(crate) fn is_this(&self) -> bool {
        self.page.load(Ordering::Relaxed) == self.number
    }
}

/// Returns a word of zero in a page of its own, which is zero again in each child (Linux 4.14).
fn page_wiped_on_fork() -> io::Result<&'static AtomicU64> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let len = size_of::<AtomicU64>();
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps no other memory.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call concerns the page that was mapped above, which nothing refers to yet.
    if unsafe { libc::madvise(base, len, libc::MADV_WIPEONFORK) } == -1 {
        return Err(io::Error::last_os_error());
    }
    let word: NonNull<AtomicU64> =
        NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
    // SAFETY: the page is never unmapped, is aligned, holds zeros, and is only used through this word.
    Ok(unsafe { word.as_ref() })
}

/// The identity of a process on its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `/proc/sys/kernel/random/boot_id` as bytes.
    pub(crate) boot_id: [u8; 16],
    /// Process id in its own namespace.
    pub(crate) pid: u32,
    /// Inode of that namespace; 0 if it is not known.
    pub(crate) pid_namespace: u64,
    /// Field 22 of its `/proc/PID/stat`.
    pub(crate) start_ticks: u64,
}

impl Identity {
    /// Returns the identity of this process.
    pub(crate) fn this() -> Result<Self, Error> {
        let boot_path = Path::new("/proc/sys/kernel/random/boot_id");
        let text = fs::read_to_string(boot_path).map_err(Error::io(boot_path, "cannot read"))?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let boot_id = u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes();
        let stat_path = Path::new("/proc/self/stat");
        let stat = fs::read_to_string(stat_path).map_err(Error::io(stat_path, "cannot read"))?;
        let pid = std::process::id();
        let start_ticks = start_ticks(&stat).unwrap_or(0);
        Ok(Self { boot_id, pid, pid_namespace: pid_namespace(), start_ticks })
    }
}

/// Returns field 22 of the text of a `/proc/PID/stat`.
fn start_ticks(stat: &str) -> Option<u64> {
    // The command, field 2, is in parentheses and may contain spaces: count after the last parenthesis.
    let (_, after_command) = stat.rsplit_once(')')?;
    after_command.split_whitespace().nth(19)?.parse().ok()
}

/// Returns true if the text of a `/proc/PID/stat` is that of a process that has ended and that its parent did not ask
/// for yet.
fn is_dead(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("Z" | "X"))
}

/// Returns the inode of this process's namespace of process ids; 0 if `/proc` does not tell.
fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// A process that may end.
#[derive(Debug)]
pub(crate) enum Watched {
    /// Ended before it was looked for, or its process id is another's.
    Ended,
    /// A descriptor that becomes readable when the process ends.
    Followed(OwnedFd),
    /// The system has no descriptors of processes (before Linux 5.3), or a filter of system calls refuses them.
    Looked {
        /// Process id.
        pid: u32,
        /// Field 22 of its `/proc/PID/stat`.
        start_ticks: u64,
    },
    /// In another namespace of process ids.
    Unknown,
}

impl Watched {
    /// Looks for the process of `identity`.
    pub(crate) fn find(identity: &Identity) -> Self {
        if identity.pid_namespace == 0 || identity.pid_namespace != pid_namespace() {
            return Self::Unknown;
        }
        // SAFETY: takes numbers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, identity.pid, 0) };
        if fd == -1 {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::ESRCH) => Self::Ended,
                _ => Self::Looked { pid: identity.pid, start_ticks: identity.start_ticks },
            };
        }
        // SAFETY: the call made this descriptor, which fits an int, and nothing else owns it.
        let followed = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
        // The descriptor comes first: while it is open, another process cannot get the id without its end being seen.
        let stat = fs::read_to_string(format!("/proc/{}/stat", identity.pid));
        match stat.ok().as_deref().and_then(start_ticks) {
            Some(found) if found != identity.start_ticks => Self::Ended,
            // If `/proc` hides the processes of others, the id alone decides.
            _ => Self::Followed(followed),
        }
    }

    /// Returns true if the process has ended. One system call, or a few without descriptors of processes.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Ended => true,
            Self::Unknown => false,
            Self::Looked { pid, start_ticks: started } => {
                // SAFETY: the signal 0 only asks whether the process is there.
                let is_gone = unsafe { libc::kill(*pid as libc::pid_t, 0) } == -1
                    && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                let is_another = start_ticks(&stat).is_some_and(|found| found != *started);
                is_gone || is_another || is_dead(&stat)
            }
            Self::Followed(fd) => {
                let mut poll =
                    libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: `poll` outlives the call, which waits for nothing.
                unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
            }
        }
    }
}
