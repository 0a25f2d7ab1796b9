//! System calls for shared memory, each behind a safe function.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::time::Duration;

use crate::sync::AtomicU32;
use crate::wait::Sleep;

/// Tries to take the exclusive lock that a publisher holds as long as it lives. `Ok(false)` if another
/// open file description holds it.
///
/// Open-file-description locks are better than process ids here: the kernel releases them at once when
/// the holder dies, a reused pid cannot fake them, and they mean the same in every container.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match ofd(file, libc::F_OFD_SETLK, libc::F_WRLCK) {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns true if a process holds the exclusive lock of `file`. The query is for a shared lock, so that
/// only an exclusive lock conflicts: any process that may read the file can hold a shared lock, and
/// would make a dead publisher look alive.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    Ok(ofd(file, libc::F_OFD_GETLK, libc::F_RDLCK)?.l_type != libc::F_UNLCK as libc::c_short)
}

/// Waits for the exclusive lock of `file`; used for the short lock of a directory.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    loop {
        match ofd(file, libc::F_OFD_SETLKW, libc::F_WRLCK) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}

fn ofd(file: &File, command: libc::c_int, kind: libc::c_int) -> io::Result<libc::flock> {
    // SAFETY: `flock` is a plain C structure for which all zeros is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and `lock` outlives the
    // call, which reads and writes nothing else.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(lock) }
}

/// Reserves memory for `len` bytes at `offset`, so that storing to them never raises SIGBUS.
pub(crate) fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (offset as libc::off_t, len as libc::off_t);
    loop {
        // SAFETY: the descriptor is open; the call touches no memory of ours.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset, len) } {
            0 => return Ok(()),
            // With a timer signal, memory file systems return this again and again.
            libc::EINTR => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// Releases the pages of the running program from memory: pages that only the start needed stay away, pages
/// that are still in use come back from the page cache, at a fault of a microsecond for sixteen pages.
/// For a daemon that has to be small; other programs gain nothing, so the documentation leaves it out.
#[doc(hidden)]
pub fn release_program_pages() {
    unsafe extern "C" {
        static __executable_start: u8;
        static etext: u8;
    }
    // Only the addresses are used: nothing is read through them.
    let (start, end) = (&raw const __executable_start as usize, &raw const etext as usize);
    // SAFETY: the call returns a number and touches no memory.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let Ok(page) = usize::try_from(page) else { return };
    // Whole pages of the program's headers, constants and code, which are mapped from its file and
    // never written: linkers place relocated and writable data behind `etext`.
    let (first, last) = (start.next_multiple_of(page), end / page * page);
    if first < last {
        // SAFETY: pages of a file that were never written are read from it again when touched, so
        // the program's memory stays as it was.
        unsafe { libc::madvise(first as *mut libc::c_void, last - first, libc::MADV_DONTNEED) };
    }
}

/// The command by which a waiter makes the publishers' processors pass a fence (Linux 4.16).
const BARRIER: libc::c_int = 1 << 1;
/// The command by which a publisher's process takes part in that.
const TAKE_PART: libc::c_int = 1 << 2;

/// Registers this process as one whose processors pass a fence when a waiter calls [`barrier`]. Returns false if the
/// kernel has no such call, or a filter of system calls refuses it.
pub(crate) fn take_part_in_barriers() -> bool {
    // Miri has no such call, and explores the protocol with a fence.
    !cfg!(miri) && membarrier(TAKE_PART) == 0
}

/// Makes each processor that runs a registered process pass a full fence. Returns false if it cannot.
pub(crate) fn barrier() -> bool {
    membarrier(BARRIER) == 0
}

/// Returns true if this process may call [`barrier`]. The answer is kept.
pub(crate) fn has_barriers() -> bool {
    use std::sync::OnceLock;
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(barrier)
}

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: takes numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0) }
}

/// Makes a descriptor of events, which does not block.
pub(crate) fn event() -> io::Result<File> {
    // SAFETY: takes numbers and touches no memory of ours.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call made this descriptor, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Returns the effective user id of this process.
#[inline]
pub fn effective_uid() -> u32 {
    // SAFETY: always succeeds and touches no memory.
    unsafe { libc::geteuid() }
}

/// Reads `CLOCK_BOOTTIME`: nanoseconds since the machine started, including sleep. It never steps.
#[inline]
pub fn boottime() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` outlives the call. The clock exists on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Reads `CLOCK_REALTIME`: UNIX time.
#[inline]
pub fn now() -> skopos_model::Timestamp {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    skopos_model::Timestamp::from_nanos(now.tv_sec * 1_000_000_000 + now.tv_nsec)
}

/// Sleep by the futex system call on a word that several processes map, for at most `timeout`.
#[derive(Clone, Copy)]
pub(crate) struct Futex {
    pub(crate) timeout: Duration,
}

impl Sleep for Futex {
    fn sleep(&self, word: &AtomicU32, seen: u32) {
        let timeout = libc::timespec {
            tv_sec: self.timeout.as_secs().min(i64::MAX as u64) as libc::time_t,
            tv_nsec: self.timeout.subsec_nanos().into(),
        };
        // SAFETY: `word` is a mapped, aligned u32 and `timeout` outlives the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                seen,
                &raw const timeout,
            )
        };
        if !has_slept(result) {
            std::thread::sleep(self.timeout.min(Naps::SHORTEST));
        }
    }

    fn wake(&self, word: &AtomicU32) {
        // SAFETY: `word` is a mapped, aligned u32; the call only looks up the threads that sleep on it.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

/// Returns true if a call slept, or had a reason not to: the word had changed, or a signal came. A filter of system
/// calls makes a call return another error at once, and a caller that tried again would never rest.
fn has_slept(result: libc::c_long) -> bool {
    let reason = || io::Error::last_os_error().raw_os_error();
    result != -1 || matches!(reason(), Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT))
}

/// The naps of a waiter that no publisher can wake. They grow while nothing comes, so that waiting for long costs little.
#[derive(Debug)]
pub(crate) struct Naps(Duration);

impl Naps {
    /// Length of the first nap: a thousandth of the usual interval.
    pub(crate) const SHORTEST: Duration = Duration::from_millis(1);
    /// Length of the longest nap: fifty naps a second take a thousandth of a core.
    const LONGEST: Duration = Duration::from_millis(20);

    pub(crate) fn new() -> Self {
        Self(Self::SHORTEST)
    }

    /// Sleeps, for at most `longest`.
    pub(crate) fn take(&mut self, longest: Duration) {
        std::thread::sleep(self.0.min(longest));
        self.0 = (self.0 * 2).min(Self::LONGEST);
    }
}

/// The greatest number of words that one call can sleep on: the kernel's `FUTEX_WAITV_MAX`.
pub(crate) const MAX_WORDS: usize = 128;

/// Sleeps until one of the `words` no longer holds the value beside it or is woken, for at most
/// `timeout`. Returns false without sleeping if the kernel (before 5.16) or a filter of system calls refuses.
pub(crate) fn sleep_on_any(words: &[(&AtomicU32, u32)], timeout: Duration) -> bool {
    /// `struct futex_waitv` of `linux/futex.h`.
    #[repr(C)]
    struct Waiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    /// A word of 32 bits that several processes map.
    const FUTEX2_SIZE_U32: u32 = 2;
    let waiters: Vec<Waiter> = words
        .iter()
        .take(MAX_WORDS)
        .map(|(word, seen)| Waiter {
            value: u64::from(*seen),
            address: word.as_ptr().expose_provenance() as u64,
            flags: FUTEX2_SIZE_U32,
            reserved: 0,
        })
        .collect();
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `until` outlives the call. The clock exists on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut until) };
    let nanos = until.tv_nsec as u64 + u64::from(timeout.subsec_nanos());
    until.tv_sec += timeout.as_secs() as libc::time_t + (nanos / 1_000_000_000) as libc::time_t;
    until.tv_nsec = (nanos % 1_000_000_000) as libc::c_long;
    // SAFETY: every address is of a mapped, aligned u32; waiters and time outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            waiters.len(),
            0,
            &raw const until,
            libc::CLOCK_MONOTONIC,
        )
    };
    has_slept(result)
}

/// Reads `CLOCK_MONOTONIC`, ns.
#[inline]
pub(crate) fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` outlives the call. The clock exists on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Reads the counter of the processor.
#[inline(always)]
pub(crate) fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction, which reads a counter and touches no memory.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets programs read this register; the instruction touches no memory.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack));
        }
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        monotonic()
    }
}

/// Waits until earlier loads have ended, so that the counter is read after them.
#[cfg(all(test, not(miri)))]
pub(crate) fn wait_for_loads() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, which touches no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction waits for those before it, and touches no memory.
    unsafe {
        core::arch::asm!("isb", options(nostack));
    }
}

/// Calls `work` when the process ends by `exit`.
pub(crate) fn at_exit(work: extern "C" fn()) {
    // SAFETY: takes a pointer to a function without arguments, which lives as long as this library.
    unsafe { libc::atexit(work) };
}

/// Returns the id of this thread in the kernel.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes no arguments and touches no memory of ours.
    u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(0)
}
