//! Critical paths, of one request and of all, and predictions.
//!
//! Read in this order: `path`, `what_if`, then this file.

pub mod path;
pub mod what_if;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use self::path::{Part, Segment, critical_path};
use self::what_if::predicted_ns;
use super::blocks::{Blocks, Estimate, ratio};
use super::histogram::{Histogram, Summary};
use super::names::PathId;
use super::request::calls::{Call, MAX_HELD, each_request};
use super::request::show::parse_id;
use super::request::tree::Tree;
use super::trace::Trace;
use crate::error::Error;

/// The most callpaths of one request for which a prediction is made: the others have less than a hundredth of the time.
const MAX_PREDICTED: usize = 32;

/// The most calls that are played again for one request.
const MAX_PLAYED: usize = 20_000;

/// Seed of the intervals.
const SEED: u64 = 11;

/// Options of the analysis of all requests.
#[derive(Clone, Debug)]
pub struct Options {
    /// The share by which a callpath becomes faster in predictions: 0.25 is 25 %.
    pub faster: f64,
    /// Only requests whose first callpath contains this.
    pub root: Option<String>,
    /// The most sides of calls in memory; 0 is [`MAX_HELD`].
    pub most_held: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { faster: 0.25, root: None, most_held: 0 }
    }
}

/// Critical paths of many requests.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CriticalPaths {
    /// Number of requests.
    pub requests: u64,
    /// Durations of the requests in ns.
    pub durations: Summary,
    /// The share by which a callpath becomes faster in the predictions.
    pub faster: f64,
    /// The callpaths, those with the most time on critical paths first.
    pub paths: Vec<CriticalCallpath>,
    /// Requests with more calls than are played again: they have no prediction.
    pub requests_not_played: u64,
    /// Calls that were left out because one request has too many.
    pub calls_left_out: u64,
}

/// The part of a callpath in critical paths.
#[derive(Clone, Debug, Serialize)]
pub struct CriticalCallpath {
    /// The names along the path, outermost first.
    pub names: Vec<String>,
    /// Number of requests on whose critical path it is.
    pub requests: u64,
    /// Time on critical paths in ns.
    pub critical_ns: u64,
    /// Its share of the time of all requests.
    pub share: f64,
    /// The time by part, in ns: `queue`, `execution` and so on.
    pub parts: BTreeMap<&'static str, u64>,
    /// The prediction for a callpath that becomes faster.
    pub what_if: WhatIf,
}

/// A prediction for one callpath.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WhatIf {
    /// The change of the mean duration of a request: -0.1 is 10 % less. With its 95 % interval.
    pub mean_change: Estimate,
    /// The predicted median of the durations in ns.
    pub p50_ns: u64,
    /// The predicted 99th percentile in ns.
    pub p99_ns: u64,
}

/// The critical path of one request.
#[derive(Clone, Debug, Serialize)]
pub struct OneCriticalPath {
    /// Duration of the request in ns.
    pub duration_ns: u64,
    /// The steps, in time.
    pub steps: Vec<Step>,
    /// Predictions for the callpaths on the path, that with the greatest change first: names, predicted duration in ns.
    pub what_if: Vec<(Vec<String>, f64)>,
}

/// A step of a critical path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Begin, in ns after the begin of the request.
    pub start_ns: u64,
    /// Duration in ns.
    pub duration_ns: u64,
    /// The part of the call.
    pub part: Part,
    /// The names along the callpath.
    pub names: Vec<String>,
    /// The process in which the step ran, if it is known.
    pub process: Option<String>,
}

#[derive(Default)]
struct PathSums {
    requests: u64,
    critical_ns: u64,
    parts: BTreeMap<&'static str, u64>,
    /// Saved time (part) and time of all requests (whole).
    saved: Blocks,
    /// Durations of the requests that have it, now and predicted.
    now: Histogram,
    predicted: Histogram,
}

/// Analyses the critical paths of all requests.
///
/// # Errors
/// The options have a share outside of 0..1, or a file cannot be read any more.
pub fn critical_paths(trace: &Trace<'_>, options: &Options) -> Result<CriticalPaths, Error> {
    check_share(options.faster)?;
    let most = if options.most_held == 0 { MAX_HELD } else { options.most_held };
    let callpaths = &trace.reader.callpaths;
    let mut sums: HashMap<PathId, PathSums> = HashMap::new();
    let (mut durations, mut all) = (Histogram::default(), Blocks::default());
    let mut found = CriticalPaths { faster: options.faster, ..CriticalPaths::default() };
    found.calls_left_out = each_request(trace, most, |calls| {
        let tree = Tree::build(calls, callpaths);
        let Some(root) = tree.roots.first().map(|root| &tree.nodes[*root]) else { return };
        let wanted = options.root.as_ref();
        if wanted.is_some_and(|wanted| !callpaths.text(root.path).contains(wanted)) {
            return;
        }
        let (start, duration) = (root.start, root.duration());
        found.requests += 1;
        durations.add(duration);
        all.add(start, 0.0, duration as f64);
        let own = by_path(&tree, &critical_path(&tree));
        let is_played = tree.nodes.len() <= MAX_PLAYED;
        found.requests_not_played += u64::from(!is_played);
        for (rank, (path, parts)) in own.into_iter().enumerate() {
            let sum = sums.entry(path).or_default();
            sum.requests += 1;
            for (part, ns) in parts {
                sum.critical_ns += ns;
                *sum.parts.entry(part.name()).or_default() += ns;
            }
            if is_played && rank < MAX_PREDICTED {
                let predicted = predicted_ns(&tree, path, 1.0 - options.faster);
                sum.saved.add(start, (duration as f64 - predicted).max(0.0), duration as f64);
                sum.now.add(duration);
                sum.predicted.add(predicted.max(0.0) as u64);
            }
        }
    })?;
    found.durations = durations.summary();
    let total = (durations.sum() as f64).max(1.0);
    found.paths = sums
        .into_iter()
        .map(|(path, sums)| callpath(trace, path, &sums, &durations, total))
        .collect();
    found
        .paths
        .sort_by(|a, b| b.critical_ns.cmp(&a.critical_ns).then_with(|| a.names.cmp(&b.names)));
    Ok(found)
}

fn check_share(faster: f64) -> Result<(), Error> {
    if faster > 0.0 && faster < 1.0 {
        return Ok(());
    }
    Err(Error::Input {
        input: format!("a callpath that is {:.0} % faster", 100.0 * faster),
        why: "the share must lie between 0 and 100 %".to_owned(),
    })
}

/// The time on a critical path by callpath and part, the greatest first.
fn by_path(tree: &Tree, segments: &[Segment]) -> Vec<(PathId, BTreeMap<Part, u64>)> {
    let mut own: Vec<(PathId, BTreeMap<Part, u64>)> = Vec::new();
    for segment in segments {
        let path = tree.nodes[segment.node].path;
        let at = own.iter().position(|(known, _)| *known == path).unwrap_or_else(|| {
            own.push((path, BTreeMap::new()));
            own.len() - 1
        });
        *own[at].1.entry(segment.part).or_default() += segment.to.abs_diff(segment.from);
    }
    own.sort_by_key(|(path, parts)| (u64::MAX - parts.values().sum::<u64>(), *path));
    own
}

fn callpath(
    trace: &Trace<'_>,
    path: PathId,
    sums: &PathSums,
    all: &Histogram,
    total: f64,
) -> CriticalCallpath {
    // Within the requests that have the path; the others do not change.
    let of_all = sums.now.sum() as f64 / total;
    let change = ratio(&sums.saved.filled(), SEED).unwrap_or_default().map(|saved| -saved * of_all);
    let predicted = replaced(all, &sums.now, &sums.predicted);
    CriticalCallpath {
        names: trace.reader.callpaths.names(path).into_iter().map(str::to_owned).collect(),
        requests: sums.requests,
        critical_ns: sums.critical_ns,
        share: sums.critical_ns as f64 / total,
        parts: sums.parts.clone(),
        what_if: WhatIf {
            mean_change: change,
            p50_ns: predicted.quantile(0.5),
            p99_ns: predicted.quantile(0.99),
        },
    }
}

/// The histogram of all values with some of them replaced.
fn replaced(all: &Histogram, old: &Histogram, new: &Histogram) -> Histogram {
    let gone: HashMap<u64, u64> = old.buckets().map(|(low, _, count)| (low, count)).collect();
    let mut result = Histogram::default();
    for (low, width, count) in all.buckets() {
        let left = count - gone.get(&low).copied().unwrap_or(0).min(count);
        result.add_many(low + width / 2, left);
    }
    result.merge(new);
    result
}

/// Returns the critical path of one request.
///
/// # Errors
/// The id is malformed or not in the trace, the share is outside of 0..1, or a file cannot be read any more.
pub fn critical_path_of(
    trace: &Trace<'_>,
    id: &str,
    faster: f64,
) -> Result<OneCriticalPath, Error> {
    check_share(faster)?;
    let request = parse_id(id)?;
    let mut calls: Vec<Call> = Vec::new();
    each_request(trace, MAX_HELD, |all| {
        if all.first().is_some_and(|call| call.request == request) {
            calls = all.to_vec();
        }
    })?;
    let tree = Tree::build(&calls, &trace.reader.callpaths);
    let Some(root) = tree.roots.first().map(|root| &tree.nodes[*root]) else {
        return Err(Error::Input {
            input: format!("the request `{id}`"),
            why: "it has no record in this trace; the list of requests shows the ids".to_owned(),
        });
    };
    let labels = trace.labels();
    let names = |path| -> Vec<String> {
        trace.reader.callpaths.names(path).into_iter().map(str::to_owned).collect()
    };
    let segments = critical_path(&tree);
    let step = |segment: &Segment| {
        let node = &tree.nodes[segment.node];
        let side = match segment.part {
            Part::Queue | Part::Execution => node.target.or(node.origin),
            _ => node.origin,
        };
        Step {
            start_ns: segment.from.abs_diff(root.start),
            duration_ns: segment.to.abs_diff(segment.from),
            part: segment.part,
            names: names(node.path),
            process: side.and_then(|call| labels.get(call.process as usize).cloned()),
        }
    };
    let own = by_path(&tree, &segments);
    let predict =
        |(path, _): &(PathId, _)| (names(*path), predicted_ns(&tree, *path, 1.0 - faster));
    let mut what_if: Vec<_> = own.iter().take(MAX_PREDICTED).map(predict).collect();
    what_if.sort_by(|a, b| a.1.total_cmp(&b.1));
    Ok(OneCriticalPath {
        duration_ns: root.duration(),
        steps: segments.iter().map(step).collect(),
        what_if,
    })
}
