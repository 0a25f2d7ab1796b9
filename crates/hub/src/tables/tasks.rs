//! `tasks` and `parallel_jobs`: the reports in the archive of tasks, and those of tasks that were imported as jobs, with a column for
//! each resource.

use std::path::PathBuf;
use std::sync::Arc;

use skopos_access::{Action, may};
use skopos_model::Unit;
use skopos_model::task::RESOURCES;
use skopos_query::arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampNanosecondArray,
};
use skopos_query::arrow::datatypes::{DataType, SchemaRef};
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
use skopos_store::archive::{Archive, Cell, Field, Filter};

use super::imported::archives;
use crate::jobs::JobsPlace;

/// Rows that are read at a time: with all columns half a megabyte.
const PAGE_ROWS: usize = 1024;

/// Texts of one condition that the archive applies; its look-up of more is slower than reading all rows.
pub(super) const MAX_TEXTS: usize = 1024;

/// Bound of the error of a time: a report has it in seconds as a double.
const SLACK_SECONDS: f64 = 1e-3;

/// Columns of `tasks` before those of resources.
const OF_TASKS: [(&str, Field, &str); 14] = [
    ("class", Field::Class, "Class of the task"),
    ("node", Field::Node, "Node that the task ran on"),
    ("started_at", Field::Started, "Time at which the task began"),
    ("ended_at", Field::Ended, "Time at which the task ended"),
    ("exit", Field::Exit, "`normal`, `signal`, `limit`, `running` or `unknown`"),
    ("status", Field::Status, "Exit status"),
    ("signal", Field::Signal, "Signal that ended the task"),
    ("command", Field::Command, "Command and its arguments"),
    ("folder", Field::Folder, "Folder in which the task began"),
    ("collection", Field::Set, "Name that the report was imported under"),
    ("monitor", Field::Monitor, "Program that measured the task"),
    ("level", Field::Level, "Level of measurement"),
    ("job", Field::Job, "Parallel job that the task was a rank of"),
    ("rank", Field::Rank, "Number of the rank in its job"),
];

/// Columns of `parallel_jobs` before those of resources.
const OF_JOBS: [(&str, Field, &str); 12] = [
    ("job", Field::Job, "Id of the job"),
    ("launcher", Field::Launcher, "Launcher of the job"),
    ("ranks", Field::Ranks, "Number of ranks"),
    ("missing_ranks", Field::MissingRanks, "Number of ranks without a report"),
    ("class", Field::Class, "Class of the job"),
    ("started_at", Field::Started, "Time at which the first rank began"),
    ("ended_at", Field::Ended, "Time at which the last rank ended"),
    ("exit", Field::Exit, "`normal`, `signal`, `limit`, `running` or `unknown`"),
    ("status", Field::Status, "Exit status"),
    ("command", Field::Command, "Command and its arguments"),
    ("folder", Field::Folder, "Folder in which the job began"),
    ("collection", Field::Set, "Name that the report was imported under"),
];

/// The table `tasks` or `parallel_jobs`.
#[derive(Debug)]
pub(super) struct Tasks {
    name: &'static str,
    help: &'static str,
    columns: Vec<Column>,
    /// The field of the archive of each column.
    fields: Vec<Field>,
    /// A condition that every row fits.
    only: Option<Filter>,
    /// Path of the archive, which may not exist yet.
    archive: Option<PathBuf>,
    /// The jobs, among which imported tasks are.
    jobs: Arc<JobsPlace>,
}

impl Tasks {
    /// Returns the table `tasks`.
    pub(super) fn all(archive: Option<PathBuf>, jobs: Arc<JobsPlace>) -> Self {
        let help = "Reports of tasks in the archive, and of imported tasks";
        Self::new(("tasks", help), &OF_TASKS, None, (archive, jobs))
    }

    /// Returns the table `parallel_jobs`.
    pub(super) fn of_jobs(archive: Option<PathBuf>, jobs: Arc<JobsPlace>) -> Self {
        let help = "Reports of parallel jobs in the archive, and of imported ones";
        Self::new(("parallel_jobs", help), &OF_JOBS, Some(Filter::Jobs), (archive, jobs))
    }

    fn new(
        (name, help): (&'static str, &'static str),
        first: &[(&'static str, Field, &'static str)],
        only: Option<Filter>,
        (archive, jobs): (Option<PathBuf>, Arc<JobsPlace>),
    ) -> Self {
        let mut fields: Vec<Field> = first.iter().map(|(_, field, _)| *field).collect();
        let mut columns: Vec<Column> =
            first.iter().map(|(name, field, help)| column(name, *field, help)).collect();
        for resource in RESOURCES {
            let unit = Unit::new(resource.unit).unwrap_or(Unit::NONE);
            columns.push(Column::number(resource.name, unit, resource.help));
            fields.push(Field::Used(resource));
        }
        let help_of_bounds = "Resources of which the task used more than was measured";
        columns.push(Column::text("lower_bounds", help_of_bounds));
        fields.push(Field::LowerBounds);
        Self { name, help, columns, fields, only, archive, jobs }
    }

    /// Returns the conditions of a scan that the archive applies.
    fn only(&self, scan: &Scan) -> Vec<Filter> {
        let mut only: Vec<Filter> = self.only.iter().cloned().collect();
        for (column, field) in self.columns.iter().zip(&self.fields) {
            if let Some(texts) = scan.texts(column.name())
                && texts.len() <= MAX_TEXTS
            {
                let texts = texts.into_iter().map(str::to_owned).collect();
                only.push(Filter::OneOf(*field, texts));
            }
            if let Some(times) = scan.times(column.name()) {
                let [from, to] = [times.start(), times.end()].map(|t| t.as_nanos() as f64 / 1e9);
                only.push(Filter::Between(*field, from - SLACK_SECONDS, to + SLACK_SECONDS));
            }
        }
        only
    }
}

fn column(name: &'static str, field: Field, help: &'static str) -> Column {
    match field {
        Field::Started | Field::Ended => Column::time(name, help),
        Field::Status
        | Field::Signal
        | Field::Level
        | Field::Rank
        | Field::Ranks
        | Field::MissingRanks => Column::integer(name, help),
        _ => Column::text(name, help),
    }
}

impl Table for Tasks {
    fn name(&self) -> &str {
        self.name
    }

    fn help(&self) -> &str {
        self.help
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        // A report names no user: all of them belong to the owner of the hub.
        may(scan.caller(), Action::ReadJob { owner: None, project: None })?;
        let fields: Vec<Field> = scan.columns().iter().map(|at| self.fields[*at]).collect();
        let (schema, only) = (scan.schema().clone(), self.only(scan));
        let archives = archives(&self.jobs, scan, self.archive.as_deref())?;
        let pages = archives.flat_map(move |archive| {
            let (archive, failure) = match archive {
                Ok(archive) => (Some(archive), None),
                Err(e) => (None, Some(Err(e))),
            };
            let (schema, fields, only) = (schema.clone(), fields.clone(), only.clone());
            let pages = archive.map(|archive| Pages {
                archive,
                schema,
                fields,
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

/// The rows of the archive, read page by page.
struct Pages {
    archive: Archive,
    schema: SchemaRef,
    fields: Vec<Field>,
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
        let rows = match self.archive.rows(&self.fields, &self.only, self.after, PAGE_ROWS) {
            Ok(rows) => rows,
            Err(e) => {
                self.is_at_end = true;
                return Some(Err(e.into()));
            }
        };
        let Some((last, _)) = rows.last() else {
            self.is_at_end = true;
            return None;
        };
        self.after = *last;
        Some(self.batch(rows))
    }
}

impl Pages {
    fn batch(&self, rows: Vec<(i64, Vec<Cell>)>) -> Result<RecordBatch, BoxError> {
        let count = rows.len();
        let mut columns: Vec<Vec<Cell>> = vec![Vec::with_capacity(count); self.fields.len()];
        for (_, cells) in rows {
            columns.iter_mut().zip(cells).for_each(|(column, cell)| column.push(cell));
        }
        let arrays = self.schema.fields().iter().zip(columns);
        let arrays = arrays.map(|(field, cells)| array(field.data_type(), cells));
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = self.schema.clone();
        Ok(RecordBatch::try_new_with_options(schema, arrays.collect(), &options)?)
    }
}

fn array(data_type: &DataType, cells: Vec<Cell>) -> ArrayRef {
    let number = |cell: &Cell| match cell {
        Cell::Real(number) => Some(*number),
        Cell::Integer(number) => Some(*number as f64),
        _ => None,
    };
    match data_type {
        DataType::Float64 => Arc::new(cells.iter().map(number).collect::<Float64Array>()),
        DataType::Timestamp(..) => {
            let nanos = cells.iter().map(|cell| number(cell).map(|seconds| (seconds * 1e9) as i64));
            Arc::new(nanos.collect::<TimestampNanosecondArray>().with_timezone("UTC"))
        }
        DataType::Int64 => {
            let integer = |cell: &Cell| match cell {
                Cell::Integer(number) => Some(*number),
                _ => None,
            };
            Arc::new(cells.iter().map(integer).collect::<Int64Array>())
        }
        _ => {
            let text = |cell: Cell| match cell {
                Cell::Text(text) => Some(text),
                _ => None,
            };
            Arc::new(cells.into_iter().map(text).collect::<StringArray>())
        }
    }
}
