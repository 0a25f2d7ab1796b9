//! `jobs`: the jobs of the site, running and finished, with a column for each resource that they used.

use std::sync::Arc;

use skopos_access::Caller;
use skopos_model::job::JobState;
use skopos_model::task::{ExitType, RESOURCES, Resource};
use skopos_model::{Timestamp, Unit};
use skopos_query::arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use skopos_query::{BoxError, Column, Fingerprint, Literal, Rows, Scan, Table};
use skopos_store::jobs::catalogue::{
    Amount, MAX_CONDITIONS, MAX_PAGE, ResourceRange, Stored, words_of,
};
use skopos_store::jobs::{Cursor, Filter, JobEntry, JobRow, PageRequest, Visibility};

use super::noted::{note, note_ids, note_refused};
use crate::jobs::{Jobs, JobsPlace, Question, Reading};

/// Jobs of the first pages, of which there are as many: a statement with a small `LIMIT` reads few jobs, and one that reads all of
/// them asks the catalogue rarely. The engine reads some pages ahead.
const FIRST_PAGE: usize = 128;
const FIRST_PAGES: usize = 8;

/// The resource of the column `requested_bytes`.
const REQUESTED: &str = "resident_bytes_max";

/// The column by which rows are sorted.
const SORTED_BY: &str = "started_at";

/// The table `jobs`.
#[derive(Debug)]
pub(super) struct JobsTable {
    place: Arc<JobsPlace>,
    columns: Vec<Column>,
    /// Names of the columns whose conditions [`fits`] applies.
    exact: Vec<&'static str>,
}

/// The value of a column in a row.
enum Of {
    Text(fn(&JobRow) -> Option<String>),
    Integer(fn(&JobRow) -> Option<i64>),
    Time(fn(&JobRow) -> Option<Timestamp>),
}

/// The name of a column, its value, and its description.
type OfEntry = (&'static str, fn(&JobEntry) -> String, &'static str);

/// Columns after those of resources. The catalogue has them in an index and in the documents of entries, which are read only
/// for statements that name such a column.
const OF_ENTRIES: [OfEntry; 3] = [
    (
        "hosts",
        |entry| list(entry.nodes.iter().map(String::as_str)),
        "Names of the nodes: a JSON list, for `has(hosts, 'n01')`",
    ),
    (
        "tags",
        |entry| list(entry.all_tags().into_iter()),
        "Tags: a JSON list, for `has(tags, 'slow')`",
    ),
    (
        "text",
        |entry| words_of(entry).into_iter().collect::<Vec<_>>().join(" "),
        "Words of the name, command, tags, details and findings, for `has_words(text, 'grom* slow')`",
    ),
];

fn list<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    serde_json::to_string(&texts.collect::<Vec<_>>()).unwrap_or_default()
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
        "`running`, `completed`, `failed`, `cancelled`, `timeout`, `out_of_memory`, `node_fail`, `preempted`, `orphan` (its start has not arrived) or `unknown`",
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
    row.requested.get(REQUESTED).map(|bytes| *bytes as i64)
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
        columns.extend(OF_ENTRIES.iter().map(|(name, _, help)| Column::text(*name, *help)));
        let is_exact = |(_, of, _): &&(&str, Of, &str)| !matches!(of, Of::Integer(_));
        let exact = COLUMNS.iter().filter(is_exact).map(|(name, ..)| *name).collect();
        Self { place, columns, exact }
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
        let first_of_entries = COLUMNS.len() + RESOURCES.len();
        let needs_entries = scan.columns().iter().any(|at| *at >= first_of_entries);
        let request = PageRequest { most: FIRST_PAGE, ..PageRequest::default() };
        Ok(Rows::each(Pages {
            jobs,
            scan,
            filter,
            request,
            pages: 0,
            needs_entries,
            is_at_end: false,
            reading,
        }))
    }

    fn latest_first(&self) -> Option<&str> {
        Some(SORTED_BY)
    }

    fn exact(&self) -> &[&str] {
        &self.exact
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
    let times = |column: &str| scan.times(column).map(|range| (*range.start(), *range.end()));
    let generation = match scan.equals("generation") {
        Some([Literal::Integer(number)]) => u32::try_from(*number).ok(),
        _ => None,
    };
    let exits = scan.texts("exit").unwrap_or_default();
    let exits = exits.into_iter().map(exit_of_name).collect::<Option<Vec<_>>>();
    let tags = scan.has("tags").into_iter().take(MAX_CONDITIONS).map(str::to_owned);
    let text = scan.has_words("text").into_iter().next().unwrap_or_default();
    let states = scan.texts("state").unwrap_or_default();
    let states = states.into_iter().map(JobState::of_name).collect::<Option<Vec<_>>>();
    Filter {
        site: only("site"),
        job: only("job"),
        user: only("user"),
        project: only("project"),
        application: only("application"),
        queue: only("queue"),
        generation,
        host: scan.has("hosts").first().map(|host| (*host).to_owned()),
        started: times("started_at"),
        ended: times("ended_at"),
        states: states.filter(|all| all.len() <= MAX_CONDITIONS).unwrap_or_default(),
        exit_types: exits.filter(|all| all.len() <= MAX_CONDITIONS).unwrap_or_default(),
        tags: tags.collect(),
        resources: resources(scan),
        text: text.to_owned(),
        ..Filter::new(Visibility::Nothing)
    }
}

fn exit_of_name(name: &str) -> Option<ExitType> {
    serde_json::from_value(name.into()).ok()
}

/// Returns the ranges that the catalogue applies.
fn resources(scan: &Scan) -> Vec<ResourceRange> {
    let range = |resource: &'static Resource| {
        let range = scan.numbers(resource.name)?;
        Some(ResourceRange {
            amount: Amount::Used,
            resource,
            from: *range.start(),
            to: *range.end(),
        })
    };
    let mut ranges: Vec<ResourceRange> = RESOURCES.iter().filter_map(range).collect();
    let memory = RESOURCES.iter().find(|resource| resource.name == REQUESTED);
    if let (Some(range), Some(resource)) = (scan.numbers("requested_bytes"), memory) {
        // The column has whole bytes, rounded down.
        let (from, to) = (*range.start(), *range.end() + 1.0);
        ranges.push(ResourceRange { amount: Amount::Requested, resource, from, to });
    }
    ranges.truncate(MAX_CONDITIONS);
    ranges
}

/// The jobs, read page by page.
struct Pages {
    jobs: Arc<Jobs>,
    scan: Scan,
    filter: Filter,
    request: PageRequest,
    /// Number of pages that were read.
    pages: usize,
    /// True if the statement reads columns of [`OF_ENTRIES`].
    needs_entries: bool,
    is_at_end: bool,
    reading: Reading,
}

impl Iterator for Pages {
    type Item = Result<RecordBatch, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_at_end {
            return None;
        }
        let is_first = self.request.after.is_none();
        let (count, next, arrays) = match self.page() {
            Ok(page) => page,
            Err(e) => {
                self.is_at_end = true;
                self.reading.fail(&e.to_string());
                return Some(Err(e));
            }
        };
        self.pages += 1;
        let most = if self.pages < FIRST_PAGES { FIRST_PAGE } else { MAX_PAGE };
        self.request = PageRequest { after: next, most, ..self.request };
        self.is_at_end = next.is_none();
        self.reading.jobs(count as u64);
        if count == 0 {
            if is_first && self.filter.job.is_some() {
                note_refused(&mut self.reading);
            }
            return None;
        }
        let batch = self.scan.select(&arrays);
        note(&mut self.reading, &batch);
        Some(batch)
    }
}

impl Pages {
    /// Reads the next page: the number of its jobs, the place after it, and all columns of the jobs that fit.
    fn page(&self) -> Result<(usize, Option<Cursor>, Vec<ArrayRef>), BoxError> {
        let caller: &Caller = self.scan.caller();
        let filter = self.filter.clone();
        if !self.needs_entries {
            let page = self.jobs.search(caller, filter, &self.request)?;
            let (count, mut rows) = (page.items.len(), page.items);
            rows.retain(|row| fits(row, &self.scan));
            let mut columns = arrays(&rows);
            let nothing = StringArray::new_null(rows.len());
            columns.extend(OF_ENTRIES.map(|_| Arc::new(nothing.clone()) as ArrayRef));
            return Ok((count, page.next, columns));
        }
        let page = self.jobs.search_entries(caller, filter, &self.request)?;
        let row = |entry: &JobEntry| -> Result<JobRow, BoxError> {
            let row = Stored::of(entry)?.columns.row();
            row.map_err(|(what, text)| format!("the catalogue has an odd {what}: {text}").into())
        };
        let (mut rows, mut entries) = (Vec::new(), Vec::new());
        for entry in &page.items {
            let row = row(entry)?;
            if fits(&row, &self.scan) {
                rows.push(row);
                entries.push(entry);
            }
        }
        let mut columns = arrays(&rows);
        columns.extend(OF_ENTRIES.map(|(_, text, _)| {
            Arc::new(entries.iter().map(|e| Some(text(e))).collect::<StringArray>()) as ArrayRef
        }));
        Ok((page.items.len(), page.next, columns))
    }
}

/// Returns true if a job fits the conditions on texts and times, of which the catalogue applies some.
fn fits(row: &JobRow, scan: &Scan) -> bool {
    COLUMNS.iter().all(|(name, of, _)| match of {
        Of::Text(text) => scan
            .texts(name)
            .is_none_or(|texts| text(row).is_some_and(|cell| texts.contains(&cell.as_str()))),
        Of::Time(time) => {
            scan.times(name).is_none_or(|times| time(row).is_some_and(|time| times.contains(&time)))
        }
        Of::Integer(_) => true,
    })
}

/// Returns the columns of some jobs that the catalogue has in rows.
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
