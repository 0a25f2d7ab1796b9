//! Metadata that overflows the eager buffer: the input of a call is large, fetched separately and long to deserialise.

use super::rule::Rule;
use super::verdict::{Evidence, Fix, Found, Judging, Verdict};
use super::view::{View, total_ns};
use crate::analysis::blocks::Estimate;
use crate::interval::Interval;

/// The share of the target's time for deserialisation and the extra transfer from which it matters: the paper's case had
/// 27 % for the former alone.
const MIN_SHARE: f64 = 0.15;

/// The factor for the buffer.
const BUFFER_FACTOR: f64 = 4.0;

const TRANSFER: &str = "the extra transfer goes away if the input fits; a buffer of four times the size is a guess, because \
    hosts do not report the size of inputs";
const BULK: &str = "at most all of deserialisation and extra transfer; data that is sent as bulk is not parsed as metadata";

pub(super) static RULE: Rule = Rule {
    name: "eager_overflow",
    condition: "inputs overflow the eager buffer, and `input_deserialization` and `target_internal_rdma_transfer` have 15 % of the time at the target of a callpath with 50 calls",
    inputs: "`input_deserialization` and `target_internal_rdma_transfer` of targets, or the variable `eager_overflows` of origins",
    advice: "send the payload as bulk data instead of metadata, make batches smaller, or enlarge the eager buffer (`eager_buffer_bytes`)",
    judge,
};

fn judge(view: &View<'_>) -> Judging {
    let paths = view.judged_paths()?;
    let mut found: Option<(f64, Found)> = None;
    let mut is_known = false;
    for (path, sums) in paths {
        let Some(parsing) = sums.interval_ns(Interval::InputDeserialization) else { continue };
        is_known = true;
        let transfer = sums.interval_ns(Interval::TargetInternalRdmaTransfer).unwrap_or(0.0);
        let origins = sums.origin.processes.iter();
        let overflows = origins.filter_map(|p| view.variable(p.process, "eager_overflows"));
        let overflows = overflows.map(|values| values.quantile(1.0)).sum::<u64>();
        let at_target = (sums.calls_of_target() * sums.target.durations.sum() as f64).max(1.0);
        let share = (parsing + transfer) / at_target;
        if transfer <= 0.0 && overflows == 0 || share < MIN_SHARE {
            continue;
        }
        let total = total_ns(sums).max(1.0);
        let buffer = sums
            .origin
            .processes
            .iter()
            .chain(&sums.target.processes)
            .find_map(|p| view.number(p.process, "eager_buffer_bytes"));
        let bulk = (parsing + transfer) / total;
        let fixes = fixes(buffer, bulk.min(1.0), (transfer / total).min(1.0));
        let saves = fixes.first().and_then(|fix| fix.gain).unwrap_or_default();
        let of_run = (total / view.root_ns().max(1.0)).min(1.0);
        let this = Found {
            what: format!(
                "targets spend {:.0} % of their time on reading inputs that overflow the eager buffer",
                100.0 * share
            ),
            callpath: view.names(path),
            processes: sums.target.processes.iter().map(|p| view.label(p.process)).collect(),
            evidence: vec![
                Evidence::new(
                    "deserialisation, share of the time at targets",
                    parsing / at_target,
                    "share",
                ),
                Evidence::new(
                    "extra transfer, share of the time at targets",
                    transfer / at_target,
                    "share",
                ),
                Evidence::new("inputs that overflowed", overflows as f64, ""),
            ],
            fixes,
            saves: saves.map(|gain| gain * of_run),
        };
        if found.as_ref().is_none_or(|(best, _)| *best < parsing + transfer) {
            found = Some((parsing + transfer, this));
        }
    }
    match found {
        Some((_, found)) => Ok(Verdict::Found(Box::new(found))),
        None if is_known => Ok(Verdict::Absent),
        None => Err(Verdict::unknown(view.unseen(Interval::InputDeserialization))),
    }
}

fn fixes(buffer: Option<f64>, bulk: f64, transfer: f64) -> Vec<Fix> {
    let mut fixes = vec![Fix {
        key: "bulk".to_owned(),
        now: None,
        value: "send the payload as bulk data".to_owned(),
        gain: Some(Estimate { value: bulk * 0.75, low: bulk * 0.5, high: bulk }),
        model: BULK,
    }];
    if let Some(buffer) = buffer {
        fixes.push(Fix {
            key: "eager_buffer_bytes".to_owned(),
            now: Some(format!("{buffer}")),
            value: format!("{}", buffer * BUFFER_FACTOR),
            gain: Some(Estimate { value: transfer, low: 0.0, high: transfer }),
            model: TRANSFER,
        });
    }
    fixes
}
