//! Handlers that wait for each other: they take the longer the more of them are under way in their process, though they do
//! not say for what they wait.
//!
//! A trace has no event of a lock. It shows that the own time of a handler grows with the number of handlers that were at
//! work when it began. A lock does that, and so does any other thing of which there is one: a connection, a disk, a
//! processor. The processor time of the process tells the last one from the others.

use super::handlers::Handlers;
use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{View, total_ns};
use crate::analysis::blocks::Estimate;
use crate::analysis::names::PathId;

/// The share of the end-to-end time for which handlers wait for each other, from which that matters: that of the queues of
/// `execution_streams`, which cost a caller the same.
const MIN_SHARE: f64 = 0.15;

/// Processors in use at one time from which processors are the likely thing that handlers wait for. A process that waits for
/// a lock uses little of one.
const BUSY: f64 = 0.7;

const ALONE: &str = "between nothing and all of the time by which handlers are longer than alone; what the handlers share keeps its own time";

pub(super) static RULE: Rule = Rule {
    name: "serialized_handlers",
    condition: "handlers of a callpath with 50 calls wait for each other for 15 % of its end-to-end time: their own time grows with the number of handlers at work in their process when they began, with a correlation that chance gives once in a million",
    inputs: "50 calls with both sides, with different numbers of handlers at work; waits that a variable explains (`database_wait_ns`) are left out",
    advice: "find what the handlers share: hold a lock for less of the handler, divide it by keys, or use more of what there is one of (a connection, a disk, a processor)",
    judge,
};

fn judge(view: &View<'_>) -> Judging {
    let handlers = Handlers::collect(view);
    if !handlers.values().any(Handlers::has_overlap) {
        return Err(Verdict::unknown(
            "no callpath has 50 calls with both sides and different numbers of handlers at work",
        ));
    }
    let waiting = handlers.iter().filter(|(_, sums)| sums.wait_ns >= MIN_SHARE * sums.all_ns);
    let worst = waiting.max_by(|a, b| a.1.wait_ns.total_cmp(&b.1.wait_ns));
    Ok(worst
        .map_or(Verdict::Absent, |(path, sums)| Verdict::Found(Box::new(found(view, *path, sums)))))
}

fn found(view: &View<'_>, path: PathId, sums: &Handlers) -> Found {
    let share = (sums.wait_ns / sums.all_ns.max(1.0)).min(1.0);
    let of_run = view.collector.path(path).map_or(0.0, total_ns) / view.root_ns().max(1.0);
    let gain = Estimate { value: share / 2.0, low: 0.0, high: share };
    let mut evidence = vec![
        Evidence::new("share of the end-to-end time in waits for each other", share, "share"),
        Evidence::new(
            "time by which each handler at work makes another one longer",
            sums.slope,
            "ns",
        ),
        Evidence::new("handlers at work when one begins, mean", sums.mean_others(), ""),
        Evidence::new("correlation of that number and the own time", sums.correlation, ""),
        Evidence::new("calls", sums.count(), ""),
    ];
    let processors = sums.processors(view);
    evidence.extend(processors.map(|used| Evidence::new("processors in use, mean", used, "")));
    let thing = match processors {
        Some(used) if used >= BUSY => "a processor, or a lock that is held while they compute",
        Some(_) => "a lock, or another thing of which there is one; not for a processor",
        None => "a lock, a processor, or another thing of which there is one",
    };
    Found {
        what: format!(
            "handlers wait for each other for {:.0} % of the time of the callpath: for {thing}",
            100.0 * share
        ),
        callpath: view.names(path),
        processes: sums.targets.iter().map(|target| view.label(*target)).collect(),
        evidence,
        fixes: vec![Fix {
            key: "shared".to_owned(),
            now: None,
            value: "divide what the handlers share, or hold it for less of their time".to_owned(),
            gain: Some(gain),
            model: ALONE,
        }],
        saves: gain.map(|gain| gain * of_run.min(1.0)),
    }
}
