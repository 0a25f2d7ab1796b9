//! System calls without a safe wrapper: cachestat(2).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// The number of cachestat(2), the same on every architecture that Rust supports; Linux 6.5.
const CACHESTAT: libc::c_long = 451;

/// A part of a file in bytes. The length 0 means up to its end.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// The pages of a file, as the kernel counts them (`linux/mman.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CachedPages {
    /// Pages in the page cache.
    pub(crate) resident: u64,
    /// Resident pages that were changed and are not being written.
    pub(crate) dirty: u64,
    /// Resident pages that are being written.
    pub(crate) writeback: u64,
    /// Pages that were in the cache and were evicted.
    pub(crate) evicted: u64,
    /// Evicted pages that were in use not long ago: their absence shows a lack of memory.
    pub(crate) recently_evicted: u64,
}

/// Returns the pages of a whole file.
///
/// # Errors
/// `ENOSYS` before Linux 6.5, `EPERM` for a file of another user, `EOPNOTSUPP` for a file without pages.
pub(crate) fn cached_pages(file: &File) -> io::Result<CachedPages> {
    let range = Range { offset: 0, length: 0 };
    let mut pages = CachedPages::default();
    // SAFETY: the descriptor is open for as long as `file` is borrowed. The kernel reads a structure of two words and
    // writes one of five, both of which outlive the call and have its layout.
    let result = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0_u32)
    };
    if result == 0 { Ok(pages) } else { Err(io::Error::last_os_error()) }
}
