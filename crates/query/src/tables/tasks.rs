//! `tasks` and `jobs`: the reports in the archive of tasks that ran, with a column for each resource.

use std::fmt;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures_util::stream;
use skopos_model::task::RESOURCES;
use skopos_store::archive::{Archive, Cell, Error, Field as Stored, Only};

use super::columns::UTC;
use super::pushdown;
use crate::source::Source;

/// Rows that are read at a time: with all columns half a megabyte.
const PAGE_ROWS: usize = 1024;

/// Texts of one condition that the archive is told of: with more its own look at them is dear.
const MOST_TEXTS: usize = 1024;

/// A time of a report is a double, and off by less than this when it becomes nanoseconds.
const SLACK_SECONDS: f64 = 1e-3;

/// Columns of `tasks` before those of resources.
const OF_TASKS: [(&str, Stored); 14] = [
    ("class", Stored::Class),
    ("node", Stored::Node),
    ("started_at", Stored::Started),
    ("ended_at", Stored::Ended),
    ("exit", Stored::Exit),
    ("status", Stored::Status),
    ("signal", Stored::Signal),
    ("command", Stored::Command),
    ("folder", Stored::Folder),
    ("collection", Stored::Set),
    ("monitor", Stored::Monitor),
    ("level", Stored::Level),
    ("job", Stored::Job),
    ("rank", Stored::Rank),
];

/// Columns of `jobs` before those of resources.
const OF_JOBS: [(&str, Stored); 12] = [
    ("job", Stored::Job),
    ("launcher", Stored::Launcher),
    ("ranks", Stored::Ranks),
    ("missing_ranks", Stored::MissingRanks),
    ("class", Stored::Class),
    ("started_at", Stored::Started),
    ("ended_at", Stored::Ended),
    ("exit", Stored::Exit),
    ("status", Stored::Status),
    ("command", Stored::Command),
    ("folder", Stored::Folder),
    ("collection", Stored::Set),
];

/// Subset reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reports {
    Tasks,
    Jobs,
}

impl Reports {
    /// All columns: what the report is about, each resource, and which of these are lower bounds.
    fn columns(self) -> &'static [(&'static str, Stored)] {
        static TASKS: LazyLock<Vec<(&str, Stored)>> = LazyLock::new(|| with_resources(&OF_TASKS));
        static JOBS: LazyLock<Vec<(&str, Stored)>> = LazyLock::new(|| with_resources(&OF_JOBS));
        match self {
            Self::Tasks => &TASKS,
            Self::Jobs => &JOBS,
        }
    }
}

fn with_resources(first: &[(&'static str, Stored)]) -> Vec<(&'static str, Stored)> {
    let used = RESOURCES.iter().map(|resource| (resource.name, Stored::Used(resource)));
    let last = [("lower_bounds", Stored::LowerBounds)];
    first.iter().copied().chain(used).chain(last).collect()
}

fn data_type(stored: Stored) -> DataType {
    match stored {
        Stored::Started | Stored::Ended => {
            DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()))
        }
        Stored::Used(_) => DataType::Float64,
        Stored::Status
        | Stored::Signal
        | Stored::Level
        | Stored::Rank
        | Stored::Ranks
        | Stored::MissingRanks => DataType::Int64,
        _ => DataType::Utf8,
    }
}

/// Reports in the archive.
#[derive(Clone)]
pub(crate) struct TaskTable {
    source: Arc<dyn Source>,
    reports: Reports,
}

impl TaskTable {
    pub(crate) fn new(source: Arc<dyn Source>, reports: Reports) -> Self {
        Self { source, reports }
    }
}

impl fmt::Debug for TaskTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskTable({:?})", self.reports)
    }
}

#[async_trait]
impl TableProvider for TaskTable {
    fn schema(&self) -> SchemaRef {
        let columns = self.reports.columns().iter();
        let fields = columns.map(|(name, stored)| Field::new(*name, data_type(*stored), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = self.reports.columns();
        let all: Vec<usize> = (0..columns.len()).collect();
        let wanted = projection.unwrap_or(&all);
        let schema = Arc::new(self.schema().project(wanted)?);
        let fields = wanted.iter().map(|at| columns[*at].1).collect();
        let scan = Scan {
            source: self.source.clone(),
            schema: schema.clone(),
            fields,
            only: only(self.reports, filters),
        };
        let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(scan)];
        let limit = limit.filter(|_| filters.is_empty());
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, limit)?))
    }

    /// More may be read than is asked for, so what is read is filtered again.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}

/// What the archive can leave out by itself.
fn only(reports: Reports, filters: &[Expr]) -> Vec<Only> {
    let mut only = Vec::new();
    if reports == Reports::Jobs {
        only.push(Only::Jobs);
    }
    for (name, stored) in reports.columns() {
        match data_type(*stored) {
            DataType::Utf8 => {
                let texts = pushdown::texts(filters, name);
                let texts = texts.filter(|texts| texts.len() <= MOST_TEXTS);
                only.extend(texts.map(|texts| Only::OneOf(*stored, texts)));
            }
            DataType::Timestamp(..) => {
                let times = pushdown::times_of(filters, &[name]);
                let seconds = |nanos: i64| nanos as f64 / 1e9;
                if times != pushdown::times_of(&[], &[]) {
                    let (from, to) = (times.start().as_nanos(), times.end().as_nanos());
                    let (from, to) = (seconds(from) - SLACK_SECONDS, seconds(to) + SLACK_SECONDS);
                    only.push(Only::Between(*stored, from, to));
                }
            }
            _ => {}
        }
    }
    only
}

#[derive(Clone)]
struct Scan {
    source: Arc<dyn Source>,
    schema: SchemaRef,
    fields: Vec<Stored>,
    only: Vec<Only>,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("only", &self.only).finish_non_exhaustive()
    }
}

/// How far a scan has come.
enum Place {
    Before,
    /// After the report of this number.
    After(Archive, i64),
}

fn failed(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl Scan {
    fn next(&self, place: Place) -> Result<Option<(RecordBatch, Place)>> {
        let (archive, after) = match place {
            Place::After(archive, after) => (archive, after),
            Place::Before => match self.source.archive().map_err(failed)? {
                Some(archive) => (archive, i64::MIN),
                // Nobody has kept a report yet.
                None => return Ok(None),
            },
        };
        let rows = archive.rows(&self.fields, &self.only, after, PAGE_ROWS).map_err(failed)?;
        let Some((last, _)) = rows.last() else { return Ok(None) };
        let (last, count) = (*last, rows.len());
        let mut columns: Vec<Vec<Cell>> = vec![Vec::with_capacity(count); self.fields.len()];
        for (_, cells) in rows {
            columns.iter_mut().zip(cells).for_each(|(column, cell)| column.push(cell));
        }
        let arrays = self.fields.iter().zip(columns).map(|(field, cells)| array(*field, cells));
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = self.schema.clone();
        let batch = RecordBatch::try_new_with_options(schema, arrays.collect(), &options)?;
        Ok(Some((batch, Place::After(archive, last))))
    }
}

fn array(field: Stored, cells: Vec<Cell>) -> ArrayRef {
    let number = |cell: &Cell| match cell {
        Cell::Real(number) => Some(*number),
        Cell::Integer(number) => Some(*number as f64),
        _ => None,
    };
    match data_type(field) {
        DataType::Float64 => Arc::new(cells.iter().map(number).collect::<Float64Array>()),
        DataType::Timestamp(..) => {
            let nanos = cells.iter().map(|cell| number(cell).map(|seconds| (seconds * 1e9) as i64));
            Arc::new(nanos.collect::<TimestampNanosecondArray>().with_timezone(UTC))
        }
        DataType::Int64 => {
            let whole = |cell: &Cell| match cell {
                Cell::Integer(number) => Some(*number),
                _ => None,
            };
            Arc::new(cells.iter().map(whole).collect::<Int64Array>())
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

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let scan = self.clone();
        let pages =
            stream::try_unfold(Place::Before, move |place| std::future::ready(scan.next(place)));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), pages))
    }
}
