//! `job_files`: the files of the tasks of jobs, a row for each file.

use std::sync::Arc;

use skopos_model::job::{JobId, Kind};
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
use skopos_store::jobs::StoredRecord;

use super::job_samples::{MAX_JOBS, runs};
use super::noted::{Noted, note_ids, note_refused};
use super::task_files::{file_columns, of_job};
use crate::jobs::{Jobs, JobsPlace, Piece, Question};

/// The table `job_files`.
#[derive(Debug)]
pub(super) struct JobFiles {
    place: Arc<JobsPlace>,
    columns: Vec<Column>,
}

impl JobFiles {
    /// Returns the table of the jobs in a place.
    pub(super) fn new(place: Arc<JobsPlace>) -> Self {
        let mut columns = vec![
            Column::text("job", "Id that the batch system gave the job; a statement must name it"),
            Column::integer("generation", "Number of the job's run, from 0 on"),
            Column::text("node", "Node that the task ran on"),
        ];
        columns.extend(file_columns());
        Self { place, columns }
    }
}

impl Table for JobFiles {
    fn name(&self) -> &str {
        "job_files"
    }

    fn help(&self) -> &str {
        "Files that the tasks of jobs used, for statements that name the jobs"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let wanted = scan
            .texts("job")
            .ok_or("a statement about `job_files` must name its jobs: `WHERE job = '4711'`")?;
        if wanted.len() > MAX_JOBS {
            return Err(format!("a statement can read the files of at most {MAX_JOBS} jobs").into());
        }
        let Some(jobs) = self.place.get()? else { return Ok(Rows::each([])) };
        let mut reading = jobs.reading(scan.caller(), Question::Records);
        note_ids(&mut reading, scan);
        let mut ids = Vec::new();
        for job in wanted {
            let runs = runs(&jobs, scan, job)?;
            if runs.is_empty() {
                note_refused(&mut reading);
            }
            ids.extend(runs);
        }
        reading.jobs(ids.len() as u64);
        let scan = scan.clone();
        let batches = ids.into_iter().flat_map(move |id| {
            let (jobs, scan) = (jobs.clone(), scan.clone());
            let (pieces, failure) = match jobs.pieces(scan.caller(), &id) {
                Ok(pieces) => (pieces, None),
                Err(e) => (Vec::new(), Some(Err(e))),
            };
            let batch = move |piece: Piece| {
                of_piece(&jobs, &id, piece)
                    .map(|tasks| of_job(&id, &tasks))
                    .and_then(|all| scan.select(&all))
            };
            failure.into_iter().chain(pieces.into_iter().map(batch))
        });
        Ok(Rows::each(Noted { batches, reading }))
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

/// Returns the files of tasks in a piece of a job, with their nodes.
fn of_piece(
    jobs: &Jobs,
    id: &JobId,
    piece: Piece,
) -> Result<Vec<(String, skopos_model::task::TaskFiles)>, BoxError> {
    let records = jobs.read(id, piece)?;
    let of_files = records.iter().filter_map(StoredRecord::get).filter(|r| r.kind == Kind::Files);
    // A document that is none was refused when it arrived.
    Ok(of_files.filter_map(|r| Some((r.node.to_owned(), r.files().ok()?))).collect())
}
