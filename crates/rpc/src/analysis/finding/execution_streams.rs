//! Too few execution streams: calls wait in the queue of a target that works on as many as it can.

use super::replay::Replay;
use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{View, end_to_end, total_ns};
use crate::analysis::blocks::Estimate;
use crate::analysis::names::PathId;
use crate::analysis::profile::collect::PathSums;
use crate::interval::Interval;

/// The share of the end-to-end time in queues from which they matter: the paper's case had 26.6 %, and 14 % when it was
/// mended.
const MIN_SHARE: f64 = 0.15;

/// The factors that are tried.
const FACTORS: [usize; 4] = [2, 4, 8, 16];

/// The further gain for which it is not worth to double the streams again.
const WORTHWHILE: f64 = 0.03;

/// The most execution streams that are proposed: more threads than any node has cores cost more than they give.
const MAX_STREAMS: usize = 512;

const SIMULATED: &str = "a simulation of the queues with the arrivals and durations of this run; it assumes that the node \
    has cores for the streams, or that handlers wait";
const BOUNDED: &str =
    "between nothing and the whole time in queues; no model knows which handlers block";

pub(super) static RULE: Rule = Rule {
    name: "execution_streams",
    condition: "`target_handler` has 15 % of the cumulative end-to-end time of a callpath with 50 calls, and a simulation of the queues, where there is one, does not show that the streams suffice",
    inputs: "`target_handler` of targets; `execution_streams` of their configuration, or the variable `tokio_workers`",
    advice: "give the target more execution streams (`execution_streams`; for tokio `worker_threads`), or move work that blocks a thread off them (`spawn_blocking`)",
    judge,
};

fn judge(view: &View<'_>) -> Judging {
    let paths = view.judged_paths()?;
    let queued = paths.iter().filter_map(|(path, sums)| {
        Some((*path, *sums, sums.interval_ns(Interval::TargetHandler)?))
    });
    let Some((path, sums, queue)) = queued.max_by(|a, b| a.2.total_cmp(&b.2)) else {
        return Err(Verdict::unknown(view.unseen(Interval::TargetHandler)));
    };
    let total = total_ns(sums);
    let share = queue / total.max(1.0);
    if share < MIN_SHARE {
        return Ok(Verdict::Absent);
    }
    let targets: Vec<u32> = sums.target.processes.iter().map(|sums| sums.process).collect();
    let fixes = match targets.iter().find_map(|target| view.number(*target, "execution_streams")) {
        Some(streams) => {
            let fixes = simulated(view, streams as usize);
            if suffice(view, &fixes) {
                return Ok(Verdict::Absent);
            }
            fixes
        }
        None => bounded(view, &targets, share),
    };
    Ok(Verdict::Found(Box::new(found(view, path, sums, (share, queue), fixes))))
}

fn found(
    view: &View<'_>,
    path: PathId,
    sums: &PathSums,
    (share, queue): (f64, f64),
    fixes: Vec<Fix>,
) -> Found {
    let targets = &sums.target.processes;
    let gain = fixes.first().and_then(|fix| fix.gain).unwrap_or(Estimate::exact(0.0));
    let of_run = total_ns(sums) / view.root_ns().max(1.0);
    let mut evidence = vec![
        Evidence::new("share of the end-to-end time in queues", share, "share"),
        Evidence::new(
            "mean time in the queue",
            queue / end_to_end(sums).durations.count().max(1) as f64,
            "ns",
        ),
        Evidence::new("calls", sums.target.durations.count() as f64, ""),
    ];
    let depth = targets.iter().filter_map(|sums| {
        let names = ["pool_runnable", "queue_depth", "tokio_queue_depth"];
        names.iter().find_map(|name| view.variable(sums.process, name))
    });
    if let Some(deepest) = depth.map(|values| values.quantile(0.9)).max() {
        evidence.push(Evidence::new("runnable tasks, 90th percentile", deepest as f64, ""));
    }
    Found {
        what: format!(
            "{:.0} % of the time of the callpath is spent in the queues of its targets",
            100.0 * share
        ),
        callpath: view.names(path),
        processes: targets.iter().map(|sums| view.label(sums.process)).collect(),
        evidence,
        fixes,
        saves: gain.map(|gain| gain * of_run.min(1.0)),
    }
}

/// Fixes for targets with a known number of streams, the proposed one first.
fn simulated(view: &View<'_>, streams: usize) -> Vec<Fix> {
    let whole = Replay::new(&view.joined);
    let count = whole.targets.len();
    let predict = |then: usize| whole.gain(&vec![streams; count], &whole, &vec![then; count]);
    let tried: Vec<(usize, Estimate)> = FACTORS
        .iter()
        .map(|factor| (streams.max(1) * factor).min(MAX_STREAMS))
        .filter(|then| *then > streams)
        .map(|then| (then, predict(then)))
        .collect();
    let best = tried.iter().map(|(_, gain)| gain.value).fold(0.0, f64::max);
    let proposed = tried.iter().position(|(_, gain)| gain.value + WORTHWHILE >= best).unwrap_or(0);
    let fix = |(then, gain): &(usize, Estimate)| Fix {
        key: "execution_streams".to_owned(),
        now: Some(streams.to_string()),
        value: then.to_string(),
        gain: Some(*gain),
        model: SIMULATED,
    };
    let mut fixes: Vec<Fix> = tried.iter().map(fix).collect();
    if proposed < fixes.len() {
        let first = fixes.remove(proposed);
        fixes.insert(0, first);
    }
    fixes
}

/// Returns true if more streams save nothing: calls waited beside free streams, for a processor for example. The simulation
/// does not know whether a handler keeps its stream during its own calls, so it says nothing if there are some.
fn suffice(view: &View<'_>, fixes: &[Fix]) -> bool {
    let saves = |fix: &Fix| fix.gain.is_some_and(|gain| gain.value >= WORTHWHILE);
    !fixes.is_empty()
        && !fixes.iter().any(saves)
        && view.joined.iter().all(|call| call.children == 0)
}

/// Fixes for hosts that say only how long calls waited.
fn bounded(view: &View<'_>, targets: &[u32], share: f64) -> Vec<Fix> {
    let workers = targets.iter().find_map(|target| view.variable(*target, "tokio_workers"));
    let gain = Some(Estimate { value: share / 2.0, low: 0.0, high: share });
    let block = Fix {
        key: "spawn_blocking".to_owned(),
        now: None,
        value: "handlers that compute or block for longer than 100 us".to_owned(),
        gain,
        model: BOUNDED,
    };
    let Some(workers) = workers.map(|values| values.quantile(1.0)) else { return vec![block] };
    let threads = Fix {
        key: "worker_threads".to_owned(),
        now: Some(workers.to_string()),
        value: (2 * workers).to_string(),
        gain,
        model: BOUNDED,
    };
    vec![block, threads]
}
