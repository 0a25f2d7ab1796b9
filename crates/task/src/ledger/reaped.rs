//! Sums over processes that were reaped.

use crate::proc::Io;
use crate::sys::Usage;

/// Sums over the processes that were reaped here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reaped {
    pub(crate) usage: Usage,
    pub(crate) io: Io,
    /// Number of processes whose byte counts at the end could not be read: their last known ones are in
    /// the sum.
    pub(crate) without_io: u64,
}

impl Reaped {
    /// Adds the sums of children that their parent turned out not to wait for.
    pub(super) fn merge(&mut self, others: &Self) {
        let without_io = self.without_io + others.without_io;
        self.add(others.usage, Some(others.io), None);
        self.without_io = without_io;
    }

    /// Adds one more process, with its bytes at the end; `seen` has those of an earlier moment.
    pub(crate) fn add(&mut self, usage: Usage, io: Option<Io>, seen: Option<Io>) {
        let sum = &mut self.usage;
        sum.user += usage.user;
        sum.system += usage.system;
        sum.minor_faults += usage.minor_faults;
        sum.major_faults += usage.major_faults;
        sum.voluntary_switches += usage.voluntary_switches;
        sum.involuntary_switches += usage.involuntary_switches;
        match io {
            Some(io) => self.io += io,
            None => {
                self.io += seen.unwrap_or_default();
                self.without_io += 1;
            }
        }
    }
}
