//! A starved progress loop: an origin makes many small calls, and reads their completions too few at a time.

use super::numbers::widened;
use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{Joined, MIN_CALLS, View, total_ns};
use crate::analysis::blocks::{Blocks, Estimate, ratio};
use crate::analysis::names::PathId;
use crate::analysis::process::switch;

/// The share of completion reads at their limit from which the queue is backed up: the paper's healthy case had none.
const MIN_AT_LIMIT: f64 = 0.5;

/// The share of the end-to-end time outside of the targets from which it matters.
const MIN_OUTSIDE: f64 = 0.2;

/// The factor for the most completions of a read: the paper's 16 to 64.
const EVENTS_FACTOR: u64 = 4;

/// The factor for the batch.
const BATCH_FACTOR: u64 = 64;

/// The quantile of the time outside of targets that is left when completions are read at once.
const UNDELAYED: f64 = 0.01;

/// Seed of the intervals.
const SEED: u64 = 5;

/// The most turns after the last one of the run: a larger read needs fewer.
const MAX_FURTHER: u64 = 1000;

const QUEUE: &str = "a simulation of the turns of the progress loop, each of which completes as many calls as it may read";
const THREAD: &str = "completions are read at once: the time outside of targets falls to its least";
const BATCH: &str = "the time of a call does not depend on its batch; large batches take longer";

pub(super) static RULE: Rule = Rule {
    name: "starved_progress",
    condition: "half of the completion reads of an origin take as many events as they may, and 20 % of the end-to-end time of its calls lies outside of their targets",
    inputs: "the variables `completion_queue_read` and `completion_queue_limit` (or `max_completion_events` of the configuration) of origins; 50 calls with both sides",
    advice: "give completions a thread of their own (`progress_thread`), let a read take more of them (`max_completion_events`), or make fewer and larger calls (`batch_size`)",
    judge,
};

fn judge(view: &View<'_>) -> Judging {
    let mut was_reported = false;
    let mut worst: Option<(f64, u32, u64)> = None;
    for process in 0..view.trace.reader.processes.len() as u32 {
        let Some(reads) = view.variable(process, "completion_queue_read") else { continue };
        let limit = view
            .variable(process, "completion_queue_limit")
            .map(|values| values.quantile(1.0))
            .or(view.number(process, "max_completion_events").map(|limit| limit as u64));
        let Some(limit) = limit.filter(|limit| *limit > 0) else { continue };
        was_reported = true;
        let at_limit = reads.share_from(limit);
        if worst.is_none_or(|(share, ..)| at_limit > share) {
            worst = Some((at_limit, process, limit));
        }
    }
    let Some((at_limit, process, limit)) = worst else {
        let why = match was_reported {
            true => "no origin reported the limit of its completion reads",
            false => "no origin reported the variable `completion_queue_read`",
        };
        return Err(Verdict::unknown(why));
    };
    if at_limit < MIN_AT_LIMIT {
        return Ok(Verdict::Absent);
    }
    let calls: Vec<Joined> =
        view.joined.iter().filter(|call| call.origin == process).copied().collect();
    if (calls.len() as u64) < MIN_CALLS {
        return Err(Verdict::unknown(format!("no origin has {MIN_CALLS} calls with both sides")));
    }
    let sum = |of: fn(&Joined) -> u64| calls.iter().map(|call| of(call) as f64).sum::<f64>();
    let total = sum(|call| call.end.abs_diff(call.start)).max(1.0);
    let outside = sum(Joined::outside) / total;
    if outside < MIN_OUTSIDE {
        return Ok(Verdict::Absent);
    }
    let fixes = fixes(view, process, limit, &calls);
    let found = found(view, (process, limit), (at_limit, outside), &calls, fixes);
    Ok(Verdict::Found(Box::new(found)))
}

fn found(
    view: &View<'_>,
    (process, limit): (u32, u64),
    (at_limit, outside): (f64, f64),
    calls: &[Joined],
    fixes: Vec<Fix>,
) -> Found {
    let path = dominant(calls);
    let of_run = view.collector.path(path).map_or(0.0, total_ns) / view.root_ns().max(1.0);
    let gain = fixes.first().and_then(|fix| fix.gain).unwrap_or(Estimate::exact(0.0));
    Found {
        what: format!(
            "{:.0} % of the completion reads take all of the {limit} events that they may",
            100.0 * at_limit
        ),
        callpath: view.names(path),
        processes: vec![view.label(process)],
        evidence: vec![
            Evidence::new("share of completion reads at their limit", at_limit, "share"),
            Evidence::new("share of the end-to-end time outside of targets", outside, "share"),
            Evidence::new("calls under way at one time, at most", under_way(calls) as f64, ""),
        ],
        fixes,
        saves: gain.map(|gain| gain * of_run.min(1.0)),
    }
}

/// The callpath with the most end-to-end time.
fn dominant(calls: &[Joined]) -> PathId {
    let mut times: std::collections::BTreeMap<PathId, u64> = std::collections::BTreeMap::new();
    calls.iter().for_each(|c| *times.entry(c.path).or_default() += c.end.abs_diff(c.start));
    times.into_iter().max_by_key(|(_, time)| *time).map_or(0, |(path, _)| path)
}

/// The most calls that were under way at one time.
fn under_way(calls: &[Joined]) -> usize {
    let mut moments: Vec<(i64, i32)> =
        calls.iter().flat_map(|call| [(call.start, 1), (call.end, -1)]).collect();
    moments.sort_unstable();
    let mut now = 0;
    let depth = |(_, change): &(i64, i32)| {
        now += change;
        now
    };
    moments.iter().map(depth).max().unwrap_or(0).max(1).unsigned_abs() as usize
}

fn fixes(view: &View<'_>, process: u32, limit: u64, calls: &[Joined]) -> Vec<Fix> {
    let mut fixes = vec![events(limit, calls)];
    let has_thread = view.process(process).and_then(|process| switch(process, "progress_thread"));
    if has_thread != Some(true) {
        fixes.push(thread(view.setting(process, "progress_thread"), calls));
    }
    if let Some(batch) = view.number(process, "batch_size").map(|batch| batch as u64) {
        let then = (batch * BATCH_FACTOR).min(1024);
        if then > batch {
            fixes.push(larger_batch(batch, then));
        }
    }
    let value = |fix: &Fix| fix.gain.map_or(0.0, |gain| gain.value);
    fixes.sort_by(|a, b| value(b).total_cmp(&value(a)));
    fixes
}

/// The share of the end-to-end time that a function of each call saves.
fn saved(calls: &[Joined], by: impl Fn(&Joined) -> f64) -> Estimate {
    let mut blocks = Blocks::default();
    for call in calls {
        blocks.add(call.start, by(call), call.end.abs_diff(call.start) as f64);
    }
    widened(ratio(&blocks.filled(), SEED).unwrap_or_default())
}

fn undelayed(calls: &[Joined]) -> f64 {
    let mut outside: Vec<u64> = calls.iter().map(Joined::outside).collect();
    outside.sort_unstable();
    outside.get((outside.len() as f64 * UNDELAYED) as usize).copied().unwrap_or(0) as f64
}

fn events(limit: u64, calls: &[Joined]) -> Fix {
    let then = limit * EVENTS_FACTOR;
    let mut blocks = Blocks::default();
    for (call, end) in reads(limit as usize, then as usize, calls) {
        let duration = call.end.abs_diff(call.start) as f64;
        blocks.add(call.start, call.end.saturating_sub(end) as f64, duration);
    }
    Fix {
        key: "max_completion_events".to_owned(),
        now: Some(limit.to_string()),
        value: then.to_string(),
        gain: Some(widened(ratio(&blocks.filled(), SEED).unwrap_or_default())),
        model: QUEUE,
    }
}

/// Completes calls at the turns of the progress loop, `then` instead of `limit` of them at a time. Returns each call with
/// its new end.
fn reads(limit: usize, then: usize, calls: &[Joined]) -> Vec<(Joined, i64)> {
    let mut ends: Vec<i64> = calls.iter().map(|call| call.end).collect();
    ends.sort_unstable();
    let turns: Vec<i64> = ends.chunks(limit).filter_map(|turn| turn.first().copied()).collect();
    let Some((first, last)) = turns.first().zip(turns.last()) else { return Vec::new() };
    // The calls that are issued between two turns. If they are as few as a turn completes, callers wait for completions,
    // and turns that complete more lie further apart.
    let issued = |turn: &[i64]| {
        calls.partition_point(|call| call.start < turn[1])
            - calls.partition_point(|call| call.start < turn[0])
    };
    let mut between: Vec<usize> = turns.windows(2).map(issued).filter(|count| *count > 0).collect();
    between.sort_unstable();
    let usual = between.get(between.len() / 2).copied().unwrap_or(limit).max(limit);
    let stride = (then / usual).max(1);
    let gap = last.abs_diff(*first) / turns.len() as u64 + 1;
    let mut waiting: Vec<Joined> = calls.to_vec();
    waiting.sort_unstable_by_key(Joined::served);
    let (mut at, mut done) = (0, Vec::with_capacity(calls.len()));
    let further = (1..=MAX_FURTHER).map(|turn| last.saturating_add_unsigned(gap * turn));
    for turn in turns.iter().copied().step_by(stride).chain(further) {
        let left = waiting[at..].iter().take(then);
        let ready = left.take_while(|call| call.served() <= turn).count();
        done.extend(waiting[at..at + ready].iter().map(|call| (*call, turn)));
        at += ready;
        if at == waiting.len() {
            break;
        }
    }
    // A target whose clock is off may have served calls after every turn.
    done.extend(waiting[at..].iter().map(|call| (*call, call.end)));
    done
}

fn thread(now: Option<String>, calls: &[Joined]) -> Fix {
    let least = undelayed(calls);
    Fix {
        key: "progress_thread".to_owned(),
        now,
        value: "true".to_owned(),
        gain: Some(saved(calls, |call| (call.outside() as f64 - least).max(0.0))),
        model: THREAD,
    }
}

fn larger_batch(now: u64, then: u64) -> Fix {
    let gain = 1.0 - now as f64 / then as f64;
    Fix {
        key: "batch_size".to_owned(),
        now: Some(now.to_string()),
        value: then.to_string(),
        gain: Some(Estimate { value: gain, low: gain / 2.0, high: gain }),
        model: BATCH,
    }
}
