//! `job_spans`: calls of RPC services that ran in jobs, from the traces that were kept with the jobs.

use std::sync::Arc;

use skopos_model::job::{JobId, Kind};
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
use skopos_rpc::parts::join;
use skopos_store::jobs::StoredRecord;

use super::job_samples::runs;
use super::noted::{Noted, note_ids, note_refused};
use super::spans::{batches, columns};
use crate::jobs::{Jobs, JobsPlace, Question};

/// The most jobs of one statement: the traces of a job are held in memory, 32 MiB each.
const MAX_JOBS: usize = 8;

/// The most bytes of stored documents that are joined to the traces of one job: `skopos run` stores 32 MiB of files, which
/// are 43 MiB as base64. Another producer may have stored more.
const MAX_JOB_BYTES: usize = 64 << 20;

/// The table `job_spans`.
#[derive(Debug)]
pub(super) struct JobSpans {
    place: Arc<JobsPlace>,
    columns: Vec<Column>,
}

impl JobSpans {
    /// Returns the table of the jobs in a place.
    pub(super) fn new(place: Arc<JobsPlace>) -> Self {
        let mut all = vec![
            Column::text("job", "Id that the batch system gave the job"),
            Column::integer("generation", "Number of the job's run, from 0 on"),
            Column::integer(
                "missing_parts",
                "Parts and files of the job's traces that are damaged, missing or beyond 64 MiB; 0 if it is whole",
            ),
        ];
        all.extend(columns());
        Self { place, columns: all }
    }
}

impl Table for JobSpans {
    fn name(&self) -> &str {
        "job_spans"
    }

    fn help(&self) -> &str {
        "Calls of RPC services in jobs, a row for each side of a call, for statements that name the jobs"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let wanted = scan
            .texts("job")
            .ok_or("a statement about `job_spans` must name its jobs: `WHERE job = '4711'`")?;
        if wanted.len() > MAX_JOBS {
            return Err(format!("a statement can read the calls of at most {MAX_JOBS} jobs").into());
        }
        let Some(jobs) = self.place.get()? else { return Ok(Rows::each([])) };
        let mut reading = jobs.reading(scan.caller(), Question::Records);
        note_ids(&mut reading, scan);
        let mut ids = Vec::new();
        for job in wanted {
            let found = runs(&jobs, scan, job)?;
            if found.is_empty() {
                note_refused(&mut reading);
            }
            ids.extend(found);
        }
        reading.jobs(ids.len() as u64);
        let scan = scan.clone();
        let batches = ids.into_iter().flat_map(move |id| {
            let (rows, failure) = match of_job(&jobs, &scan, id) {
                Ok(rows) => (Some(rows), None),
                Err(e) => (None, Some(Err(e))),
            };
            failure.into_iter().chain(rows.into_iter().flatten())
        });
        Ok(Rows::each(Noted { batches, reading }))
    }

    fn exact(&self) -> &[&str] {
        &["job", "request", "side", "callpath", "started_at"]
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

/// Returns the calls of one run of a job.
fn of_job(jobs: &Jobs, scan: &Scan, id: JobId) -> Result<super::spans::Batches, BoxError> {
    let (mut documents, mut bytes, mut left_out) = (Vec::new(), 0, 0);
    for piece in jobs.pieces(scan.caller(), &id)? {
        let records = jobs.read(&id, piece)?;
        let spans = records.iter().filter_map(StoredRecord::get).filter(|r| r.kind == Kind::Spans);
        for record in spans {
            bytes += record.content.len();
            match bytes <= MAX_JOB_BYTES {
                true => documents.push(record.content.to_vec()),
                false => left_out += 1,
            }
        }
    }
    // A document of another producer has another form, and is left to its readers.
    let (files, damaged) = join(documents.iter().map(Vec::as_slice));
    let missing = i64::try_from(damaged.saturating_add(left_out)).unwrap_or(i64::MAX);
    batches(files, scan.clone(), Some((id, missing)))
}
