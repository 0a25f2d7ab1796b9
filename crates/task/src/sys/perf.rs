//! Counters of the kernel for one process and all that it starts.

use std::fs::File;
use std::io::{self, Read as _};

use skopos_bpf::{EventAttributes, EventsOf, open_event};

use super::pid::Pid;

/// The counted event: `type` and `config` of `perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) u32, pub(crate) u64);

/// Bits of `flags`.
const DISABLED: u64 = 1 << 0;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const ENABLE_ON_EXEC: u64 = 1 << 12;
/// Bits of `read_format`: the times for which the counter was enabled and running.
const TOTAL_TIMES: u64 = 0b11;

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
        let attributes = EventAttributes {
            kind: kind.0,
            config: kind.1,
            read_format: TOTAL_TIMES,
            flags: DISABLED | INHERIT | ENABLE_ON_EXEC | kernel,
            ..EventAttributes::default()
        };
        Ok(Self(open_event(attributes, EventsOf::Process(pid))?.into()))
    }

    /// Reads the count so far, including that of exited threads.
    pub(crate) fn read(&mut self) -> io::Result<Count> {
        let mut bytes = [[0; 8]; 3];
        self.0.read_exact(bytes.as_flattened_mut())?;
        let [value, enabled_nanos, running_nanos] = bytes.map(u64::from_ne_bytes);
        Ok(Count { value, enabled_nanos, running_nanos })
    }
}
