//! The usage of a task over time: a row for each sample.

use std::time::Duration;

use crate::mechanism::Sample;

/// The names of the values of a row.
pub const COLUMNS: [&str; 12] = [
    "seconds",
    "cpu_seconds",
    "resident_bytes",
    "pss_bytes",
    "virtual_bytes",
    "swap_bytes",
    "processes",
    "threads",
    "read_bytes",
    "written_bytes",
    "files",
    "footprint_bytes",
];

/// One row: seconds since the start, and the values known at that time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    values: [Option<f64>; COLUMNS.len()],
}

impl Row {
    pub(crate) fn new(elapsed: Duration, now: &Sample) -> Self {
        let count = |value: Option<u64>| value.map(|v| v as f64);
        Self {
            values: [
                Some(elapsed.as_secs_f64()),
                now.cpu_seconds,
                count(now.resident_bytes),
                count(now.pss_bytes),
                count(now.virtual_bytes),
                count(now.swap_bytes),
                count(now.processes),
                count(now.threads),
                count(now.read_bytes),
                count(now.written_bytes),
                count(now.files),
                count(now.footprint_bytes),
            ],
        }
    }

    /// The values in the order of [`COLUMNS`]; `None` for unknown values.
    pub fn values(&self) -> &[Option<f64>] {
        &self.values
    }

    /// Formats the row as CSV without a line end; unknown values are empty.
    pub fn csv(&self) -> String {
        let texts = self.values.iter().map(|v| v.map(|v| v.to_string()).unwrap_or_default());
        texts.collect::<Vec<_>>().join(",")
    }
}
