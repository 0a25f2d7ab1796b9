//! The usage of a process before the monitor attached to it, which is subtracted later.

use crate::proc::{self, Io};
use crate::sys::Pid;

/// Usage of one or more processes at the time of the attach, including the children that they had
/// already waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Baseline {
    /// Processor time without that of children.
    pub(crate) own_seconds: f64,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) io: Io,
    /// Number of processes whose byte counts this user may not read.
    pub(crate) without_io: u64,
    pub(crate) processes: u64,
}

impl Baseline {
    /// Returns the usage of one process now.
    pub(crate) fn of(pid: Pid, stat: &proc::Stat) -> Self {
        let io = proc::io(pid);
        Self {
            own_seconds: stat.user_seconds + stat.system_seconds,
            user_seconds: stat.total_user_seconds,
            system_seconds: stat.total_system_seconds,
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
            io: io.unwrap_or_default(),
            without_io: u64::from(io.is_none()),
            processes: 1,
        }
    }

    /// The error bound of the summed processor time. The kernel reports it in whole ticks, as four
    /// numbers for each process.
    pub(crate) fn tick_bound_seconds(&self) -> f64 {
        4.0 * self.processes as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

impl std::ops::AddAssign for Baseline {
    fn add_assign(&mut self, other: Self) {
        self.own_seconds += other.own_seconds;
        self.user_seconds += other.user_seconds;
        self.system_seconds += other.system_seconds;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.io += other.io;
        self.without_io += other.without_io;
        self.processes += other.processes;
    }
}
