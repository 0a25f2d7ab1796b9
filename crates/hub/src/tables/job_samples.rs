//! `job_samples`: the measurements of jobs, a row for each value.

use std::sync::Arc;

use skopos_model::job::{JobId, Kind, NamesInForce};
use skopos_query::arrow::array::{
    ArrayRef, Float64Builder, Int64Builder, StringBuilder, TimestampNanosecondBuilder,
};
use skopos_query::{BoxError, Column, Fingerprint, Literal, Rows, Scan, Table};
use skopos_store::jobs::StoredRecord;

use super::noted::{Noted, note_ids, note_refused};
use crate::jobs::{Jobs, JobsPlace, Piece, Question};

/// The most jobs of one statement. A job has up to millions of rows.
pub(super) const MAX_JOBS: usize = 100;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// The table `job_samples`.
#[derive(Debug)]
pub(super) struct JobSamples {
    place: Arc<JobsPlace>,
    columns: Vec<Column>,
}

impl JobSamples {
    /// Returns the table of the measurements in a place.
    pub(super) fn new(place: Arc<JobsPlace>) -> Self {
        let id = "Id that the batch system gave the job; a statement must name it";
        Self { place, columns: sample_columns(id) }
    }
}

/// Returns the columns of measurements, with a help for the job's id.
pub(super) fn sample_columns(id: &'static str) -> Vec<Column> {
    vec![
        Column::text("job", id),
        Column::integer("generation", "Number of the job's run, from 0 on"),
        Column::text("node", "Node that was measured"),
        Column::time("time", "Time of the measurement"),
        Column::text("schema", "Name of the list of metrics"),
        Column::text("metric", "Name of the metric"),
        Column::new(
            "value",
            skopos_query::arrow::datatypes::DataType::Float64,
            "Value in the unit of the metric",
        ),
    ]
}

impl Table for JobSamples {
    fn name(&self) -> &str {
        "job_samples"
    }

    fn help(&self) -> &str {
        "Measurements of jobs, for statements that name the jobs"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let wanted = scan
            .texts("job")
            .ok_or("a statement about `job_samples` must name its jobs: `WHERE job = '4711'`")?;
        if wanted.len() > MAX_JOBS {
            return Err(
                format!("a statement can read the samples of at most {MAX_JOBS} jobs").into()
            );
        }
        let generations: Option<Vec<u32>> =
            scan.equals("generation").map(|all| all.iter().filter_map(generation).collect());
        let Some(jobs) = self.place.get()? else { return Ok(Rows::each([])) };
        let mut reading = jobs.reading(scan.caller(), Question::Records);
        note_ids(&mut reading, scan);
        let mut ids = Vec::new();
        for job in wanted {
            let before = ids.len();
            match &generations {
                Some(all) => {
                    for run in all {
                        ids.extend(jobs.runs(scan.caller(), job, Some(*run))?);
                    }
                }
                None => ids.extend(runs(&jobs, scan, job)?),
            }
            if ids.len() == before {
                note_refused(&mut reading);
            }
        }
        reading.jobs(ids.len() as u64);
        let scan = scan.clone();
        let batches = ids.into_iter().flat_map(move |id| {
            let pieces = jobs.pieces(scan.caller(), &id);
            let (jobs, scan, mut names) = (jobs.clone(), scan.clone(), Names::default());
            let batch = move |piece: Piece| {
                let records = match jobs.read(&id, piece) {
                    Ok(records) => records,
                    Err(e) => return vec![Err(e)],
                };
                let all = batches(&id, &records, &mut names).into_iter();
                all.map(|all| scan.select(&all)).collect()
            };
            let (pieces, failure) = match pieces {
                Ok(pieces) => (pieces, None),
                Err(e) => (Vec::new(), Some(Err(e))),
            };
            failure.into_iter().chain(pieces.into_iter().flat_map(batch))
        });
        Ok(Rows::each(Noted { batches, reading }))
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

/// Returns the runs of a job that the caller may read.
pub(super) fn runs(jobs: &Jobs, scan: &Scan, job: &str) -> Result<Vec<JobId>, BoxError> {
    Ok(jobs.runs(scan.caller(), job, None)?)
}

fn generation(literal: &Literal) -> Option<u32> {
    match literal {
        Literal::Integer(number) => u32::try_from(*number).ok(),
        _ => None,
    }
}

/// The names of the metrics that hold at a place among the records of a job.
pub(super) type Names = NamesInForce<Vec<String>>;

/// Returns all columns of the measurements among some records of a job, in batches. `names` are those that the records
/// before have left in force; a measurement without a list before it has metrics `value_0`, `value_1` and so on.
pub(super) fn batches(
    id: &JobId,
    records: &[StoredRecord],
    names: &mut Names,
) -> Vec<Vec<ArrayRef>> {
    let (mut batches, mut batch) = (Vec::new(), Batch::default());
    for record in records.iter().filter_map(StoredRecord::get) {
        if record.kind == Kind::Metrics
            && let Ok(list) = record.metrics()
        {
            names.set(&list.schema, record.node, list.names);
        }
        let Some((schema, values)) = record.sample() else { continue };
        let names = names.of(schema, record.node).map_or(&[][..], |names| names);
        for (at, value) in values.enumerate() {
            let unnamed = || format!("value_{at}");
            let metric = names.get(at).cloned().unwrap_or_else(unnamed);
            batch.push(id, (record.node, record.time.as_nanos()), (schema, &metric), value);
        }
        if batch.rows >= BATCH_ROWS {
            batches.push(std::mem::take(&mut batch).finish());
        }
    }
    if batch.rows > 0 {
        batches.push(batch.finish());
    }
    batches
}

/// Builders of the columns.
#[derive(Default)]
struct Batch {
    rows: usize,
    jobs: StringBuilder,
    generations: Int64Builder,
    nodes: StringBuilder,
    times: TimestampNanosecondBuilder,
    schemas: StringBuilder,
    metrics: StringBuilder,
    values: Float64Builder,
}

impl Batch {
    fn push(
        &mut self,
        id: &JobId,
        (node, time): (&str, i64),
        (schema, metric): (&str, &str),
        value: f64,
    ) {
        self.rows += 1;
        self.jobs.append_value(id.job());
        self.generations.append_value(id.generation().into());
        self.nodes.append_value(node);
        self.times.append_value(time);
        self.schemas.append_value(schema);
        self.metrics.append_value(metric);
        self.values.append_value(value);
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.jobs.finish()),
            Arc::new(self.generations.finish()),
            Arc::new(self.nodes.finish()),
            Arc::new(self.times.finish().with_timezone("UTC")),
            Arc::new(self.schemas.finish()),
            Arc::new(self.metrics.finish()),
            Arc::new(self.values.finish()),
        ]
    }
}
