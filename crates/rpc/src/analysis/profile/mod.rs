//! The profile: callpaths by their cumulative end-to-end time, with intervals, call counts and unaccounted time.
//!
//! Read in this order: `collect`, then this file.

pub mod collect;

use serde::Serialize;

use self::collect::{Collector, PathSums, SideSums};
use super::counts::Counts;
use super::histogram::Histogram;
use super::names::PathId;
use super::process::unseen_reason;
use super::stream::Reader;
use super::trace::Trace;
use crate::error::Error;
use crate::interval::Interval;

/// The callpaths of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// The callpaths, those with the most cumulative end-to-end time first; local steps last.
    pub paths: Vec<PathProfile>,
    /// The length of the run in ns.
    pub length_ns: u64,
    /// Counts of records and defects.
    pub counts: Counts,
}

/// One callpath.
#[derive(Clone, Debug, Serialize)]
pub struct PathProfile {
    /// Number of the callpath in this analysis.
    #[serde(skip)]
    pub id: PathId,
    /// The names along the path, outermost first.
    pub names: Vec<String>,
    /// The chained hash.
    pub hash: u64,
    /// The side whose durations are the end-to-end time.
    pub seen_by: SeenBy,
    /// Number of calls.
    pub calls: u64,
    /// Calls that did not end well.
    pub errors: u64,
    /// End-to-end time of a call in ns.
    pub end_to_end: Histogram,
    /// The share of the end-to-end time of all root callpaths.
    pub share: f64,
    /// Calls by the process that made them.
    pub origins: Vec<EntityCalls>,
    /// Calls by the process that served them.
    pub targets: Vec<EntityCalls>,
    /// Calls of which the other side has no record: on balance, by the counts of both sides.
    pub calls_without_target: u64,
    /// Served calls of which the origin has no record, on balance.
    pub calls_without_origin: u64,
    /// The intervals of Table III in its order, and `children`.
    pub intervals: Vec<IntervalProfile>,
    /// End-to-end time for which no interval accounts, or the reason why it is not known.
    pub unaccounted: Unaccounted,
}

/// The side from which the end-to-end time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeenBy {
    /// The caller: the whole call.
    Origin,
    /// The callee, because no caller has a record: without the way there and back.
    Target,
    /// A step inside of a process.
    Local,
}

/// The calls of one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntityCalls {
    /// The process: `kv@n01 (4711)`.
    pub process: String,
    /// Number of calls.
    pub calls: u64,
    /// Calls that did not end well.
    pub errors: u64,
    /// Sum of their durations in ns.
    pub total_ns: u64,
    /// Mean duration in ns.
    pub mean_ns: f64,
}

/// An interval of a callpath.
#[derive(Clone, Debug, Serialize)]
pub struct IntervalProfile {
    /// The name, as in Table III.
    pub name: &'static str,
    /// The interval of which this one is a part, if it is.
    pub part_of: Option<&'static str>,
    /// The durations, or the reason why they are not known.
    pub time: IntervalTime,
}

/// The durations of an interval.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum IntervalTime {
    /// Calls reported it.
    Measured {
        /// Durations in ns.
        durations: Histogram,
        /// The share of the callpath's end-to-end time. Of several at one time, the sum may be over 1. If a side lost records,
        /// the mean of its records stands for those that it lost.
        share: f64,
    },
    /// No call reported it.
    Unknown {
        /// The reason.
        reason: String,
    },
}

/// Time of a callpath for which no interval accounts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Unaccounted {
    /// Both sides are known.
    Measured {
        /// The time in ns, over all calls.
        total_ns: f64,
        /// Its share of the end-to-end time.
        share: f64,
    },
    /// One side is not known.
    Unknown {
        /// The reason.
        reason: String,
    },
}

/// Makes the profile of a trace.
///
/// # Errors
/// A file cannot be read any more.
pub fn profile(trace: &Trace<'_>) -> Result<Profile, Error> {
    let mut collector = Collector::default();
    trace.stream(&mut collector)?;
    Ok(of(trace, &collector))
}

/// Makes the profile of what a collector has collected.
pub(crate) fn of(trace: &Trace<'_>, collector: &Collector) -> Profile {
    let labels = trace.labels();
    let mut paths: Vec<PathProfile> = collector
        .paths
        .iter()
        .enumerate()
        .filter_map(|(id, sums)| path(id as PathId, sums, &trace.reader, &labels))
        .collect();
    let roots: f64 = paths
        .iter()
        .filter(|p| p.names.len() == 1 && p.seen_by != SeenBy::Local)
        .map(|p| p.end_to_end.sum() as f64)
        .sum();
    for path in &mut paths {
        path.share = if roots > 0.0 { path.end_to_end.sum() as f64 / roots } else { 0.0 };
    }
    paths.sort_by(|a, b| {
        let key = |p: &PathProfile| (p.seen_by == SeenBy::Local, u128::MAX - p.end_to_end.sum());
        key(a).cmp(&key(b)).then_with(|| a.names.cmp(&b.names))
    });
    Profile { paths, length_ns: trace.length_ns(), counts: trace.counts().clone() }
}

fn path(id: PathId, sums: &PathSums, reader: &Reader, labels: &[String]) -> Option<PathProfile> {
    let (origins, targets) = (sums.origin.durations.count(), sums.target.durations.count());
    let (seen_by, side) = match (origins, targets, sums.local.durations.count()) {
        (1.., _, _) => (SeenBy::Origin, &sums.origin),
        (0, 1.., _) => (SeenBy::Target, &sums.target),
        (0, 0, 1..) => (SeenBy::Local, &sums.local),
        (0, 0, 0) => return None,
    };
    let total = side.durations.sum() as f64;
    Some(PathProfile {
        id,
        names: reader.callpaths.names(id).into_iter().map(str::to_owned).collect(),
        hash: reader.callpaths.get(id).hash,
        seen_by,
        calls: side.durations.count(),
        errors: side.errors,
        end_to_end: side.durations.clone(),
        share: 0.0,
        origins: entities(
            if seen_by == SeenBy::Local { &sums.local } else { &sums.origin },
            labels,
        ),
        targets: entities(&sums.target, labels),
        calls_without_target: origins.saturating_sub(targets),
        calls_without_origin: targets.saturating_sub(origins),
        intervals: intervals(sums, seen_by, total, reader),
        unaccounted: unaccounted(sums),
    })
}

fn entities(side: &SideSums, labels: &[String]) -> Vec<EntityCalls> {
    let mut calls: Vec<EntityCalls> = side
        .processes
        .iter()
        .map(|sums| EntityCalls {
            process: labels.get(sums.process as usize).cloned().unwrap_or_default(),
            calls: sums.calls,
            errors: sums.errors,
            total_ns: sums.total_ns,
            mean_ns: sums.total_ns as f64 / sums.calls.max(1) as f64,
        })
        .collect();
    calls.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.process.cmp(&b.process)));
    calls
}

fn part_of(interval: Interval) -> Option<&'static str> {
    match interval {
        Interval::InputDeserialization => Some(Interval::TargetExecutionExclusive.name()),
        Interval::OutputSerialization => Some(Interval::TargetCompletionCallback.name()),
        _ => None,
    }
}

fn intervals(
    sums: &PathSums,
    seen_by: SeenBy,
    total: f64,
    reader: &Reader,
) -> Vec<IntervalProfile> {
    if seen_by == SeenBy::Local {
        return Vec::new();
    }
    let one = |interval: Interval| {
        let durations = match interval {
            // The caller's record itself is this interval.
            Interval::OriginExecution if sums.origin.durations.count() > 0 => {
                Some(&sums.origin.durations)
            }
            _ => sums.intervals[usize::from(interval.tag())].as_deref(),
        };
        let calls = if interval.is_of_origin() { 1.0 } else { sums.calls_of_target() };
        let time = match durations {
            Some(durations) => IntervalTime::Measured {
                durations: durations.clone(),
                share: if total > 0.0 { calls * durations.sum() as f64 / total } else { 0.0 },
            },
            None => IntervalTime::Unknown { reason: reason(sums, interval, reader) },
        };
        IntervalProfile { name: interval.name(), part_of: part_of(interval), time }
    };
    Interval::ALL.into_iter().map(one).collect()
}

/// The reason for which an interval has no durations.
fn reason(sums: &PathSums, interval: Interval, reader: &Reader) -> String {
    let (side, name) = match interval.is_of_origin() {
        true => (&sums.origin, "origin"),
        false => (&sums.target, "target"),
    };
    if side.processes.is_empty() {
        return format!("no {name} of this callpath was recorded");
    }
    let given = side.processes.iter().find_map(|p| {
        let process = reader.processes.get(p.process as usize)?;
        unseen_reason(process, interval).map(str::to_owned)
    });
    given.unwrap_or_else(|| {
        format!("the {name} did not report it: the recorder ran without details, or the host does not measure it")
    })
}

/// The parts that lie one after the other between t1 and t14.
fn unaccounted(sums: &PathSums) -> Unaccounted {
    let (origins, targets) = (sums.origin.durations.count(), sums.target.durations.count());
    let unknown = |reason: &str| Unaccounted::Unknown { reason: reason.to_owned() };
    if origins == 0 {
        return unknown("no origin of this callpath was recorded");
    }
    if targets == 0 {
        return unknown("no target of this callpath was recorded");
    }
    let sum = |interval: Interval| {
        sums.intervals[usize::from(interval.tag())].as_ref().map_or(0.0, |h| h.sum() as f64)
    };
    let of_target = sums.calls_of_target();
    let total = sums.origin.durations.sum() as f64;
    let accounted = sum(Interval::InputSerialization)
        + sum(Interval::OriginCompletionCallback)
        + of_target * (sums.stay_ns as f64 + sum(Interval::TargetInternalRdmaTransfer));
    let total_ns = (total - accounted).max(0.0);
    Unaccounted::Measured { total_ns, share: if total > 0.0 { total_ns / total } else { 0.0 } }
}
