//! `task_files`: the files of the tasks in the archive and of imported ones, a row for each file.

use std::path::PathBuf;
use std::sync::Arc;

use skopos_access::{Action, may};
use skopos_model::Unit;
use skopos_model::job::JobId;
use skopos_model::task::{Completeness, FileUse, TaskFiles};
use skopos_query::arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
use skopos_store::archive::{Archive, Field, Filter, TaskWithFiles};

use super::imported::archives;
use super::tasks::MAX_TEXTS;
use crate::jobs::JobsPlace;

/// Tasks that are read at a time: with a thousand files each some megabytes.
const PAGE_TASKS: usize = 16;

/// The table `task_files`.
#[derive(Debug)]
pub(super) struct FilesOfTasks {
    columns: Vec<Column>,
    /// Path of the archive, which may not exist yet.
    archive: Option<PathBuf>,
    /// The jobs, among which imported tasks are.
    jobs: Arc<JobsPlace>,
}

impl FilesOfTasks {
    /// Returns the table of an archive, and of imported tasks.
    pub(super) fn new(archive: Option<PathBuf>, jobs: Arc<JobsPlace>) -> Self {
        let mut columns = vec![
            Column::text("node", "Node that the task ran on"),
            Column::time("started_at", "Time at which the task began"),
        ];
        columns.extend(file_columns());
        Self { columns, archive, jobs }
    }
}

impl Table for FilesOfTasks {
    fn name(&self) -> &str {
        "task_files"
    }

    fn help(&self) -> &str {
        "Files that tasks in the archive, and imported ones, used, of tasks whose accesses to each file were counted"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        // A report names no user: all of them belong to the owner of the hub.
        may(scan.caller(), Action::ReadJob { owner: None, project: None })?;
        let of = [("class", Field::Class), ("node", Field::Node)];
        let only = of.into_iter().filter_map(|(column, field)| {
            let texts = scan.texts(column).filter(|texts| texts.len() <= MAX_TEXTS)?;
            let texts = texts.into_iter().map(str::to_owned).collect();
            Some(Filter::OneOf(field, texts))
        });
        let archives = archives(&self.jobs, scan, self.archive.as_deref())?;
        let (only, scan): (Vec<Filter>, Scan) = (only.collect(), scan.clone());
        let pages = archives.flat_map(move |archive| {
            let (archive, failure) = match archive {
                Ok(archive) => (Some(archive), None),
                Err(e) => (None, Some(Err(e))),
            };
            let (scan, only) = (scan.clone(), only.clone());
            let pages = archive.map(|archive| Pages {
                archive,
                scan,
                only,
                after: i64::MIN,
                is_at_end: false,
            });
            failure.into_iter().chain(pages.into_iter().flatten())
        });
        Ok(Rows::each(pages))
    }

    /// The archive does not notify readers of a new report.
    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

/// The files of the tasks, read page by page.
struct Pages {
    archive: Archive,
    scan: Scan,
    only: Vec<Filter>,
    /// Number of the last report of the previous page.
    after: i64,
    is_at_end: bool,
}

impl Iterator for Pages {
    type Item = Result<RecordBatch, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_at_end {
            return None;
        }
        let page = match self.archive.files(&self.only, self.after, PAGE_TASKS) {
            Ok(page) => page,
            Err(e) => {
                self.is_at_end = true;
                return Some(Err(e.into()));
            }
        };
        let Some(last) = page.last() else {
            self.is_at_end = true;
            return None;
        };
        self.after = last.number;
        Some(self.scan.select(&of_tasks(&page)))
    }
}

/// Returns all columns of some tasks.
fn of_tasks(tasks: &[TaskWithFiles]) -> Vec<ArrayRef> {
    let rows: Vec<(&TaskWithFiles, FileRow<'_>)> =
        tasks.iter().flat_map(|task| rows_of(&task.files).map(move |row| (task, row))).collect();
    let nodes = rows.iter().map(|(task, _)| Some(task.node.as_str()));
    let times = rows.iter().map(|(task, _)| Some((task.start_seconds * 1e9) as i64));
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(nodes.collect::<StringArray>()),
        Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone("UTC")),
    ];
    columns.extend(file_arrays(rows.iter().map(|(_, row)| row)));
    columns
}

/// Returns all columns of the files of some tasks of a job: its id, the node, and those of files.
pub(super) fn of_job(id: &JobId, tasks: &[(String, TaskFiles)]) -> Vec<ArrayRef> {
    let rows: Vec<(&str, FileRow<'_>)> = tasks
        .iter()
        .flat_map(|(node, files)| rows_of(files).map(move |row| (node.as_str(), row)))
        .collect();
    let nodes = rows.iter().map(|(node, _)| Some(*node).filter(|node| !node.is_empty()));
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![id.job(); rows.len()])),
        Arc::new(Int64Array::from(vec![i64::from(id.generation()); rows.len()])),
        Arc::new(nodes.collect::<StringArray>()),
    ];
    columns.extend(file_arrays(rows.iter().map(|(_, row)| row)));
    columns
}

/// A file of a task, or the sum of those that are not listed.
struct FileRow<'f> {
    of: &'f TaskFiles,
    file: &'f FileUse,
    is_left_out: bool,
}

/// Returns the listed files, and the sum of the others if there are any.
fn rows_of(of: &TaskFiles) -> impl Iterator<Item = FileRow<'_>> {
    let listed = of.files.iter().map(move |file| FileRow { of, file, is_left_out: false });
    let rest = FileRow { of, file: &of.left_out, is_left_out: true };
    listed.chain((of.files_left_out > 0).then_some(rest))
}

/// The value of a column in a row.
enum Value {
    Text(fn(&FileRow<'_>) -> Option<String>),
    Integer(fn(&FileRow<'_>) -> Option<u64>),
    /// A count, `NULL` if the mechanism does not have it.
    Count(fn(&FileUse) -> u64),
    /// The same, in bytes.
    Bytes(fn(&FileUse) -> u64),
    /// A histogram: a JSON list.
    Sizes(fn(&FileUse) -> &[u64]),
}

/// The columns of a file: name, value and help.
const COLUMNS: [(&str, Value, &str); 21] = [
    ("class", Value::Text(|row| Some(row.of.class.clone())), "Class of the task"),
    (
        "rank",
        Value::Integer(|row| row.of.rank.map(u64::from)),
        "Number of the rank in a parallel job",
    ),
    (
        "path",
        Value::Text(|row| Some(row.file.path.clone()).filter(|path| !path.is_empty())),
        "Path by which the file was first opened",
    ),
    (
        "kind",
        Value::Text(kind),
        "`file`, or a sum: `pipes`, `sockets`, `nameless`, `others` (more than the monitor had room for), `left out` (those with the fewest bytes)",
    ),
    (
        "files",
        Value::Integer(files),
        "Number of files of the row; NULL for a sum that was not counted",
    ),
    ("opens", Value::Count(|file| file.opens), "Number of times that it was opened"),
    ("closes", Value::Count(|file| file.closes), "Number of descriptors that were closed"),
    ("reads", Value::Count(|file| file.reads), "Number of read operations, without those of stdio"),
    (
        "writes",
        Value::Count(|file| file.writes),
        "Number of write operations, without those of stdio",
    ),
    ("read_bytes", Value::Bytes(|file| file.read_bytes), "Bytes that were read"),
    ("written_bytes", Value::Bytes(|file| file.written_bytes), "Bytes that were written"),
    (
        "read_or_written_bytes",
        Value::Bytes(|file| file.read_or_written_bytes),
        "Bytes of a file that was open for both, where it is not known which",
    ),
    ("stream_read_bytes", Value::Bytes(|file| file.stream_read_bytes), "Bytes that stdio read"),
    (
        "stream_written_bytes",
        Value::Bytes(|file| file.stream_written_bytes),
        "Bytes that stdio wrote",
    ),
    (
        "read_sizes",
        Value::Sizes(|file| &file.read_sizes),
        "Histogram of the sizes of reads: a JSON list for 0 bytes, 1, 2 to 3, 4 to 7 and so on",
    ),
    ("write_sizes", Value::Sizes(|file| &file.write_sizes), "The same histogram for writes"),
    ("maps", Value::Count(|file| file.maps), "Number of times that it was mapped into memory"),
    ("mapped_bytes", Value::Bytes(|file| file.mapped_bytes), "Bytes that the mappings spanned"),
    ("device", Value::Integer(|row| used(row, row.file.device)), "Device of the file"),
    ("inode", Value::Integer(|row| used(row, row.file.inode)), "Inode of the file"),
    (
        "completeness",
        Value::Text(|row| Some(completeness(row.of.completeness).to_owned())),
        "`all`, `at_least` if something is known to be missing, `sampled`, or `none`",
    ),
];

fn kind(row: &FileRow<'_>) -> Option<String> {
    Some(if row.is_left_out { "left out".to_owned() } else { row.file.kind.clone() })
}

fn files(row: &FileRow<'_>) -> Option<u64> {
    match row.is_left_out {
        true => Some(row.of.files_left_out),
        false => is_file(row).then_some(1),
    }
}

fn is_file(row: &FileRow<'_>) -> bool {
    !row.is_left_out && row.file.kind == "file"
}

/// Returns a number that only a file has.
fn used(row: &FileRow<'_>, number: u64) -> Option<u64> {
    is_file(row).then_some(number)
}

fn completeness(of: Completeness) -> &'static str {
    match of {
        Completeness::None => "none",
        Completeness::Sampled => "sampled",
        Completeness::AtLeast => "at_least",
        Completeness::All => "all",
    }
}

/// Returns the columns of a file.
pub(super) fn file_columns() -> impl Iterator<Item = Column> {
    let bytes = Unit::new("bytes").unwrap_or(Unit::NONE);
    COLUMNS.iter().map(move |(name, value, help)| match value {
        Value::Text(_) | Value::Sizes(_) => Column::text(*name, *help),
        Value::Integer(_) | Value::Count(_) => Column::integer(*name, *help),
        Value::Bytes(_) => Column::number(*name, bytes, *help),
    })
}

/// Returns the columns of some files.
fn file_arrays<'r, 'f: 'r>(
    rows: impl Iterator<Item = &'r FileRow<'f>> + Clone,
) -> impl Iterator<Item = ArrayRef> {
    let integer = |number: u64| i64::try_from(number).ok();
    COLUMNS.iter().map(move |(name, value, _)| -> ArrayRef {
        let is_counted = |row: &FileRow<'_>| row.of.not_counted.iter().all(|field| field != name);
        let rows = rows.clone();
        match value {
            Value::Text(text) => Arc::new(rows.map(text).collect::<StringArray>()),
            Value::Integer(number) => {
                Arc::new(rows.map(|row| number(row).and_then(integer)).collect::<Int64Array>())
            }
            Value::Count(count) => {
                let counts = rows.map(|row| is_counted(row).then(|| count(row.file)));
                Arc::new(counts.map(|count| count.and_then(integer)).collect::<Int64Array>())
            }
            Value::Bytes(bytes) => {
                let bytes = rows.map(|row| is_counted(row).then(|| bytes(row.file) as f64));
                Arc::new(bytes.collect::<Float64Array>())
            }
            Value::Sizes(sizes) => {
                let list = |sizes: &[u64]| serde_json::to_string(sizes).unwrap_or_default();
                let lists = rows.map(|row| is_counted(row).then(|| list(sizes(row.file))));
                Arc::new(lists.collect::<StringArray>())
            }
        }
    })
}
