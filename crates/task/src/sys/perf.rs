//! `perf_event_open`, which the C library does not wrap.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{FromRawFd as _, RawFd};

use super::pid::Pid;

/// The counted event: `type` and `config` of `perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) u32, pub(crate) u64);

/// `struct perf_event_attr` in its first published size, which every kernel accepts.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// Bits of `flags`.
const DISABLED: u64 = 1 << 0;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const ENABLE_ON_EXEC: u64 = 1 << 12;
/// Bits of `read_format`: the times for which the counter was enabled and running.
const TOTAL_TIMES: u64 = 0b11;
/// A flag of the call.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// A counter of a thread and of all threads that it starts.
pub(crate) struct Counter(File);

/// The value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) value: u64,
    pub(crate) enabled_nanos: u64,
    /// Less than `enabled_nanos` if the hardware was shared with other counters.
    pub(crate) running_nanos: u64,
}

impl Counter {
    /// Opens a counter that starts at the next exec of `pid`, for that process and all that it
    /// starts.
    pub(crate) fn open(kind: Kind, pid: Pid, with_kernel: bool) -> io::Result<Self> {
        let kernel = if with_kernel { 0 } else { EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR };
        let attributes = Attributes {
            kind: kind.0,
            size: size_of::<Attributes>() as u32,
            config: kind.1,
            read_format: TOTAL_TIMES,
            flags: DISABLED | INHERIT | ENABLE_ON_EXEC | kernel,
            ..Attributes::default()
        };
        // SAFETY: `attributes` has the size that it states and outlives the call, which makes a new
        // descriptor that has no other owner.
        unsafe {
            let descriptor = libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                pid,
                -1,
                -1,
                CLOSE_ON_EXEC,
            );
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self(File::from_raw_fd(descriptor as RawFd)))
        }
    }

    /// Reads the count so far, including that of exited threads.
    pub(crate) fn read(&mut self) -> io::Result<Count> {
        let mut bytes = [[0; 8]; 3];
        self.0.read_exact(bytes.as_flattened_mut())?;
        let [value, enabled_nanos, running_nanos] = bytes.map(u64::from_ne_bytes);
        Ok(Count { value, enabled_nanos, running_nanos })
    }
}
