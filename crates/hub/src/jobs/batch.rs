//! Records of jobs as an Arrow batch: the form in which any Flight client sends them.
//!
//! | column | type | content |
//! |---|---|---|
//! | `sequence` | `int64` | number of the record in the epoch of its producer; numbers ascend |
//! | `job` | `utf8` | id that the batch system gave the job |
//! | `generation` | `uint32`, optional | number of the job's run; 0 if it is missing |
//! | `node` | `utf8`, optional | node that the record is about; empty for the whole job |
//! | `time` | `timestamp(ns)` or `int64` | time of the record, in nanoseconds of UNIX time |
//! | `kind` | `utf8` | `start`, `metrics`, `sample`, `report`, `spans`, `end`, `loss` or `tags` |
//! | `schema` | `utf8`, optional | of a `sample`: name of its metrics |
//! | `values` | `list<float64>`, optional | of a `sample`: its values |
//! | `document` | `utf8`, optional | of every other kind: its JSON document |

use skopos_model::Timestamp;
use skopos_model::job::{JobRecord, Kind};
use skopos_query::arrow::array::{
    Array as _, ArrayRef, AsArray as _, Float64Array, RecordBatch, StringArray,
};
use skopos_query::arrow::compute::cast;
use skopos_query::arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit, UInt32Type};
use thiserror::Error;

/// The reason why a batch is refused as a whole.
#[derive(Debug, Error)]
pub enum BatchError {
    /// A column is missing.
    #[error("the batch has no column `{0}`")]
    Missing(&'static str),
    /// A column has another type.
    #[error("the column `{name}` has the type {found}, not {expected}")]
    Type {
        /// Name of the column.
        name: &'static str,
        /// Its type.
        found: DataType,
        /// The expected type.
        expected: DataType,
    },
    /// A row lacks a value.
    #[error("row {row} has no `{name}`")]
    Null {
        /// Name of the column.
        name: &'static str,
        /// Number of the row, from zero on.
        row: usize,
    },
    /// A row has a kind that is not known.
    #[error("row {row} has the kind {kind:?}, which is not known")]
    Kind {
        /// Number of the row, from zero on.
        row: usize,
        /// The kind.
        kind: String,
    },
}

/// The columns of a batch of records.
pub struct RecordColumns {
    rows: usize,
    sequences: ArrayRef,
    jobs: StringArray,
    generations: Option<ArrayRef>,
    nodes: Option<StringArray>,
    times: ArrayRef,
    kinds: StringArray,
    schemas: Option<StringArray>,
    values: Option<ArrayRef>,
    documents: Option<StringArray>,
}

impl RecordColumns {
    /// Takes the columns of a batch.
    ///
    /// # Errors
    /// A column is missing or has another type.
    pub fn of(batch: &RecordBatch) -> Result<Self, BatchError> {
        let need = |name| BatchError::Missing(name);
        let list = DataType::new_list(DataType::Float64, true);
        let values = optional(batch, "values", &list)?;
        Ok(Self {
            rows: batch.num_rows(),
            sequences: optional(batch, "sequence", &DataType::Int64)?
                .ok_or_else(|| need("sequence"))?,
            jobs: texts(batch, "job")?.ok_or_else(|| need("job"))?,
            generations: optional(batch, "generation", &DataType::UInt32)?,
            nodes: texts(batch, "node")?,
            times: times(batch)?,
            kinds: texts(batch, "kind")?.ok_or_else(|| need("kind"))?,
            schemas: texts(batch, "schema")?,
            values,
            documents: texts(batch, "document")?,
        })
    }

    /// Passes each record from the row `from` on with its sequence to `visit`, until that returns an error.
    ///
    /// # Errors
    /// A row lacks a value or has an unknown kind, or `visit` returned the error.
    pub fn for_each<E: From<BatchError>>(
        &self,
        from: usize,
        mut visit: impl FnMut(i64, JobRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let sequences = self.sequences.as_primitive::<Int64Type>();
        let times = self.times.as_primitive::<Int64Type>();
        let generations = self.generations.as_ref().map(|all| all.as_primitive::<UInt32Type>());
        let mut content = Vec::new();
        for row in from..self.rows {
            let null = |name| BatchError::Null { name, row };
            let text = |texts: &StringArray, name| match texts.is_valid(row) {
                true => Ok(row),
                false => Err(null(name)),
            };
            text(&self.jobs, "job")?;
            text(&self.kinds, "kind")?;
            if sequences.is_null(row) {
                return Err(null("sequence").into());
            }
            if times.is_null(row) {
                return Err(null("time").into());
            }
            let kind = self.kinds.value(row);
            let kind = Kind::of_name(kind)
                .ok_or_else(|| BatchError::Kind { row, kind: kind.chars().take(64).collect() })?;
            content.clear();
            self.write_content(row, kind, &mut content)?;
            let generation =
                generations.filter(|all| all.is_valid(row)).map_or(0, |all| all.value(row));
            let node = self
                .nodes
                .as_ref()
                .filter(|all| all.is_valid(row))
                .map_or("", |all| all.value(row));
            let record = JobRecord {
                kind,
                job: self.jobs.value(row),
                generation,
                node,
                time: Timestamp::from_nanos(times.value(row)),
                content: &content,
            };
            visit(sequences.value(row), record)?;
        }
        Ok(())
    }

    fn write_content(
        &self,
        row: usize,
        kind: Kind,
        content: &mut Vec<u8>,
    ) -> Result<(), BatchError> {
        let of = |texts: &Option<StringArray>, name| match texts {
            Some(texts) if texts.is_valid(row) => Ok(texts.value(row).to_owned()),
            _ => Err(BatchError::Null { name, row }),
        };
        if kind != Kind::Sample {
            content.extend_from_slice(of(&self.documents, "document")?.as_bytes());
            return Ok(());
        }
        let schema = of(&self.schemas, "schema")?;
        let lists = self.values.as_ref().filter(|all| all.is_valid(row));
        let values = lists.ok_or(BatchError::Null { name: "values", row })?;
        let values = values.as_list::<i32>().value(row);
        let values: &Float64Array = values.as_primitive::<Float64Type>();
        // A value that is missing is not a number.
        let values: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::NAN)).collect();
        content.extend_from_slice(&JobRecord::sample_content(&schema, &values));
        Ok(())
    }
}

fn optional(
    batch: &RecordBatch,
    name: &'static str,
    expected: &DataType,
) -> Result<Option<ArrayRef>, BatchError> {
    let Some(column) = batch.column_by_name(name) else { return Ok(None) };
    let is_same = match (column.data_type(), expected) {
        (DataType::List(found), DataType::List(expected)) => {
            found.data_type() == expected.data_type()
        }
        (found, expected) => found == expected,
    };
    if is_same {
        return Ok(Some(column.clone()));
    }
    let found = column.data_type().clone();
    // Clients write integers and texts of other widths.
    let is_like = |t: &DataType| match expected {
        // Views may name the same bytes any number of times, so their copy has no bound.
        DataType::Utf8 => *t == DataType::LargeUtf8,
        DataType::Int64 | DataType::UInt32 => t.is_integer(),
        DataType::List(_) => matches!(
            t, DataType::LargeList(item) | DataType::FixedSizeList(item, _)
                if item.data_type() == &DataType::Float64
        ),
        _ => false,
    };
    let mismatch = || BatchError::Type { name, found: found.clone(), expected: expected.clone() };
    if !is_like(&found) {
        return Err(mismatch());
    }
    cast(column, expected).map(Some).map_err(|_| mismatch())
}

fn texts(batch: &RecordBatch, name: &'static str) -> Result<Option<StringArray>, BatchError> {
    let column = optional(batch, name, &DataType::Utf8)?;
    Ok(column.map(|column| column.as_string::<i32>().clone()))
}

/// Returns the times as nanoseconds.
fn times(batch: &RecordBatch) -> Result<ArrayRef, BatchError> {
    let column = batch.column_by_name("time").ok_or(BatchError::Missing("time"))?;
    let found = column.data_type().clone();
    let expected = DataType::Timestamp(TimeUnit::Nanosecond, None);
    let mismatch = || BatchError::Type { name: "time", found: found.clone(), expected };
    match &found {
        DataType::Int64 | DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            cast(column, &DataType::Int64).map_err(|_| mismatch())
        }
        _ => Err(mismatch()),
    }
}
