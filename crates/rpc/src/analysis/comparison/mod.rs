//! Compares two runs, callpath by callpath, and judges the difference for a gate of a build.

mod significance;

use std::collections::BTreeMap;

use serde::Serialize;

use self::significance::{change, holm, p_value};
use super::blocks::{Estimate, Sum};
use super::histogram::Histogram;
use super::profile::collect::{Collector, PathSums, SideSums};
use super::trace::Trace;
use crate::error::Error;

/// The level of significance: the chance of any false alarm in a comparison.
pub const LEVEL: f64 = 0.05;

/// Seed of the tests.
const SEED: u64 = 17;

/// The comparison of two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The callpaths of both, that with the greatest change of cumulative time first.
    pub paths: Vec<PathChange>,
    /// Callpaths that only the first run has.
    pub only_first: Vec<Vec<String>>,
    /// Callpaths that only the second run has.
    pub only_second: Vec<Vec<String>>,
    /// Callpaths of which one run has records of the callers alone, and the other one of the callees.
    pub different_sides: Vec<Vec<String>>,
    /// Settings that differ: process name, key, value in the first and in the second run.
    pub settings: Vec<(String, String, Option<String>, Option<String>)>,
}

/// A callpath in two runs.
#[derive(Clone, Debug, Serialize)]
pub struct PathChange {
    /// The names along the path, outermost first.
    pub names: Vec<String>,
    /// Calls in the first and in the second run.
    pub calls: [u64; 2],
    /// Mean durations in ns.
    pub mean_ns: [f64; 2],
    /// Medians in ns.
    pub p50_ns: [u64; 2],
    /// 99th percentiles in ns.
    pub p99_ns: [u64; 2],
    /// Shares of calls that failed.
    pub failed: [f64; 2],
    /// The change of the mean: 0.1 is 10 % slower, with its 95 % interval.
    pub change: Estimate,
    /// The probability of such a change between equal runs, corrected for the number of callpaths. `None` if a run is too
    /// short for a test.
    pub p_value: Option<f64>,
    /// True if the change is not chance, at [`LEVEL`].
    pub is_significant: bool,
}

/// Compares two runs.
///
/// # Errors
/// A file cannot be read any more.
pub fn compare(first: &Trace<'_>, second: &Trace<'_>) -> Result<Comparison, Error> {
    let (a, b) = (callpaths(first)?, callpaths(second)?);
    let only = |of: &BTreeMap<Key, PathSums>, not: &BTreeMap<Key, PathSums>| {
        of.keys().filter(|key| !not.contains_key(*key)).map(|(names, _)| names.clone()).collect()
    };
    let (mut paths, mut different_sides): (Vec<PathChange>, _) = (Vec::new(), Vec::new());
    for (key, sums) in &a {
        let Some(others) = b.get(key) else { continue };
        let names = &key.0;
        match common(sums, others) {
            Some(sides) => paths.push(path(names, sides)),
            None => different_sides.push(names.clone()),
        }
    }
    let known = paths.iter().enumerate();
    let mut p_values: Vec<(usize, f64)> =
        known.filter_map(|(at, path)| Some((at, path.p_value?))).collect();
    holm(&mut p_values);
    for (at, p) in p_values {
        paths[at].p_value = Some(p);
        paths[at].is_significant = p < LEVEL;
    }
    let time = |path: &PathChange| (path.mean_ns[1] - path.mean_ns[0]).abs() * path.calls[0] as f64;
    paths.sort_by(|a, b| time(b).total_cmp(&time(a)));
    Ok(Comparison {
        paths,
        only_first: only(&a, &b),
        only_second: only(&b, &a),
        different_sides,
        settings: settings(first, second),
    })
}

/// The names of a callpath and its hash: callers without a record have no names, and their callees are told apart by the hash.
/// Of colliding hashes the names tell.
type Key = (Vec<String>, u64);

/// The sums of all callpaths; processes do not matter between runs.
fn callpaths(trace: &Trace<'_>) -> Result<BTreeMap<Key, PathSums>, Error> {
    let mut collector = Collector::default();
    trace.stream(&mut collector)?;
    let called = |sums: &PathSums| seen(sums).durations.count() > 0;
    let paths = collector.paths.into_iter().enumerate().filter(|(_, sums)| called(sums));
    Ok(paths
        .map(|(id, sums)| {
            let (callpaths, id) = (&trace.reader.callpaths, id as u32);
            let names = callpaths.names(id).into_iter().map(str::to_owned).collect();
            ((names, callpaths.get(id).hash), sums)
        })
        .collect())
}

fn seen(sums: &PathSums) -> &SideSums {
    let sides = [&sums.origin, &sums.target];
    sides.into_iter().find(|side| side.durations.count() > 0).unwrap_or(&sums.local)
}

/// Returns the side of a callpath of which both runs have records: the time of a caller has the way there and back, and that of
/// a callee has not.
fn common<'s>(a: &'s PathSums, b: &'s PathSums) -> Option<[&'s SideSums; 2]> {
    let sides = [[&a.origin, &b.origin], [&a.target, &b.target], [&a.local, &b.local]];
    sides.into_iter().find(|sides| sides.iter().all(|side| side.durations.count() > 0))
}

fn path(names: &[String], sides: [&SideSums; 2]) -> PathChange {
    let blocks: [Vec<Sum>; 2] = sides.map(|side| side.blocks.filled());
    let (value, low, high) = change(&blocks[0], &blocks[1], SEED);
    let durations: [&Histogram; 2] = sides.map(|side| &side.durations);
    PathChange {
        names: names.to_vec(),
        calls: durations.map(Histogram::count),
        mean_ns: durations.map(Histogram::mean),
        p50_ns: durations.map(|all| all.quantile(0.5)),
        p99_ns: durations.map(|all| all.quantile(0.99)),
        failed: sides.map(|side| side.errors as f64 / side.durations.count().max(1) as f64),
        change: Estimate { value, low, high },
        p_value: p_value(&blocks[0], &blocks[1], SEED),
        is_significant: false,
    }
}

/// Settings of processes with one name that differ between the runs.
fn settings(
    first: &Trace<'_>,
    second: &Trace<'_>,
) -> Vec<(String, String, Option<String>, Option<String>)> {
    let all = |trace: &Trace<'_>| -> BTreeMap<(String, String), String> {
        let processes = trace.reader.processes.iter();
        processes
            .flat_map(|process| {
                let name = &process.name;
                process.config.iter().map(move |(k, v)| ((name.clone(), k.clone()), v.clone()))
            })
            .collect()
    };
    let (a, b) = (all(first), all(second));
    let mut keys: Vec<&(String, String)> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter()
        .filter(|key| a.get(key) != b.get(key))
        .map(|key| (key.0.clone(), key.1.clone(), a.get(key).cloned(), b.get(key).cloned()))
        .collect()
}

/// The limits of a gate.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The greatest rise of the mean that passes: 0.1 is 10 %.
    pub mean_rise: f64,
    /// The greatest rise of the 99th percentile that passes; without a limit, only means are judged.
    pub p99_rise: Option<f64>,
    /// The greatest rise of the share of failed calls.
    pub failed_rise: f64,
    /// Callpaths with fewer calls in either run are not judged.
    pub min_calls: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { mean_rise: 0.1, p99_rise: None, failed_rise: 0.01, min_calls: 100 }
    }
}

/// The verdict of a gate.
#[derive(Clone, Debug, Serialize)]
pub struct Gate {
    /// True if a callpath was judged, and none is worse than the limits.
    pub passes: bool,
    /// The callpaths that are worse, with the reason.
    pub failures: Vec<GateFailure>,
    /// Number of callpaths that were judged.
    pub judged: usize,
    /// Callpaths that could not be judged, with the reason.
    pub not_judged: Vec<(Vec<String>, String)>,
}

/// A callpath that does not pass a gate.
#[derive(Clone, Debug, Serialize)]
pub struct GateFailure {
    /// The names along the path.
    pub names: Vec<String>,
    /// The reason, with both numbers.
    pub reason: String,
}

/// Judges the second run of a comparison. A rise of the mean fails the gate if it is over the limit and not chance. A
/// comparison without a callpath that can be judged does not pass: a run that went wrong would.
pub fn gate(comparison: &Comparison, limits: &Limits) -> Gate {
    let mut gate = Gate { passes: true, failures: Vec::new(), judged: 0, not_judged: Vec::new() };
    for path in &comparison.paths {
        let names = path.names.clone();
        if path.calls.iter().any(|calls| *calls < limits.min_calls) {
            let why = format!("it has fewer than {} calls in a run", limits.min_calls);
            gate.not_judged.push((names, why));
            continue;
        }
        if path.p_value.is_none() {
            gate.not_judged.push((names, "a run is too short for a test".to_owned()));
            continue;
        }
        gate.judged += 1;
        if let Some(reason) = worse(path, limits) {
            gate.failures.push(GateFailure { names, reason });
        }
    }
    for names in &comparison.only_first {
        gate.not_judged.push((names.clone(), "the second run does not have it".to_owned()));
    }
    for names in &comparison.different_sides {
        let why = "one run has records of its callers alone, and the other one of its callees";
        gate.not_judged.push((names.clone(), why.to_owned()));
    }
    gate.passes = gate.judged > 0 && gate.failures.is_empty();
    gate
}

fn worse(path: &PathChange, limits: &Limits) -> Option<String> {
    let percent = |share: f64| 100.0 * share;
    if path.is_significant && path.change.value > limits.mean_rise {
        return Some(format!(
            "its mean rose by {:.1} % ({:.1} to {:.1} %), over the limit of {:.1} %",
            percent(path.change.value),
            percent(path.change.low),
            percent(path.change.high),
            percent(limits.mean_rise)
        ));
    }
    let p99 = path.p99_ns[1] as f64 / path.p99_ns[0].max(1) as f64 - 1.0;
    if let Some(limit) = limits.p99_rise.filter(|limit| p99 > *limit) {
        return Some(format!(
            "its 99th percentile rose by {:.1} %, over the limit of {:.1} %",
            percent(p99),
            percent(limit)
        ));
    }
    let failed = path.failed[1] - path.failed[0];
    (failed > limits.failed_rise).then(|| {
        format!(
            "{:.2} % of its calls failed, {:.2} % before",
            percent(path.failed[1]),
            percent(path.failed[0])
        )
    })
}
