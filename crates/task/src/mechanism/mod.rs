//! The mechanisms that measure a task, a file each.
//!
//! | mechanism | kind | needs | measures |
//! |---|---|---|---|
//! | [`wait4`] | notification | nothing | processor time, faults, switches and bytes of all reaped processes |
//! | [`procfs`] | query | nothing | the state of processes at each sample |
//! | [`tree`] | query | nothing | files and space in folders at each sample |
//! | [`statfs`] | query | nothing | growth of the file system at each sample |
//! | [`ptrace`] | notification | permission to trace | every process at its start and exit |
//! | [`bpf`] | notification | root, or two capabilities; Linux 6.16 with BTF | every process at its start and exit, bytes of all |
//! | [`cgroup`] | query | a group of its own | processor time, the group's memory, pressure; enforces limits |
//! | [`perf`] | query | `perf_event_paranoid` below 3 | instructions and cycles, if the hardware counts them |
//! | [`preload`] | interposition | dynamic programs | opens, operations and bytes by file, bytes by peer |
//! | [`seccomp`] | notification | permission to trace | bytes of each file, from the positions of descriptors |
//! | [`energy`] | query | readable RAPL counters | the machine's energy while the task runs |
//! | [`nested`] | notification | `skopos run` in the task | lower bounds, from monitors inside the task |
//! | [`nvml`] | query | the driver's library | GPUs and their memory at each sample |
//! | [`connector`] | notification | Linux 6.6 or root, outside of containers | every process at its start and exit |
//! | [`taskstats`] | notification | root, outside of containers | the delays of every thread |
//! | [`fanotify`] | notification | root, watched folders | files that the task opens and writes there |
//! | [`inotify`] | notification | watched folders | files that any process opens there |
//!
//! Each mechanism adds [`Offer`](crate::ledger::Offer)s to the [`Ledger`], with their completeness
//! and error bound; the report takes the best one. Mechanisms know nothing of each other.

pub(crate) mod choose;
pub(crate) mod bpf;
mod certain;
pub(crate) mod cgroup;
pub(crate) mod connector;
pub(crate) mod energy;
pub(crate) mod fanotify;
pub(crate) mod files;
pub(crate) mod inotify;
pub(crate) mod nested;
pub(crate) mod nvml;
mod pages;
pub(crate) mod perf;
pub(crate) mod preload;
pub(crate) mod procfs;
pub(crate) mod ptrace;
mod reasons;
pub(crate) mod reconcile;
pub(crate) mod seccomp;
mod since_attach;
pub(crate) mod statfs;
pub(crate) mod taskstats;
mod tmpfs;
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

/// The settings of the child that mechanisms need before its exec.
#[derive(Debug, Default)]
pub(crate) struct Launch {
    /// Processor time after which the kernel ends a process.
    pub(crate) cpu_seconds: Option<u64>,
    /// Variables to add to the environment or to replace in it.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The seccomp filter of the child.
    pub(crate) filter: Option<Filter>,
    /// The control group of version 2 into which the child is forked.
    pub(crate) group: Option<OwnedFd>,
    /// The files with which the child enters control groups of version 1.
    pub(crate) groups: Vec<CString>,
}

/// A way to measure.
pub(crate) trait Mechanism {
    /// The name in reports.
    fn name(&self) -> &'static str;

    /// Checks whether it can measure a task that is already running; if not, returns the reason.
    fn can_attach(&self) -> Result<(), &'static str> {
        Err("it has to be present when the task starts")
    }

    /// Prepares the start of the task.
    ///
    /// # Errors
    /// The reason why it cannot be used here.
    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        Ok(())
    }

    /// Attaches to the child, which waits for its exec, or to a running task.
    ///
    /// # Errors
    /// The reason why it cannot be used here.
    fn attach(&mut self, _root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        Ok(())
    }

    /// Handles a process event. An exited process is not reaped yet and can still be read; a
    /// stopped thread waits to be continued.
    fn event(&mut self, _event: &Event, _ledger: &mut Ledger) {}

    /// The descriptor that becomes readable when the mechanism has events to read.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Reads the events of its descriptor. Called often, and before each exit is handled.
    fn readable(&mut self, _ledger: &mut Ledger) {}

    /// Samples the present state.
    fn sample(&mut self, _now: &mut Sample, _ledger: &mut Ledger) {}

    /// Returns the limits that the kernel enforced for it and that the task reached.
    fn crossings(&mut self, _ledger: &Ledger) -> Vec<Crossing> {
        Vec::new()
    }

    /// Describes what it provides here, if that depends on the machine.
    fn provides(&self) -> Option<String> {
        None
    }

    /// True if the kernel enforces the limit on this resource.
    fn enforces(&self, _resource: &str) -> bool {
        false
    }

    /// Kills all processes of the task at once, if it can. Returns true if it did.
    fn kill_all(&mut self) -> bool {
        false
    }

    /// Offers its values after the end of the task, and removes what it created.
    fn finish(&mut self, _ledger: &mut Ledger) {}
}

/// Returns a report on no files.
#[cfg(test)]
pub(crate) fn files_of(method: &str) -> skopos_model::task::Files {
    files::listed(method, Vec::new(), Vec::new(), files::Processes::default())
}

/// The usage of the task at one time, as far as it is known; a row of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) resident_bytes: Option<u64>,
    /// Resident bytes with shared pages counted once, if a limit needs them.
    pub(crate) unshared_bytes: Option<u64>,
    /// Bytes in files of tmpfs that the task made and that no resident size contains.
    pub(crate) tmpfs_bytes: Option<u64>,
    pub(crate) pss_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) swap_bytes: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) threads: Option<u64>,
    pub(crate) read_bytes: Option<u64>,
    pub(crate) written_bytes: Option<u64>,
    pub(crate) files: Option<u64>,
    pub(crate) footprint_bytes: Option<u64>,
    /// Duration of the expensive parts of a sample, which have a pace of their own. The other parts
    /// do not wait for them.
    pub(crate) paced: Duration,
}

impl Sample {
    /// Returns the present value of a resource that can be limited.
    pub(crate) fn of(&self, resource: &str) -> Option<f64> {
        let count = |value: Option<u64>| value.map(|v| v as f64);
        match resource {
            "cpu_seconds" => self.cpu_seconds,
            "resident_bytes_max" => {
                let resident = self.unshared_bytes.or(self.resident_bytes)?;
                count(Some(resident + self.tmpfs_bytes.unwrap_or(0)))
            }
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
