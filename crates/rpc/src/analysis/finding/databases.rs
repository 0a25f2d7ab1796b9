//! Too many databases: a batch becomes many small calls, and the backend takes one after the other.

use std::collections::HashMap;

use super::numbers::line;
use super::replay::{Play, Replay};
use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{Joined, MIN_CALLS, View, total_ns};
use crate::analysis::blocks::Estimate;
use crate::analysis::names::PathId;

/// The share of the handlers' time for which they wait for their database, from which waits matter.
const MIN_SHARE: f64 = 0.2;

/// The share of the end-to-end time of the callpath for which handlers wait, from which waits matter.
const MIN_OF_ALL: f64 = 0.05;

/// The divisors that are tried.
const DIVISORS: [usize; 3] = [2, 4, 8];

/// The longest time between two calls of one burst to one target, as a share of their duration.
const BURST_SHARE: f64 = 0.5;

const MERGED: &str = "a simulation with fewer and larger calls: the fixed part of a hold is paid once; that part comes from \
    the holds of calls of different size";

pub(super) static RULE: Rule = Rule {
    name: "databases",
    condition: "handlers of a callpath with 50 calls wait for their database for 20 % of their time and 5 % of the end-to-end time, and fewer `databases` make fewer calls",
    inputs: "the variable `database_wait_ns` of targets; `databases` of their configuration; `bulk_bytes` for the prediction",
    advice: "use fewer databases (`databases`): where the backend cannot insert in parallel, each batch becomes fewer and larger calls that wait for each other less",
    judge,
};

#[derive(Default)]
struct Waits {
    /// End-to-end time, time in handlers, and in waits, in ns.
    all: f64,
    own: f64,
    waits: f64,
    calls: u64,
    blocked: u64,
}

fn judge(view: &View<'_>) -> Judging {
    let mut paths: HashMap<PathId, Waits> = HashMap::new();
    for call in &view.joined {
        let Some(wait) = call.database_wait else { continue };
        let waits = paths.entry(call.path).or_default();
        waits.all += call.end.abs_diff(call.start) as f64;
        waits.own += call.own as f64;
        waits.waits += wait as f64;
        waits.calls += 1;
        waits.blocked += u64::from(wait > call.own / 10);
    }
    let judged = paths.iter().filter(|(_, waits)| waits.calls >= MIN_CALLS);
    let Some((path, waits)) = judged.max_by(|a, b| a.1.waits.total_cmp(&b.1.waits)) else {
        return Err(Verdict::unknown("no target reported the variable `database_wait_ns`"));
    };
    let share = waits.waits / waits.own.max(1.0);
    if share < MIN_SHARE || waits.waits < MIN_OF_ALL * waits.all {
        return Ok(Verdict::Absent);
    }
    let calls: Vec<Joined> =
        view.joined.iter().filter(|call| call.path == *path).copied().collect();
    let targets: Vec<u32> = calls.iter().map(|call| call.target).collect();
    let setting = targets.iter().find_map(|target| view.number(*target, "databases"));
    let Some(databases) = setting else {
        return Err(Verdict::unknown(
            "the targets did not record `databases` in their configuration",
        ));
    };
    if databases < 2.0 {
        return Ok(Verdict::Absent);
    }
    let fixes = fixes(view, &calls, databases as usize);
    if fixes.is_empty() {
        return Ok(Verdict::Absent);
    }
    Ok(Verdict::Found(Box::new(found(view, *path, waits, share, fixes))))
}

fn found(view: &View<'_>, path: PathId, waits: &Waits, share: f64, fixes: Vec<Fix>) -> Found {
    let sums = view.collector.path(path);
    let of_run = sums.map_or(0.0, total_ns) / view.root_ns().max(1.0);
    let targets = sums.map(|sums| sums.target.processes.as_slice()).unwrap_or_default();
    let gain = fixes.first().and_then(|fix| fix.gain).unwrap_or(Estimate::exact(0.0));
    let mut evidence = vec![
        Evidence::new("share of the handlers' time in waits for a database", share, "share"),
        Evidence::new("mean wait", waits.waits / waits.calls.max(1) as f64, "ns"),
        Evidence::new(
            "share of the calls that waited",
            waits.blocked as f64 / waits.calls.max(1) as f64,
            "share",
        ),
    ];
    let blocked = targets.iter().filter_map(|sums| view.variable(sums.process, "pool_blocked"));
    if let Some(blocked) = blocked.map(|values| values.quantile(0.9)).max() {
        evidence.push(Evidence::new("blocked tasks, 90th percentile", blocked as f64, ""));
    }
    Found {
        what: format!("handlers wait for their database for {:.0} % of their time", 100.0 * share),
        callpath: view.names(path),
        processes: targets.iter().map(|sums| view.label(sums.process)).collect(),
        evidence,
        fixes,
        saves: gain.map(|gain| gain * of_run.min(1.0)),
    }
}

fn fixes(view: &View<'_>, calls: &[Joined], databases: usize) -> Vec<Fix> {
    let fixed = fixed_share(calls);
    let streams = |replay: &Replay| -> Vec<usize> {
        let stream = |target: &u32| view.number(*target, "execution_streams").unwrap_or(1.0);
        replay.targets.iter().map(|target| stream(target) as usize).collect()
    };
    let now = Replay::new(calls);
    let batch = calls.first().and_then(|call| view.number(call.origin, "batch_size"));
    // A batch makes no more calls than it has events, and no target stays without a database.
    let puts = |databases: usize| databases.min(batch.map_or(usize::MAX, |batch| batch as usize));
    let tried = DIVISORS.iter().map(|divisor| databases / divisor);
    let tried = tried.filter(|then| *then >= now.targets.len().max(1));
    let mut fixes: Vec<Fix> = tried
        .filter_map(|then| {
            let fewer = puts(databases) / puts(then).max(1);
            let merged = (fewer > 1).then(|| merge(&now, fewer, fixed))?;
            Some(Fix {
                key: "databases".to_owned(),
                now: Some(databases.to_string()),
                value: then.to_string(),
                gain: Some(now.gain(&streams(&now), &merged, &streams(&merged))),
                model: MERGED,
            })
        })
        .collect();
    let value = |fix: &Fix| fix.gain.map_or(0.0, |gain| gain.value);
    fixes.sort_by(|a, b| value(b).total_cmp(&value(a)));
    fixes
}

/// The share of a hold that does not grow with the size of a call, from the time between handlers that ended one after the
/// other while the next one waited. Half of it if calls are too alike to tell.
fn fixed_share(calls: &[Joined]) -> f64 {
    let mut by_target: HashMap<u32, Vec<(i64, u64, u64)>> = HashMap::new();
    for call in calls {
        if let (Some(wait), Some(bytes)) = (call.database_wait, call.bytes) {
            by_target.entry(call.target).or_default().push((call.served(), wait, bytes));
        }
    }
    let mut points = Vec::new();
    for ends in by_target.values_mut() {
        ends.sort_unstable();
        for pair in ends.windows(2) {
            let gap = pair[1].0.abs_diff(pair[0].0);
            // The time between two ends is a hold only if the second waited for the whole of it.
            if pair[1].1 > gap / 2 {
                points.push((pair[1].2 as f64, gap as f64));
            }
        }
    }
    // Gaps with a pause of the machine in them say nothing about holds.
    points.sort_by(|a, b| a.1.total_cmp(&b.1));
    points.truncate(points.len() * 9 / 10);
    let mean = points.iter().map(|(_, gap)| gap).sum::<f64>() / points.len().max(1) as f64;
    match line(&points) {
        Some((slope, zero, _)) if slope > 0.0 && mean > 0.0 => (zero / mean).clamp(0.0, 1.0),
        Some(_) => 1.0,
        None => 0.5,
    }
}

/// Merges up to `divisor` calls of a burst to one target into one.
fn merge(replay: &Replay, divisor: usize, fixed: f64) -> Replay {
    let mut merged = Replay { calls: Vec::new(), targets: replay.targets.clone() };
    // By origin and target: the merged call that is still open, and how many calls are in it.
    let mut open: HashMap<(u32, usize), (usize, usize, u64)> = HashMap::new();
    for call in &replay.calls {
        let key = (call.origin, call.target);
        let near = |last: u64, of: &Play| {
            let gap = call.start.saturating_sub(last) as f64;
            gap <= BURST_SHARE * of.end.saturating_sub(of.start) as f64
        };
        match open.get_mut(&key) {
            Some((at, count, last)) if *count < divisor && near(*last, &merged.calls[*at]) => {
                let into = &mut merged.calls[*at];
                into.work = into.work.max(call.work);
                into.hold += (call.hold as f64 * (1.0 - fixed)) as u64;
                into.after = into.after.max(call.after);
                into.end = into.end.max(call.end);
                (*count, *last) = (*count + 1, call.start);
            }
            _ => {
                open.insert(key, (merged.calls.len(), 1, call.start));
                merged.calls.push(*call);
            }
        }
    }
    merged
}
