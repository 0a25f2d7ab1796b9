//! Large messages: the time of calls grows with their bytes, or all calls of a callpath wait while its bytes move.
//!
//! Messages that share a connection, a thread or a network wait for each other. Then a small call takes as long as a large one,
//! and no line through bytes and times shows the cause; the rate of the bytes does.

use std::collections::BTreeMap;

use super::numbers::line;
use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{Joined, MIN_CALLS, View, total_ns};
use crate::analysis::blocks::Estimate;
use crate::analysis::names::PathId;

/// The size from which a message is large: a network of 10 Gbit/s moves it in 50 us, as long as a short call takes.
const LARGE_BYTES: f64 = 65_536.0;

/// The share of the end-to-end time that bytes explain, from which they matter.
const MIN_SHARE: f64 = 0.3;

/// The least correlation between bytes and time: below it, something else decides.
const MIN_CORRELATION: f64 = 0.5;

/// The rate in bytes a second from which moving bytes takes time by itself: half of a network of 1 Gbit/s, from which on
/// queues at a link grow; and a good part of one processor, for a stack that copies and converts each byte several times.
const MIN_RATE: f64 = 62.5e6;

const SHARED: &str =
    "between nothing and half of the time outside of targets, if half of the bytes move";
const LINEAR: &str =
    "a line through bytes and times of calls; half of the bytes save half of its rise";

pub(super) static RULE: Rule = Rule {
    name: "large_messages",
    condition: "a tenth of the calls of a callpath have 64 KiB or more, and bytes explain 30 % of its end-to-end time with a correlation of 0.5; or 30 % of that time lies outside of targets while its calls move 62.5 MB a second together",
    inputs: "the variables `request_bytes` and `response_bytes`, or `bulk_bytes`, of 50 calls with both sides",
    advice: "send less: only the fields that are read, pages instead of whole lists, a stream of chunks, compression where the network is the bound",
    judge,
};

/// The calls of a callpath that report their bytes.
#[derive(Default)]
struct Calls {
    /// Bytes and end-to-end time in ns of each.
    points: Vec<(f64, f64)>,
    bytes: f64,
    time: f64,
    /// Time outside of queue, handler and the target's own calls, in ns.
    outside: f64,
    /// First begin and last end.
    extent: Option<(i64, i64)>,
}

impl Calls {
    fn add(&mut self, call: &Joined, bytes: u64) {
        let time = call.end.abs_diff(call.start) as f64;
        self.points.push((bytes as f64, time));
        self.bytes += bytes as f64;
        self.time += time;
        self.outside += call.outside() as f64;
        let (first, last) = self.extent.unwrap_or((call.start, call.end));
        self.extent = Some((first.min(call.start), last.max(call.end)));
    }

    /// The size that a tenth of the calls reach.
    fn large(&self) -> f64 {
        let mut sizes: Vec<f64> = self.points.iter().map(|point| point.0).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.get(sizes.len() * 9 / 10).copied().unwrap_or(0.0)
    }

    /// Bytes a second of all calls together, from the first begin to the last end.
    fn rate(&self) -> f64 {
        let ns = self.extent.map_or(0, |(first, last)| last.abs_diff(first));
        self.bytes * 1e9 / (ns as f64).max(1.0)
    }

    fn mean(&self) -> f64 {
        self.bytes / self.points.len().max(1) as f64
    }
}

/// A reason for which bytes have much of the time of a callpath.
struct Reason {
    gain: Estimate,
    model: &'static str,
    what: String,
    evidence: Vec<Evidence>,
}

fn judge(view: &View<'_>) -> Judging {
    let mut paths: BTreeMap<PathId, Calls> = BTreeMap::new();
    for call in &view.joined {
        if let Some(bytes) = call.bytes {
            paths.entry(call.path).or_default().add(call, bytes);
        }
    }
    paths.retain(|_, calls| calls.points.len() as u64 >= MIN_CALLS);
    if paths.is_empty() {
        return Err(Verdict::unknown("no host reported the bytes of 50 calls with both sides"));
    }
    let mut found: Option<Found> = None;
    for (path, calls) in paths.iter().filter(|(_, calls)| calls.large() >= LARGE_BYTES) {
        let Some(reason) = by_line(calls).or_else(|| by_rate(calls)) else { continue };
        let this = describe(view, *path, calls, reason);
        if found.as_ref().is_none_or(|best| best.saves.value < this.saves.value) {
            found = Some(this);
        }
    }
    Ok(found.map_or(Verdict::Absent, |found| Verdict::Found(Box::new(found))))
}

/// Calls with more bytes take longer.
fn by_line(calls: &Calls) -> Option<Reason> {
    let (slope, _, correlation) = line(&calls.points)?;
    let share = (slope * calls.bytes / calls.time.max(1.0)).clamp(0.0, 1.0);
    let holds = share >= MIN_SHARE && correlation >= MIN_CORRELATION;
    holds.then(|| Reason {
        gain: Estimate { value: share / 2.0, low: share / 4.0, high: share / 2.0 * 1.2 },
        model: LINEAR,
        what: format!(
            "bytes of messages explain {:.0} % of the time of the callpath",
            100.0 * share
        ),
        evidence: vec![
            Evidence::new("time for each MiB", slope * 1_048_576.0, "ns"),
            Evidence::new("correlation of bytes and time", correlation, ""),
        ],
    })
}

/// All calls wait while bytes move, the small ones behind the large ones: they share a connection, a thread or a network.
fn by_rate(calls: &Calls) -> Option<Reason> {
    let (share, rate) = ((calls.outside / calls.time.max(1.0)).min(1.0), calls.rate());
    (share >= MIN_SHARE && rate >= MIN_RATE).then(|| Reason {
        gain: Estimate { value: share / 4.0, low: 0.0, high: share / 2.0 },
        model: SHARED,
        what: format!(
            "{:.0} % of the time of the callpath lies outside of its targets, while its messages move {:.0} MB a second",
            100.0 * share,
            rate / 1e6
        ),
        evidence: vec![
            Evidence::new("share of the end-to-end time outside of targets", share, "share"),
            Evidence::new("bytes a second", rate, "bytes"),
        ],
    })
}

fn describe(view: &View<'_>, path: PathId, calls: &Calls, reason: Reason) -> Found {
    let sums = view.collector.path(path);
    let of_run = (sums.map_or(0.0, total_ns) / view.root_ns().max(1.0)).min(1.0);
    let Reason { gain, model, what, .. } = reason;
    let mut evidence = vec![
        Evidence::new("mean bytes of a call", calls.mean(), "bytes"),
        Evidence::new("90th percentile of the bytes", calls.large(), "bytes"),
    ];
    evidence.extend(reason.evidence);
    Found {
        what,
        callpath: view.names(path),
        processes: sums.map_or(Vec::new(), |sums| {
            sums.origin.processes.iter().map(|p| view.label(p.process)).collect()
        }),
        evidence,
        fixes: vec![Fix {
            key: "message_bytes".to_owned(),
            now: Some(format!("{:.0}", calls.mean())),
            value: format!("{:.0}", calls.mean() / 2.0),
            gain: Some(gain),
            model,
        }],
        saves: gain.map(|gain| gain * of_run),
    }
}
