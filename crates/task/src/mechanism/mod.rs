//! The ways to measure a task, a file each.
//!
//! | mechanism | kind | needs | what it gives exactly |
//! |---|---|---|---|
//! | [`wait4`] | notification | nothing | processor time, faults, switches and bytes of all that was waited for |
//! | [`procfs`] | query | nothing | what is there when it looks |
//! | [`tree`] | query | nothing | files and space in folders when it looks |
//! | [`ptrace`] | notification | to be allowed to trace | every process at its birth and at its end |
//! | [`bpf`] | notification | root, or two capabilities; Linux 6.16 with BTF | every process at its birth and at its end, bytes of all |
//! | [`cgroup`] | query | a group of its own | processor time, the group's memory, pressure; enforces |
//! | [`perf`] | query | `perf_event_paranoid` below 3 | instructions and cycles, where the hardware counts them |
//! | [`preload`] | interposition | dynamic programs | opens, operations and bytes by file, bytes by peer |
//! | [`seccomp`] | notification | to be allowed to trace | bytes of each file by the positions of descriptors |
//! | [`energy`] | query | readable RAPL counters | the machine's energy while the task ran |
//! | [`nested`] | notification | `skopos run` in the task | nothing; what monitors inside saw is a lower bound |
//! | [`nvml`] | query | the driver's library | nothing; GPUs and their memory when it looks |
//! | [`connector`] | notification | Linux 6.6 or root, outside of containers | every process at its birth and at its end |
//! | [`taskstats`] | notification | root, outside of containers | what every thread was delayed by |
//! | [`fanotify`] | notification | root, watched folders | files that the task opens and writes there |
//! | [`inotify`] | notification | watched folders | nothing; files that are opened there |
//!
//! Each offers values to [`Seen`] with what they cover and how far off they may
//! be; the report takes the best. None of them knows of another.

pub(crate) mod choose;
pub(crate) mod bpf;
pub(crate) mod cgroup;
pub(crate) mod connector;
pub(crate) mod energy;
pub(crate) mod fanotify;
mod files;
pub(crate) mod inotify;
pub(crate) mod nested;
pub(crate) mod nvml;
mod pages;
pub(crate) mod perf;
pub(crate) mod preload;
pub(crate) mod procfs;
pub(crate) mod ptrace;
pub(crate) mod reconcile;
pub(crate) mod seccomp;
mod since_attach;
pub(crate) mod taskstats;
pub(crate) mod tree;
pub(crate) mod wait4;

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use skopos_model::task::Crossing;

use crate::ledger::Ledger;
use crate::sys::seccomp::Filter;
use crate::sys::{Event, Pid};

/// What the kernel's sums of bytes leave out.
pub(crate) const NOT_IN_BYTES: &str = "what splice, tee, vmsplice, recv and send moved is not in it \
     (received_bytes and sent_bytes have that of sockets, at level 3); input and output by mmap and io_uring \
     is in device_read_bytes and device_written_bytes only";

/// What mechanisms want of the child before it becomes the program.
#[derive(Debug, Default)]
pub(crate) struct Launch {
    /// The processor time after which the kernel ends a process.
    pub(crate) cpu_seconds: Option<u64>,
    /// Variables that are added, or take the place of those of their name.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Which of its system calls are asked about.
    pub(crate) filter: Option<Filter>,
    /// The control group of version 2 in which it is made.
    pub(crate) group: Option<OwnedFd>,
    /// The files by which a thread puts itself into control groups of version 1.
    pub(crate) groups: Vec<CString>,
}

/// One way to measure.
pub(crate) trait Mechanism {
    /// As in reports.
    fn name(&self) -> &'static str;

    /// Whether it can measure a task that was running before, and why it cannot.
    fn can_attach(&self) -> Result<(), &'static str> {
        Err("it has to be there when the task starts")
    }

    /// Before there is a child.
    ///
    /// # Errors
    /// It cannot be used here, and why.
    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        Ok(())
    }

    /// The child is there and waits to become the program, or a task was found that runs.
    ///
    /// # Errors
    /// It cannot be used here, and why.
    fn attach(&mut self, _root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        Ok(())
    }

    /// Something happened to a process: a dead one can still be asked, a stopped one waits to go on.
    fn event(&mut self, _event: &Event, _ledger: &mut Ledger) {}

    /// What becomes readable when it has something to be told of.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes what came on its descriptor: often, and before anybody hears of an end.
    fn readable(&mut self, _ledger: &mut Ledger) {}

    /// Looks at what is there now.
    fn sample(&mut self, _now: &mut Sample, _ledger: &mut Ledger) {}

    /// Limits that the kernel kept for it and that were reached.
    fn crossings(&mut self, _ledger: &Ledger) -> Vec<Crossing> {
        Vec::new()
    }

    /// What it gives here, if that depends on the machine.
    fn provides(&self) -> Option<String> {
        None
    }

    /// True if the kernel keeps the limit on this resource.
    fn enforces(&self, _resource: &str) -> bool {
        false
    }

    /// Ends all processes of the task at once, if it can. True if it did.
    fn kill_all(&mut self) -> bool {
        false
    }

    /// The task has ended: offers what it measured, and takes away what it made.
    fn finish(&mut self, _ledger: &mut Ledger) {}
}

/// What the task uses at one time, as far as anybody knows; a row of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) resident_bytes: Option<u64>,
    /// The same without what is counted in several processes, as far as a limit wants it known.
    pub(crate) unshared_bytes: Option<u64>,
    pub(crate) pss_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) swap_bytes: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) threads: Option<u64>,
    pub(crate) read_bytes: Option<u64>,
    pub(crate) written_bytes: Option<u64>,
    pub(crate) files: Option<u64>,
    pub(crate) footprint_bytes: Option<u64>,
    /// How long those parts of the look took that come as seldom as they are dear: looks that are
    /// cheap need not wait for them.
    pub(crate) paced: Duration,
}

impl Sample {
    /// What is known now of a resource that may be limited.
    pub(crate) fn of(&self, resource: &str) -> Option<f64> {
        let count = |value: Option<u64>| value.map(|v| v as f64);
        match resource {
            "cpu_seconds" => self.cpu_seconds,
            "resident_bytes_max" => count(self.unshared_bytes.or(self.resident_bytes)),
            "pss_bytes_max" => count(self.pss_bytes),
            "virtual_bytes_max" => count(self.virtual_bytes),
            "swap_bytes_max" => count(self.swap_bytes),
            "processes_max" => count(self.processes),
            "threads_max" => count(self.threads),
            "read_bytes" => count(self.read_bytes),
            "written_bytes" => count(self.written_bytes),
            "files" => count(self.files),
            "footprint_bytes" => count(self.footprint_bytes),
            _ => None,
        }
    }
}
