//! `callpaths`: the profile of the traces of this machine, one row for each callpath.

use std::path::PathBuf;
use std::sync::Arc;

use skopos_model::Unit;
use skopos_query::arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
use skopos_rpc::Interval;
use skopos_rpc::analysis::profile::{IntervalTime, PathProfile, SeenBy, Unaccounted, profile};
use skopos_rpc::analysis::trace::Trace;

use super::traces::folder;

/// Names and descriptions of the columns of times of a call.
const TIMES: [(&str, &str); 6] = [
    ("total_seconds", "Sum of the end-to-end times of all calls"),
    ("mean_seconds", "Mean end-to-end time of a call"),
    ("p50_seconds", "Median end-to-end time, within 0.4 %"),
    ("p99_seconds", "99th percentile of the end-to-end time, within 0.4 %"),
    ("max_seconds", "Greatest end-to-end time"),
    (
        "unaccounted_seconds",
        "Sum of the time for which no interval accounts; NULL if one side is not known",
    ),
];

/// The table `callpaths`.
#[derive(Debug)]
pub(super) struct Callpaths {
    traces: Option<PathBuf>,
    columns: Vec<Column>,
}

impl Callpaths {
    /// Returns the table of the traces in a folder, which may not exist.
    pub(super) fn new(traces: Option<PathBuf>) -> Self {
        let seconds = Unit::new("seconds").unwrap_or(Unit::NONE);
        let ratio = Unit::new("ratio").unwrap_or(Unit::NONE);
        let mut columns = vec![
            Column::text("callpath", "Names from the root to the call, joined by ` → `"),
            Column::text("name", "Name of the RPC"),
            Column::integer("depth", "Number of names in the callpath"),
            Column::text("seen_by", "`origin`, `target` or `local`: the side that gives the times"),
            Column::integer("calls", "Number of calls"),
            Column::integer("errors", "Number of calls that did not end well"),
            Column::number("share", ratio, "Share of the end-to-end time of all root callpaths"),
        ];
        columns.extend(TIMES.map(|(name, help)| Column::number(name, seconds, help)));
        for interval in Interval::ALL {
            let help =
                format!("Mean of the interval `{}`; NULL if it is not reported", interval.name());
            columns.push(Column::number(format!("{}_seconds", interval.name()), seconds, help));
        }
        Self { traces, columns }
    }
}

impl Table for Callpaths {
    fn name(&self) -> &str {
        "callpaths"
    }

    fn help(&self) -> &str {
        "Callpaths of the RPC services of this machine, with their times and intervals"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let Some(folder) = folder(scan, self.traces.as_deref())? else { return Ok(Rows::each([])) };
        let trace = match Trace::open(&folder) {
            Ok(trace) => trace,
            // No file is whole yet.
            Err(skopos_rpc::Error::Input { .. }) => return Ok(Rows::each([])),
            Err(e) => return Err(e.into()),
        };
        Ok(Rows::of(scan.select(&arrays(&profile(&trace)?.paths))?))
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

fn arrays(paths: &[PathProfile]) -> Vec<ArrayRef> {
    let texts = |text: &dyn Fn(&PathProfile) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(paths.iter().map(text)))
    };
    let integers = |number: &dyn Fn(&PathProfile) -> u64| -> ArrayRef {
        let numbers = paths.iter().map(|path| i64::try_from(number(path)).unwrap_or(i64::MAX));
        Arc::new(Int64Array::from_iter_values(numbers))
    };
    let numbers = |number: &dyn Fn(&PathProfile) -> Option<f64>| -> ArrayRef {
        Arc::new(paths.iter().map(number).collect::<Float64Array>())
    };
    let seconds = |ns: u64| Some(ns as f64 / 1e9);
    let mut all = vec![
        texts(&|path| path.names.join(" → ")),
        texts(&|path| path.names.last().cloned().unwrap_or_default()),
        integers(&|path| path.names.len() as u64),
        texts(&|path| side(path.seen_by).to_owned()),
        integers(&|path| path.calls),
        integers(&|path| path.errors),
        numbers(&|path| Some(path.share)),
        numbers(&|path| Some(path.end_to_end.sum() as f64 / 1e9)),
        numbers(&|path| Some(path.end_to_end.mean() / 1e9)),
        numbers(&|path| seconds(path.end_to_end.quantile(0.5))),
        numbers(&|path| seconds(path.end_to_end.quantile(0.99))),
        numbers(&|path| seconds(path.end_to_end.quantile(1.0))),
        numbers(&|path| match &path.unaccounted {
            Unaccounted::Measured { total_ns, .. } => Some(total_ns / 1e9),
            Unaccounted::Unknown { .. } => None,
        }),
    ];
    for interval in Interval::ALL {
        all.push(numbers(&|path| {
            let found = path.intervals.iter().find(|known| known.name == interval.name())?;
            match &found.time {
                IntervalTime::Measured { durations, .. } => Some(durations.mean() / 1e9),
                IntervalTime::Unknown { .. } => None,
            }
        }));
    }
    all
}

fn side(seen_by: SeenBy) -> &'static str {
    match seen_by {
        SeenBy::Origin => "origin",
        SeenBy::Target => "target",
        SeenBy::Local => "local",
    }
}
