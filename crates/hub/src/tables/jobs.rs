//! `jobs`: the jobs of the site, running and finished, with a column for each resource that they used.

use std::sync::Arc;

use skopos_access::Caller;
use skopos_model::job::JobState;
use skopos_model::task::{RESOURCES, Resource};
use skopos_model::{Timestamp, Unit};
use skopos_query::arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
use skopos_store::jobs::{Cursor, Filter, JobRow, PageRequest, Visibility};

use super::noted::{note, note_ids, note_refused};
use crate::jobs::{Jobs, JobsPlace, Question, Reading};

/// The table `jobs`.
#[derive(Debug)]
pub(super) struct JobsTable {
    place: Arc<JobsPlace>,
    columns: Vec<Column>,
}

/// The value of a column in a row.
enum Of {
    Text(fn(&JobRow) -> Option<String>),
    Integer(fn(&JobRow) -> Option<i64>),
    Time(fn(&JobRow) -> Option<Timestamp>),
}

/// Columns before those of resources.
const COLUMNS: [(&str, Of, &str); 16] = [
    ("job", Of::Text(|row| Some(row.id.job().to_owned())), "Id that the batch system gave the job"),
    (
        "generation",
        Of::Integer(|row| Some(row.id.generation().into())),
        "Number of the job's run, from 0 on",
    ),
    ("site", Of::Text(|row| Some(row.site.clone())), "Site that has the job"),
    ("user", Of::Text(|row| row.user.clone()), "User that owns the job"),
    ("project", Of::Text(|row| row.project.clone()), "Project that the job is charged to"),
    ("name", Of::Text(|row| known(&row.name)), "Name that the user gave the job"),
    ("application", Of::Text(|row| known(&row.application)), "Application"),
    ("queue", Of::Text(|row| known(&row.queue)), "Partition or queue"),
    (
        "state",
        Of::Text(|row| Some(row.state.name().to_owned())),
        "`running`, `completed`, `failed`, `cancelled`, `timeout`, `out_of_memory`, `node_fail`, `preempted` or `unknown`",
    ),
    ("exit", Of::Text(exit), "`normal`, `signal`, `limit`, `running` or `unknown`"),
    ("started_at", Of::Time(|row| row.started), "Time at which the job began"),
    ("ended_at", Of::Time(|row| row.ended), "Time at which the job ended"),
    ("nodes", Of::Integer(|row| integer(row.nodes)), "Number of nodes"),
    ("samples", Of::Integer(|row| integer(row.samples)), "Number of measurements"),
    (
        "lost",
        Of::Integer(|row| integer(row.lost)),
        "Number of records that its producers had to drop",
    ),
    ("requested_bytes", Of::Integer(requested_bytes), "Memory that the job requested, in bytes"),
];

fn known(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn exit(row: &JobRow) -> Option<String> {
    let exit = serde_json::to_value(row.exit_type?).ok()?;
    exit.as_str().map(str::to_owned)
}

fn integer(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}

fn requested_bytes(row: &JobRow) -> Option<i64> {
    row.requested.get("resident_bytes_max").map(|bytes| *bytes as i64)
}

impl JobsTable {
    /// Returns the table of the jobs in a place.
    pub(super) fn new(place: Arc<JobsPlace>) -> Self {
        let column = |(name, of, help): &(&'static str, Of, &'static str)| match of {
            Of::Text(_) => Column::text(*name, *help),
            Of::Integer(_) => Column::integer(*name, *help),
            Of::Time(_) => Column::time(*name, *help),
        };
        let mut columns: Vec<Column> = COLUMNS.iter().map(column).collect();
        columns.extend(RESOURCES.iter().map(|resource| {
            let unit = Unit::new(resource.unit).unwrap_or(Unit::NONE);
            Column::number(resource.name, unit, resource.help)
        }));
        Self { place, columns }
    }
}

impl Table for JobsTable {
    fn name(&self) -> &str {
        "jobs"
    }

    fn help(&self) -> &str {
        "Jobs of the site, running and finished"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let Some(jobs) = self.place.get()? else { return Ok(Rows::each([])) };
        let mut reading = jobs.reading(scan.caller(), Question::Search);
        note_ids(&mut reading, scan);
        let (scan, filter) = (scan.clone(), filter_of(scan));
        Ok(Rows::each(Pages { jobs, scan, filter, after: None, is_at_end: false, reading }))
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

/// Returns the conditions that the catalogue applies. The visibility is set by [`Jobs::search`].
pub(super) fn filter_of(scan: &Scan) -> Filter {
    let only = |column: &str| match scan.texts(column).as_deref() {
        Some([text]) => Some((*text).to_owned()),
        _ => None,
    };
    let states = scan.texts("state").unwrap_or_default();
    let states = states.into_iter().map(JobState::of_name).collect::<Option<Vec<_>>>();
    Filter {
        site: only("site"),
        job: only("job"),
        user: only("user"),
        project: only("project"),
        application: only("application"),
        queue: only("queue"),
        states: states.unwrap_or_default(),
        ..Filter::new(Visibility::Nothing)
    }
}

/// The jobs, read page by page.
struct Pages {
    jobs: Arc<Jobs>,
    scan: Scan,
    filter: Filter,
    after: Option<Cursor>,
    is_at_end: bool,
    reading: Reading,
}

impl Iterator for Pages {
    type Item = Result<RecordBatch, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_at_end {
            return None;
        }
        let caller: &Caller = self.scan.caller();
        let request = PageRequest { after: self.after, ..PageRequest::default() };
        let page = match self.jobs.search(caller, self.filter.clone(), &request) {
            Ok(page) => page,
            Err(e) => {
                self.is_at_end = true;
                self.reading.fail(&e.to_string());
                return Some(Err(e.into()));
            }
        };
        let is_first = self.after.is_none();
        self.after = page.next;
        self.is_at_end = page.next.is_none();
        self.reading.jobs(page.items.len() as u64);
        if page.items.is_empty() {
            if is_first && self.filter.job.is_some() {
                note_refused(&mut self.reading);
            }
            return None;
        }
        let batch = self.scan.select(&arrays(&page.items));
        note(&mut self.reading, &batch);
        Some(batch)
    }
}

/// Returns all columns of some jobs.
fn arrays(rows: &[JobRow]) -> Vec<ArrayRef> {
    let used = |resource: &Resource| {
        let values = rows.iter().map(|row| row.used.get(resource.name).copied());
        Arc::new(values.collect::<Float64Array>()) as ArrayRef
    };
    let array = |of: &Of| -> ArrayRef {
        match of {
            Of::Text(text) => Arc::new(rows.iter().map(text).collect::<StringArray>()),
            Of::Integer(number) => Arc::new(rows.iter().map(number).collect::<Int64Array>()),
            Of::Time(time) => {
                let times = rows.iter().map(|row| time(row).map(Timestamp::as_nanos));
                Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone("UTC"))
            }
        }
    };
    let first = COLUMNS.iter().map(|(_, of, _)| array(of));
    first.chain(RESOURCES.iter().map(used)).collect()
}
