//! Large messages: the time of calls grows with their bytes.

use std::collections::BTreeMap;

use super::numbers::line;
use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{MIN_CALLS, View, total_ns};
use crate::analysis::blocks::Estimate;
use crate::analysis::names::PathId;

/// The size from which a message is large: a network of 10 Gbit/s moves it in 50 us, as long as a short call takes.
const LARGE_BYTES: f64 = 65_536.0;

/// The share of the end-to-end time that bytes explain, from which they matter.
const MIN_SHARE: f64 = 0.3;

/// The least correlation between bytes and time: below it, something else decides.
const MIN_CORRELATION: f64 = 0.5;

const LINEAR: &str =
    "a line through bytes and times of calls; half of the bytes save half of its rise";

pub(super) static RULE: Rule = Rule {
    name: "large_messages",
    condition: "a tenth of the calls of a callpath have 64 KiB or more, and bytes explain 30 % of its end-to-end time with a correlation of 0.5",
    inputs: "the variables `request_bytes` and `response_bytes`, or `bulk_bytes`, of 50 calls with both sides and different sizes",
    advice: "send less: only the fields that are read, pages instead of whole lists, a stream of chunks, compression where the network is the bound",
    judge,
};

fn judge(view: &View<'_>) -> Judging {
    let mut paths: BTreeMap<PathId, Vec<(f64, f64)>> = BTreeMap::new();
    for call in &view.joined {
        if let Some(bytes) = call.bytes {
            let time = call.end.abs_diff(call.start) as f64;
            paths.entry(call.path).or_default().push((bytes as f64, time));
        }
    }
    paths.retain(|_, calls| calls.len() as u64 >= MIN_CALLS);
    if paths.is_empty() {
        return Err(Verdict::unknown("no host reported the bytes of 50 calls with both sides"));
    }
    let mut found: Option<Found> = None;
    for (path, calls) in &mut paths {
        let Some((slope, _, correlation)) = line(calls) else { continue };
        calls.sort_by(|a, b| a.0.total_cmp(&b.0));
        let large = calls[calls.len() * 9 / 10].0;
        let bytes: f64 = calls.iter().map(|call| call.0).sum();
        let time: f64 = calls.iter().map(|call| call.1).sum();
        let share = (slope * bytes / time.max(1.0)).clamp(0.0, 1.0);
        if large < LARGE_BYTES || share < MIN_SHARE || correlation < MIN_CORRELATION {
            continue;
        }
        let sums = view.collector.path(*path);
        let of_run = (sums.map_or(0.0, total_ns) / view.root_ns().max(1.0)).min(1.0);
        let gain = Estimate { value: share / 2.0, low: share / 4.0, high: share / 2.0 * 1.2 };
        let this = Found {
            what: format!(
                "bytes of messages explain {:.0} % of the time of the callpath",
                100.0 * share
            ),
            callpath: view.names(*path),
            processes: sums.map_or(Vec::new(), |sums| {
                sums.origin.processes.iter().map(|p| view.label(p.process)).collect()
            }),
            evidence: vec![
                Evidence::new("mean bytes of a call", bytes / calls.len() as f64, "bytes"),
                Evidence::new("90th percentile of the bytes", large, "bytes"),
                Evidence::new("time for each MiB", slope * 1_048_576.0, "ns"),
                Evidence::new("correlation of bytes and time", correlation, ""),
            ],
            fixes: vec![Fix {
                key: "message_bytes".to_owned(),
                now: Some(format!("{:.0}", bytes / calls.len() as f64)),
                value: format!("{:.0}", bytes / calls.len() as f64 / 2.0),
                gain: Some(gain),
                model: LINEAR,
            }],
            saves: gain.map(|gain| gain * of_run),
        };
        if found.as_ref().is_none_or(|best| best.saves.value < this.saves.value) {
            found = Some(this);
        }
    }
    Ok(found.map_or(Verdict::Absent, Verdict::Found))
}
