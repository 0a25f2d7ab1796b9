//! `job_reads`: the log of reads, who asked about which jobs.

use std::sync::Arc;

use skopos_access::{Action, may};
use skopos_query::arrow::array::{ArrayRef, Int64Array, StringArray, TimestampNanosecondArray};
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};

use crate::jobs::{JobsPlace, ReadEntry};

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// The most entries of one answer: the latest ones. More are in the log, and a site that keeps it for longer reads it daily.
const MAX_ENTRIES: usize = 500_000;

/// The table `job_reads`.
#[derive(Debug)]
pub(super) struct JobReads {
    place: Arc<JobsPlace>,
    columns: Vec<Column>,
}

impl JobReads {
    /// Returns the table of the log in a place.
    pub(super) fn new(place: Arc<JobsPlace>) -> Self {
        let columns = vec![
            Column::time("time", "Time of the question"),
            Column::text("caller", "`owner`, `user`, `node`, `anybody` or `stranger`"),
            Column::text("user", "Name of the user or node"),
            Column::text("role", "Role of the user"),
            Column::text(
                "question",
                "`search`, `metadata`, `records`, `findings`, `places`, `download`, or `lost` for a gap in the log",
            ),
            Column::text("outcome", "`granted`, `refused` or `failed`"),
            Column::integer("jobs", "Number of jobs that were shown; of a gap, of lost entries"),
            Column::text("ids", "The first jobs that were asked for by their ids"),
            Column::integer("records", "Number of rows or records that were sent"),
            Column::integer("bytes", "Their bytes in memory"),
            Column::text("why", "Reason of a refusal or failure"),
        ];
        Self { place, columns }
    }
}

impl Table for JobReads {
    fn name(&self) -> &str {
        "job_reads"
    }

    fn help(&self) -> &str {
        "Log of reads: who asked about which jobs, for the owner of the hub and admins"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        may(scan.caller(), Action::ReadLog)?;
        let Some(jobs) = self.place.get()? else { return Ok(Rows::each([])) };
        let mut entries = std::collections::VecDeque::new();
        jobs.log_of_reads(scan.caller(), &mut |entry| {
            if entries.len() >= MAX_ENTRIES {
                entries.pop_front();
            }
            entries.push_back(entry);
        })?;
        let entries = Vec::from(entries);
        let scan = scan.clone();
        let chunks = entries.len().div_ceil(BATCH_ROWS);
        let batch = move |at: usize| {
            let end = entries.len().min((at + 1) * BATCH_ROWS);
            scan.select(&arrays(&entries[at * BATCH_ROWS..end]))
        };
        Ok(Rows::each((0..chunks).map(batch)))
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

fn arrays(entries: &[ReadEntry]) -> Vec<ArrayRef> {
    let text = |of: fn(&ReadEntry) -> &str| -> ArrayRef {
        let known = |entry| Some(of(entry)).filter(|text| !text.is_empty());
        Arc::new(entries.iter().map(known).collect::<StringArray>())
    };
    let number = |of: fn(&ReadEntry) -> u64| -> ArrayRef {
        Arc::new(entries.iter().map(|e| i64::try_from(of(e)).ok()).collect::<Int64Array>())
    };
    let times: TimestampNanosecondArray = entries.iter().map(|entry| Some(entry.at)).collect();
    let ids = entries.iter().map(|e| Some(e.ids.join(", ")).filter(|ids| !ids.is_empty()));
    vec![
        Arc::new(times.with_timezone("UTC")),
        text(|entry| &entry.caller),
        text(|entry| &entry.user),
        text(|entry| &entry.role),
        text(|entry| &entry.question),
        text(|entry| &entry.outcome),
        number(|entry| entry.jobs),
        Arc::new(ids.collect::<StringArray>()),
        number(|entry| entry.records),
        number(|entry| entry.bytes),
        text(|entry| &entry.why),
    ]
}
