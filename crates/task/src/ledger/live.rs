//! The account of one living process.

use skopos_model::task::Process;

use super::reaped::Reaped;
use crate::baseline::Baseline;
use crate::proc::{Io, Memory};

/// The account of one living process.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) process: Process,
    /// The program's name, in brackets; empty until it is read.
    pub(super) name: String,
    pub(super) threads: u64,
    pub(super) memory: Option<Memory>,
    pub(super) io: Option<Io>,
    /// `io` was read when the process was about to exit.
    pub(super) io_is_final: bool,
    /// The greatest resident size that the kernel told of its exited children.
    pub(super) children_resident_max: u64,
    /// Usage of its children that have exited and that it has to wait for.
    pub(super) children: Reaped,
    /// The last known bytes of those children. Once the process has waited for them, its own counts
    /// include these bytes.
    pub(super) children_io: Io,
    pub(super) has_children: bool,
    /// Page faults of the children that it had waited for when it was about to exit.
    pub(super) waited_for_faults: Option<u64>,
    /// It runs in its parent's memory, as a child of `vfork` does until its exec.
    pub(super) borrows_memory: bool,
    /// It has called exec since its start.
    pub(super) has_executed: bool,
    /// Its start time, in clock ticks since boot, if processes other than the monitor may reap it.
    pub(super) started: Option<u64>,
    /// Its usage before the monitor attached.
    pub(super) baseline: Baseline,
}

impl Live {
    /// Records an exec: from now on the process has memory of its own.
    pub(super) fn leave_borrowed_memory(&mut self) {
        if self.borrows_memory {
            self.memory = None;
        }
        (self.borrows_memory, self.has_executed) = (false, true);
    }

    /// The bytes that it moved itself, without its exited children. If it ignores SIGCHLD, the
    /// kernel adds nothing of its children.
    pub(super) fn own_io(&self) -> Io {
        let io = self.io.unwrap_or_default().since(self.baseline.io);
        match self.memory.is_some_and(|memory| memory.ignores_children) {
            true => io,
            false => io.since(self.children_io),
        }
    }
}

/// Names a process as reports do.
pub(super) fn label(process: &Process) -> String {
    format!("{} (pid {})", process.command, process.pid)
}
