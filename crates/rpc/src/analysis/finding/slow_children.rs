//! Slow calls below: most of the time of a callpath is that of the calls that its handlers make.

use std::collections::BTreeMap;

use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{Joined, MIN_CALLS, View, end_to_end, total_ns};
use crate::analysis::blocks::Estimate;
use crate::analysis::names::PathId;
use crate::analysis::profile::collect::PathSums;
use crate::interval::Interval;

/// The share of the end-to-end time from which the calls below matter most: half of it, so no other part is larger.
const MIN_SHARE: f64 = 0.5;

/// The share of the time of all calls below that one of them has, from which it is the one to look at.
const DOMINANT: f64 = 0.5;

/// The least mean time of the calls below in ns for each call: shorter ones are the price of a service in two processes.
const MIN_MEAN_NS: f64 = 1_000_000.0;

const BELOW: &str =
    "between nothing and the whole time of the calls below; half of it if they take half as long";
const AT_ONCE: &str = "calls of one handler that overlap take as long as the longest of them; it assumes that none needs the answer of another";

pub(super) static RULE: Rule = Rule {
    name: "slow_children",
    condition: "the calls that the handlers of a callpath with 50 calls make have 50 % of its end-to-end time, and 1 ms a call; of them, the callpath with the most time is named",
    inputs: "`children` of targets, and records of the calls below",
    advice: "look at the callpath below: its own findings say why it is slow; make calls at once that do not need each other's answers, make fewer and larger ones, or keep their answers",
    judge,
};

fn judge(view: &View<'_>) -> Judging {
    let paths = view.judged_paths()?;
    let mut found: Option<Found> = None;
    let mut is_known = false;
    for (path, sums) in paths {
        let Some(children) = sums.interval_ns(Interval::Children) else { continue };
        is_known = true;
        let total = total_ns(sums).max(1.0);
        let calls = end_to_end(sums).durations.count().max(1) as f64;
        if children < MIN_SHARE * total || children < MIN_MEAN_NS * calls {
            continue;
        }
        let Some(this) = slow(view, path, sums, children / total) else { continue };
        if found.as_ref().is_none_or(|best| best.saves.value < this.saves.value) {
            found = Some(this);
        }
    }
    match found {
        Some(found) => Ok(Verdict::Found(Box::new(found))),
        None if is_known => Ok(Verdict::Absent),
        // Hosts report the calls below where there are some.
        None if view.has_interval(Interval::TargetExecutionExclusive) => Ok(Verdict::Absent),
        None => Err(Verdict::unknown(view.unseen(Interval::Children))),
    }
}

/// Names the slowest callpath below; `None` if the calls below have no records.
fn slow(view: &View<'_>, path: PathId, sums: &PathSums, share: f64) -> Option<Found> {
    let below: BTreeMap<PathId, f64> = view
        .paths()
        .filter(|(below, _)| view.trace.reader.callpaths.is_below(*below, path))
        .map(|(below, sums)| (below, sums.origin.durations.sum() as f64))
        .collect();
    let all: f64 = below.values().sum();
    let (slowest, time) = below.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let dominates = time / all.max(1.0);
    let slowest_sums = view.collector.path(slowest)?;
    let (calls, parents) =
        (slowest_sums.origin.durations.count() as f64, sums.target.durations.count().max(1) as f64);
    let of_run = (total_ns(sums) / view.root_ns().max(1.0)).min(1.0);
    let gain = Estimate { value: share / 2.0, low: 0.0, high: share.min(1.0) };
    let names = view.names(slowest);
    let name = names.last().cloned().unwrap_or_default();
    let targets = &slowest_sums.target.processes;
    let mut evidence = vec![
        Evidence::new("share of the end-to-end time in calls below", share, "share"),
        Evidence::new(format!("share of `{name}` in the calls below"), dominates, "share"),
        Evidence::new(format!("calls of `{name}` for each call"), calls / parents, ""),
        Evidence::new(format!("mean time of `{name}`"), time / calls.max(1.0), "ns"),
    ];
    let here = slowest_sums.calls_of_target() * slowest_sums.stay_ns as f64 / time.max(1.0);
    if slowest_sums.target.durations.count() > 0 {
        evidence.push(Evidence::new(format!("of it at the target of `{name}`"), here, "share"));
    }
    let mut fixes = vec![Fix {
        key: "below".to_owned(),
        now: None,
        value: format!("a faster `{name}`, or fewer calls of it"),
        gain: Some(gain),
        model: BELOW,
    }];
    fixes.extend(at_once(view, path, share));
    let what = match dominates >= DOMINANT {
        true => format!("is that of `{name}`, which its handlers call"),
        false => format!("is that of calls below, most of it of `{name}`"),
    };
    Some(Found {
        what: format!("{:.0} % of the time of the callpath {what}", 100.0 * share),
        callpath: names,
        processes: targets.iter().map(|sums| view.label(sums.process)).collect(),
        evidence,
        fixes,
        saves: gain.map(|gain| gain * of_run),
    })
}

/// The gain if the calls of each handler were made at once, if it makes several, one after the other.
fn at_once(view: &View<'_>, path: PathId, share: f64) -> Option<Fix> {
    let mut below: BTreeMap<u64, Vec<&Joined>> = BTreeMap::new();
    for call in &view.joined {
        if call.parent != 0 && view.trace.reader.callpaths.is_below(call.path, path) {
            below.entry(call.parent).or_default().push(call);
        }
    }
    let length = |call: &&Joined| call.end.abs_diff(call.start) as f64;
    let (mut sum, mut longest) = (0.0, 0.0);
    for calls in below.values() {
        sum += calls.iter().map(length).sum::<f64>();
        longest += calls.iter().map(length).fold(0.0, f64::max);
    }
    let is_serial =
        below.values().all(|calls| calls.windows(2).all(|pair| pair[0].end <= pair[1].start));
    let several = below.values().filter(|calls| calls.len() > 1).count() as u64;
    if !is_serial || several < MIN_CALLS || sum <= 0.0 {
        return None;
    }
    let value = share * (1.0 - longest / sum);
    Some(Fix {
        key: "at_once".to_owned(),
        now: Some("one after the other".to_owned()),
        value: "calls below at once".to_owned(),
        gain: Some(Estimate { value, low: 0.0, high: value }),
        model: AT_ONCE,
    })
}
