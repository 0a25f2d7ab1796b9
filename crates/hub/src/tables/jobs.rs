//! `jobs`: the jobs of the site, running and finished, with a column for each resource that they used.

use std::collections::VecDeque;
use std::sync::Arc;

use skopos_access::Caller;
use skopos_model::job::JobState;
use skopos_model::task::{ExitType, RESOURCES, Resource};
use skopos_model::{Timestamp, Unit};
use skopos_query::arrow::array::{
    ArrayRef, Float64Array, Int64Array, NullArray, RecordBatch, StringArray,
    TimestampNanosecondArray,
};
use skopos_query::{BoxError, Column, Fingerprint, Literal, Rows, Scan, Table};
use skopos_store::jobs::catalogue::{
    Amount, Columns, MAX_CONDITIONS, MAX_PAGE, ResourceRange, words_of,
};
use skopos_store::jobs::{Cursor, Filter, JobEntry, JobRow, PageRequest, Visibility};

use super::noted::{note_ids, note_refused};
use crate::jobs::{Jobs, JobsPlace, Question, Reading};

/// Jobs of the first pages, of which there are as many: a statement with a small `LIMIT` reads few jobs, and one that reads all of
/// them asks the catalogue rarely. The engine reads some pages ahead.
const FIRST_PAGE: usize = 128;
const FIRST_PAGES: usize = 8;

/// The resource of the column `requested_bytes`.
const REQUESTED: &str = "resident_bytes_max";

/// The column by which rows are sorted.
const SORTED_BY: &str = "started_at";

/// The column after those of resources.
const COPY_OF: &str = "copy_of";
const COPY_OF_HELP: &str =
    "Hub that stores the job and is away: the row is from a copy, and may lack the latest records";

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

/// Columns after `copy_of`. The catalogue has them in an index and in the documents of entries, which are read only
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
        columns.push(Column::text(COPY_OF, COPY_OF_HELP));
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
        let own = self.place.get()?;
        let source = |jobs: Arc<Jobs>| {
            let mut reading = jobs.reading(scan.caller(), Question::Search);
            note_ids(&mut reading, scan);
            JobsOf::new(jobs, reading)
        };
        scan.lacks(own.as_deref().and_then(Jobs::unlisted));
        let copies = self.place.shown_copies()?;
        scan.lacks(copies.missing());
        let sources = own.into_iter().chain(copies.jobs).map(source).collect();
        let first_of_entries = COLUMNS.len() + RESOURCES.len() + 1;
        let needs_entries = scan.columns().iter().any(|at| *at >= first_of_entries);
        let (scan, filter) = (scan.clone(), filter_of(scan));
        Ok(Rows::each(Batches { sources, scan, filter, needs_entries, has_begun: false }))
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

/// A job, with the columns that are not in its row.
struct Shown {
    row: JobRow,
    copy_of: Option<String>,
    /// The columns of [`OF_ENTRIES`], if the statement reads one of them.
    texts: [Option<String>; OF_ENTRIES.len()],
}

/// The jobs of this hub or of a copy, read page by page, those that began last first.
struct JobsOf {
    jobs: Arc<Jobs>,
    request: PageRequest,
    /// Number of pages that were read.
    pages: usize,
    is_at_end: bool,
    /// Jobs of the last page.
    waiting: VecDeque<Shown>,
    reading: Reading,
}

impl JobsOf {
    fn new(jobs: Arc<Jobs>, reading: Reading) -> Self {
        let request = PageRequest { most: FIRST_PAGE, ..PageRequest::default() };
        Self { jobs, request, pages: 0, is_at_end: false, waiting: VecDeque::new(), reading }
    }

    /// Reads pages until a job that fits waits, or there are no more.
    fn fill(&mut self, scan: &Scan, filter: &Filter, has_texts: bool) -> Result<(), BoxError> {
        while self.waiting.is_empty() && !self.is_at_end {
            let page = self.page(scan.caller(), filter.clone(), has_texts);
            let next = page.inspect_err(|e| {
                self.is_at_end = true;
                self.reading.fail(&e.to_string());
            })?;
            self.pages += 1;
            let most = if self.pages < FIRST_PAGES { FIRST_PAGE } else { MAX_PAGE };
            self.request = PageRequest { after: next, most, ..self.request };
            self.is_at_end = next.is_none();
            self.reading.jobs(self.waiting.len() as u64);
            self.waiting.retain(|one| fits(&one.row, scan));
        }
        Ok(())
    }

    /// Reads the next page. Returns the place after it.
    fn page(
        &mut self,
        caller: &Caller,
        filter: Filter,
        has_texts: bool,
    ) -> Result<Option<Cursor>, BoxError> {
        let copy_of = self.jobs.copy_of().map(str::to_owned);
        if !has_texts {
            let page = self.jobs.search(caller, filter, &self.request)?;
            let shown = |row| Shown { row, copy_of: copy_of.clone(), texts: Default::default() };
            self.waiting = page.items.into_iter().map(shown).collect();
            return Ok(page.next);
        }
        let page = self.jobs.search_entries(caller, filter, &self.request)?;
        let shown = |entry: &JobEntry| -> Result<Shown, BoxError> {
            let row = Columns::of(entry)?.row();
            let odd = |(what, text)| format!("the catalogue has an odd {what}: {text}");
            let row = row.map_err(odd)?;
            let texts = OF_ENTRIES.map(|(_, text, _)| Some(text(entry)));
            Ok(Shown { row, copy_of: copy_of.clone(), texts })
        };
        self.waiting = page.items.iter().map(shown).collect::<Result<_, _>>()?;
        Ok(page.next)
    }
}

/// The jobs of this hub and of copies in batches, those that began last first.
struct Batches {
    sources: Vec<JobsOf>,
    scan: Scan,
    filter: Filter,
    /// True if the statement reads columns of [`OF_ENTRIES`].
    needs_entries: bool,
    /// True once there was a batch.
    has_begun: bool,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        let shown = match self.shown() {
            Ok(shown) => shown,
            Err(e) => {
                self.sources.clear();
                return Some(Err(e));
            }
        };
        if shown.is_empty() {
            if !self.has_begun && self.filter.job.is_some() {
                self.sources.iter_mut().for_each(|source| note_refused(&mut source.reading));
            }
            return None;
        }
        self.has_begun = true;
        let batch = self.scan.select(&arrays(&shown, self.scan.columns()));
        for source in &mut self.sources {
            let is_of = |one: &&Shown| one.copy_of.as_deref() == source.jobs.copy_of();
            let rows = shown.iter().filter(is_of).count() as u64;
            match &batch {
                Ok(batch) => {
                    let bytes = batch.get_array_memory_size() as u64;
                    source.reading.send(rows, bytes * rows / shown.len() as u64);
                }
                Err(e) => source.reading.fail(&e.to_string()),
            }
        }
        Some(batch)
    }
}

impl Batches {
    /// Returns the jobs of the next batch: until the page of a source is at its end.
    fn shown(&mut self) -> Result<Vec<Shown>, BoxError> {
        let mut shown = Vec::new();
        loop {
            for source in &mut self.sources {
                source.fill(&self.scan, &self.filter, self.needs_entries)?;
            }
            let began = |source: &&mut JobsOf| source.waiting.front().map(|one| one.row.started);
            // Of jobs that began together, that of this hub comes first.
            let sources = self.sources.iter_mut().rev();
            let latest = sources.filter(|it| !it.waiting.is_empty()).max_by_key(began);
            let Some(source) = latest else { return Ok(shown) };
            shown.extend(source.waiting.pop_front());
            if source.waiting.is_empty() {
                return Ok(shown);
            }
        }
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

/// Returns the columns of some jobs. Those that are not wanted have nulls: a statement reads few of them, and most are texts.
fn arrays(shown: &[Shown], wanted: &[usize]) -> Vec<ArrayRef> {
    let rows = || shown.iter().map(|one| &one.row);
    let used = |resource: &Resource| {
        let values = rows().map(|row| row.used.get(resource.name).copied());
        Arc::new(values.collect::<Float64Array>()) as ArrayRef
    };
    let array = |of: &Of| -> ArrayRef {
        match of {
            Of::Text(text) => Arc::new(rows().map(text).collect::<StringArray>()),
            Of::Integer(number) => Arc::new(rows().map(number).collect::<Int64Array>()),
            Of::Time(time) => {
                let times = rows().map(|row| time(row).map(Timestamp::as_nanos));
                Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone("UTC"))
            }
        }
    };
    let text = |at: usize| {
        let texts = shown.iter().map(|one| one.texts[at].as_deref());
        Arc::new(texts.collect::<StringArray>()) as ArrayRef
    };
    let copy_of = || {
        let hubs = shown.iter().map(|one| one.copy_of.as_deref());
        Arc::new(hubs.collect::<StringArray>()) as ArrayRef
    };
    let column = |at: usize| {
        if !wanted.contains(&at) {
            return Arc::new(NullArray::new(shown.len())) as ArrayRef;
        }
        if let Some((_, of, _)) = COLUMNS.get(at) {
            return array(of);
        }
        match at - COLUMNS.len() {
            at if at < RESOURCES.len() => used(&RESOURCES[at]),
            at if at == RESOURCES.len() => copy_of(),
            at => text(at - RESOURCES.len() - 1),
        }
    };
    (0..COLUMNS.len() + RESOURCES.len() + 1 + OF_ENTRIES.len()).map(column).collect()
}
