//! Rows that wait for their row group, column by column.

use std::str;

use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedRowGroupWriter;
use skopos_model::job::{JobId, JobRecord, Kind};

use super::columns::{EMPTY_LIST, IN_LIST, NO_LIST};
use crate::sealed::SummedWriter;

/// Rows of a group that is not written yet.
#[derive(Debug, Default)]
pub(super) struct Rows {
    jobs: Vec<ByteArray>,
    generations: Vec<i32>,
    parts: Vec<i32>,
    positions: Vec<i32>,
    kinds: Vec<ByteArray>,
    schemas: Optional,
    nodes: Vec<ByteArray>,
    times: Vec<i64>,
    values: Vec<f64>,
    /// Definition and repetition levels of the values.
    value_levels: (Vec<i16>, Vec<i16>),
    documents: Optional,
    raw: Optional,
    /// Bytes of the contents.
    bytes: usize,
}

/// A column with values in some rows.
#[derive(Debug, Default)]
struct Optional {
    levels: Vec<i16>,
    values: Vec<ByteArray>,
}

/// Names of one part, which its rows share.
pub(super) struct Names {
    job: ByteArray,
    generation: i32,
    part: i32,
}

impl Names {
    pub(super) fn new(id: &JobId, part: u32) -> Self {
        let generation = id.generation().cast_signed();
        Self { job: ByteArray::from(id.job()), generation, part: part.cast_signed() }
    }
}

impl Optional {
    fn push(&mut self, value: Option<ByteArray>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns about the bytes of the contents.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a record, which is the one at `position` in the order of arrival.
    pub(super) fn push(&mut self, names: &Names, position: u32, record: &JobRecord<'_>) {
        self.jobs.push(names.job.clone());
        self.generations.push(names.generation);
        self.parts.push(names.part);
        self.positions.push(position.cast_signed());
        self.kinds.push(same_or_new(self.kinds.last(), record.kind.name()));
        self.nodes.push(same_or_new(self.nodes.last(), record.node));
        self.times.push(record.time.as_nanos());
        self.bytes += record.content.len();
        let (defined, repeated) = &mut self.value_levels;
        if let Some((schema, values)) = record.sample() {
            self.schemas.push(Some(same_or_new(self.schemas.values.last(), schema)));
            self.documents.push(None);
            self.raw.push(None);
            repeated.push(0);
            match values.len() {
                0 => defined.push(EMPTY_LIST),
                count => {
                    repeated.resize(repeated.len() + count - 1, 1);
                    defined.resize(defined.len() + count, IN_LIST);
                }
            }
            self.values.extend(values);
            return;
        }
        self.schemas.push(None);
        defined.push(NO_LIST);
        repeated.push(0);
        // Readers of Parquet refuse a text that is not UTF-8.
        let is_document = record.kind != Kind::Sample && str::from_utf8(record.content).is_ok();
        let content = Some(ByteArray::from(record.content.to_vec()));
        let (document, raw) = if is_document { (content, None) } else { (None, content) };
        self.documents.push(document);
        self.raw.push(raw);
    }

    /// Writes the rows as a row group.
    pub(super) fn write(
        &self,
        group: &mut SerializedRowGroupWriter<'_, SummedWriter>,
    ) -> Result<(), ParquetError> {
        column::<ByteArrayType>(group, &self.jobs, None, None)?;
        column::<Int32Type>(group, &self.generations, None, None)?;
        column::<Int32Type>(group, &self.parts, None, None)?;
        column::<Int32Type>(group, &self.positions, None, None)?;
        column::<ByteArrayType>(group, &self.kinds, None, None)?;
        column::<ByteArrayType>(group, &self.schemas.values, Some(&self.schemas.levels), None)?;
        column::<ByteArrayType>(group, &self.nodes, None, None)?;
        column::<Int64Type>(group, &self.times, None, None)?;
        let (defined, repeated) = &self.value_levels;
        column::<DoubleType>(group, &self.values, Some(defined), Some(repeated))?;
        column::<ByteArrayType>(group, &self.documents.values, Some(&self.documents.levels), None)?;
        column::<ByteArrayType>(group, &self.raw.values, Some(&self.raw.levels), None)
    }
}

/// Returns the text of the row before if it is the same, which costs no memory.
fn same_or_new(last: Option<&ByteArray>, text: &str) -> ByteArray {
    let same = last.filter(|last| last.data() == text.as_bytes());
    same.cloned().unwrap_or_else(|| ByteArray::from(text))
}

/// Writes the next column.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, SummedWriter>,
    values: &[T::T],
    defined: Option<&[i16]>,
    repeated: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let none = || ParquetError::General("the schema has too few columns".to_owned());
    let mut column = group.next_column()?.ok_or_else(none)?;
    column.typed::<T>().write_batch(values, defined, repeated)?;
    column.close()
}
