//! Attaches to a task that was running before the monitor: finds its process, and records the usage
//! of all its processes until then.
//!
//! Parents are read before their children. A child that exits and is waited for between two readings
//! is then in neither of them, which shows, and never in both. If a process vanishes, all are read
//! again.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::{PidfdFlags, pidfd_open};
use skopos_model::task::Attached;

use crate::baseline::Baseline;
use crate::error::AttachError;
use crate::family;
use crate::ledger::Ledger;
use crate::proc;
use crate::sys::Pid;

/// The most attempts to read all baselines because a process vanished before its turn. On a machine
/// where processes never stop coming and going, more attempts gain nothing.
const MAX_READINGS: usize = 16;

/// The running process that the monitor attaches to.
pub(crate) struct AttachTarget {
    pub(crate) pid: Pid,
    /// Becomes readable when the process exits.
    pub(crate) handle: OwnedFd,
    pub(crate) command: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) attached: Attached,
}

impl AttachTarget {
    /// Finds a process and checks that it can be attached to.
    pub(crate) fn new(pid: Pid) -> Result<Self, AttachError> {
        if pid == std::process::id() as Pid {
            return Err(AttachError::Own(pid));
        }
        if pid == 1 {
            return Err(AttachError::Init);
        }
        let missing = AttachError::Missing(pid);
        let handle_of = rustix::process::Pid::from_raw(pid).ok_or(missing.clone())?;
        let (process, stat) = (proc::process_of(pid), proc::stat(pid).ok_or(missing)?);
        if let Some(process) = process.filter(|process| *process != pid) {
            return Err(AttachError::Thread { thread: pid, process });
        }
        if stat.is_zombie {
            return Err(AttachError::Ended(pid));
        }
        if stat.is_kernel_thread {
            return Err(AttachError::Kernel { pid, name: proc::name(pid).unwrap_or_default() });
        }
        let handle = pidfd_open(handle_of, PidfdFlags::empty())
            .map_err(|e| AttachError::NoHandle { pid, why: e.to_string() })?;
        let up = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let up = up.split_whitespace().next().and_then(|s| s.parse::<f64>().ok());
        let started = stat.started_ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Ok(Self {
            pid,
            handle,
            command: proc::words(pid),
            folder: fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default(),
            attached: Attached { pid, after_seconds: up.map(|up| (up - started).max(0.0)) },
        })
    }
}

/// Enters all processes of the task into the ledger, with their baselines. Called once mechanisms
/// report process starts.
pub(crate) fn record_baselines(ledger: &mut Ledger) {
    let mut is_whole = false;
    for _ in 0..MAX_READINGS {
        let mut all = family::unended(ledger);
        // A parent is older than its child.
        all.sort_by_key(|member| (member.started, member.pid));
        let mut sum = Baseline::default();
        is_whole = true;
        for pid in all.iter().map(|member| member.pid) {
            let Some(stat) = proc::stat(pid) else {
                is_whole = false;
                continue;
            };
            ledger.process_started(pid, stat.parent);
            let baseline = Baseline::of(pid, &stat);
            sum += baseline;
            ledger.set_baseline(pid, baseline);
        }
        ledger.baseline = sum;
        if is_whole {
            break;
        }
    }
    ledger.baseline_is_torn = !is_whole;
}
