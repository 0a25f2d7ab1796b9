//! Handlers that are long by themselves: most of the time of a callpath is work of its handlers, which neither a queue nor
//! calls to others nor waiting for each other explains.

use super::handlers::Handlers;
use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{MIN_CALLS, View, total_ns};
use crate::analysis::blocks::Estimate;
use crate::analysis::names::PathId;

/// The share of the end-to-end time from which handlers matter most: half of it, so no other part of a call is larger.
const MIN_SHARE: f64 = 0.5;

/// The least mean time of a handler in ns. A shorter one costs about as much as the call itself, so batches of calls save
/// more than faster handlers.
const MIN_MEAN_NS: f64 = 1_000_000.0;

/// The share of a handler's time for which its process uses a processor, from which it computes. Below it, it waits: for a
/// disk, a timer, a lock, or another process without a trace.
const COMPUTES: f64 = 0.5;

const FASTER: &str =
    "between nothing and all of the handlers' own time; half of it if they take half as long";

pub(super) static RULE: Rule = Rule {
    name: "long_handlers",
    condition: "handlers of a callpath with 50 calls have 50 % of its end-to-end time for themselves, and 1 ms a call, beside waits for each other",
    inputs: "50 calls with both sides; `process_cpu_us` or `process_cpu_ns_total` of targets tells computing from waiting",
    advice: "look into the handler: profile it if it computes; if it waits, find its locks, reads of files, sleeps and calls to processes without a trace, do them at once instead of one after the other, or keep their results",
    judge,
};

fn judge(view: &View<'_>) -> Judging {
    let handlers = Handlers::collect(view);
    if handlers.is_empty() {
        return Err(Verdict::unknown(format!("no callpath has {MIN_CALLS} calls with both sides")));
    }
    let own = handlers.iter().filter(|(_, sums)| {
        sums.alone_ns() >= MIN_SHARE * sums.all_ns && sums.alone_ns() >= MIN_MEAN_NS * sums.count()
    });
    let longest = own.max_by(|a, b| a.1.alone_ns().total_cmp(&b.1.alone_ns()));
    Ok(longest
        .map_or(Verdict::Absent, |(path, sums)| Verdict::Found(Box::new(found(view, *path, sums)))))
}

fn found(view: &View<'_>, path: PathId, sums: &Handlers) -> Found {
    let share = sums.alone_ns() / sums.all_ns.max(1.0);
    let of_run = view.collector.path(path).map_or(0.0, total_ns) / view.root_ns().max(1.0);
    let gain = Estimate { value: share / 2.0, low: 0.0, high: share };
    let mean = sums.alone_ns() / sums.count();
    let mut evidence = vec![
        Evidence::new("share of the end-to-end time in handlers alone", share, "share"),
        Evidence::new("mean time of a handler alone", mean, "ns"),
        Evidence::new("calls", sums.count(), ""),
    ];
    let computing = sums.computing(view);
    evidence.extend(computing.map(|share| {
        Evidence::new(
            "processor time of the targets, share of their handlers' time",
            share,
            "share",
        )
    }));
    let kind = match computing {
        Some(share) if share >= COMPUTES => ", and they compute",
        Some(_) => ", and they wait rather than compute",
        None => "",
    };
    Found {
        what: format!(
            "handlers have {:.0} % of the time of the callpath for themselves, {:.1} ms a call{kind}",
            100.0 * share,
            mean / 1e6
        ),
        callpath: view.names(path),
        processes: sums.targets.iter().map(|target| view.label(*target)).collect(),
        evidence,
        fixes: vec![Fix {
            key: "handler".to_owned(),
            now: Some(format!("{:.1} ms", mean / 1e6)),
            value: format!("{:.1} ms", mean / 2e6),
            gain: Some(gain),
            model: FASTER,
        }],
        saves: gain.map(|gain| gain * of_run.min(1.0)),
    }
}
