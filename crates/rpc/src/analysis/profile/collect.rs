//! Sums and histograms of each callpath, collected in one pass.

use crate::analysis::blocks::Blocks;
use crate::analysis::histogram::Histogram;
use crate::analysis::names::PathId;
use crate::analysis::stream::{INTERVALS, Reader, Side, Visit};
use crate::interval::Interval;
use crate::record::{Kind, Status};

/// The sums of one process on one side of a callpath.
#[derive(Clone, Debug, Default)]
pub struct ProcessSums {
    /// Number of the process.
    pub process: u32,
    /// Number of calls.
    pub calls: u64,
    /// Calls that did not end well.
    pub errors: u64,
    /// Sum of their durations in ns.
    pub total_ns: u64,
    /// Sums of the intervals in ns, by their tags.
    pub interval_ns: [u64; INTERVALS],
}

/// One side of a callpath.
#[derive(Clone, Debug, Default)]
pub struct SideSums {
    /// Durations in ns.
    pub durations: Histogram,
    /// Calls that did not end well.
    pub errors: u64,
    /// By process, in the order in which they appeared.
    pub processes: Vec<ProcessSums>,
    /// Durations (part) and calls (whole) by time.
    pub blocks: Blocks,
}

/// The sums of a callpath.
#[derive(Clone, Debug, Default)]
pub struct PathSums {
    /// The callers' side.
    pub origin: SideSums,
    /// The callees' side.
    pub target: SideSums,
    /// Local steps.
    pub local: SideSums,
    /// Histograms of the intervals in ns, by their tags.
    pub intervals: [Option<Box<Histogram>>; INTERVALS],
    /// Time that targets account for: in the queue, in the handler, in its calls.
    pub stay_ns: u64,
}

/// Collects all callpaths.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    /// By the number of the callpath.
    pub paths: Vec<PathSums>,
}

impl PathSums {
    /// The sum of an interval in ns beside the durations of the callers, if it was reported. If one side lost records, the mean
    /// of its records stands for those that it lost; without callers it is the plain sum.
    pub fn interval_ns(&self, interval: Interval) -> Option<f64> {
        let durations = self.intervals[usize::from(interval.tag())].as_ref()?;
        let factor = if interval.is_of_origin() { 1.0 } else { self.calls_of_target() };
        Some(factor * durations.sum() as f64)
    }

    /// The number of calls for which a record of a target stands.
    pub(crate) fn calls_of_target(&self) -> f64 {
        let (origins, targets) = (self.origin.durations.count(), self.target.durations.count());
        if origins == 0 || targets == 0 { 1.0 } else { origins as f64 / targets as f64 }
    }
}

impl Collector {
    /// The sums of a callpath, if it has records.
    pub fn path(&self, path: PathId) -> Option<&PathSums> {
        self.paths.get(path as usize)
    }
}

impl SideSums {
    fn add(&mut self, side: &Side) -> &mut ProcessSums {
        let failed = u64::from(side.status != Status::Ok);
        self.durations.add(side.duration);
        self.errors += failed;
        self.blocks.add(side.start, side.duration as f64, 1.0);
        // The last process is the usual one, because files are read one after the other.
        let at = match self.processes.last() {
            Some(last) if last.process == side.process => self.processes.len() - 1,
            _ => {
                let known = self.processes.iter().position(|p| p.process == side.process);
                known.unwrap_or_else(|| {
                    let process = side.process;
                    self.processes.push(ProcessSums { process, ..ProcessSums::default() });
                    self.processes.len() - 1
                })
            }
        };
        let sums = &mut self.processes[at];
        sums.calls += 1;
        sums.errors += failed;
        sums.total_ns = sums.total_ns.saturating_add(side.duration);
        sums
    }
}

/// The time for which a target accounts: its intervals where it reports them, and its duration otherwise.
pub(crate) fn stay_ns(side: &Side) -> u64 {
    match side.interval(Interval::TargetExecutionExclusive) {
        Some(own) => {
            own + side.interval(Interval::TargetHandler).unwrap_or(0)
                + side.interval(Interval::Children).unwrap_or(0)
                + side.interval(Interval::OutputSerialization).unwrap_or(0)
        }
        None => side.duration,
    }
}

impl Visit for Collector {
    fn side(&mut self, side: &Side, _: &Reader) {
        let at = side.path as usize;
        if self.paths.len() <= at {
            self.paths.resize_with(at + 1, PathSums::default);
        }
        let path = &mut self.paths[at];
        let sums = match side.kind {
            Kind::Origin => path.origin.add(side),
            Kind::Target => {
                path.stay_ns = path.stay_ns.saturating_add(stay_ns(side));
                path.target.add(side)
            }
            _ => path.local.add(side),
        };
        for interval in Interval::ALL {
            if let Some(ns) = side.interval(interval) {
                let tag = usize::from(interval.tag());
                sums.interval_ns[tag] = sums.interval_ns[tag].saturating_add(ns);
                path.intervals[tag].get_or_insert_default().add(ns);
            }
        }
    }
}
