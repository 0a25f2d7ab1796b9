//! Reads the rows of one row group, and makes records of them.

use std::ops::Range;
use std::sync::Arc;

use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};

use super::columns::{Column, IN_LIST};
use crate::jobs::part::StoredRecord;
use crate::sealed::Blocks;

/// Consecutive rows of one group, column by column.
struct Columns {
    positions: Values<i32>,
    kinds: Values<ByteArray>,
    schemas: Values<ByteArray>,
    nodes: Values<ByteArray>,
    times: Values<i64>,
    values: Values<f64>,
    documents: Values<ByteArray>,
    raw: Values<ByteArray>,
}

/// A column with its levels. A column without nulls has no levels.
struct Values<T> {
    values: std::vec::IntoIter<T>,
    defined: Vec<i16>,
    repeated: Vec<i16>,
}

/// The source of the columns of a group.
pub(super) struct Group<'g> {
    pub(super) blocks: &'g Arc<Blocks>,
    pub(super) metadata: &'g ParquetMetaData,
    pub(super) number: usize,
}

impl Group<'_> {
    /// Reads rows of a job. Returns their records with the position of each in the order of arrival.
    ///
    /// # Errors
    /// The file is damaged, or it cannot be read.
    pub(super) fn read(
        &self,
        id: &JobId,
        rows: Range<usize>,
    ) -> Result<Vec<(u32, StoredRecord)>, ParquetError> {
        let rows = &rows;
        let columns = Columns {
            positions: self.column::<Int32Type>(Column::Position, rows)?,
            kinds: self.column::<ByteArrayType>(Column::Kind, rows)?,
            schemas: self.column::<ByteArrayType>(Column::Schema, rows)?,
            nodes: self.column::<ByteArrayType>(Column::Node, rows)?,
            times: self.column::<Int64Type>(Column::Time, rows)?,
            values: self.column::<DoubleType>(Column::Values, rows)?,
            documents: self.column::<ByteArrayType>(Column::Document, rows)?,
            raw: self.column::<ByteArrayType>(Column::Raw, rows)?,
        };
        columns.records(id, rows.len())
    }

    fn column<T: DataType>(
        &self,
        column: Column,
        rows: &Range<usize>,
    ) -> Result<Values<T::T>, ParquetError> {
        let at = column as usize;
        let group = self.metadata.row_group(self.number);
        let all = usize::try_from(group.num_rows()).unwrap_or(0);
        let pages = self.metadata.offset_index().and_then(|index| index.get(self.number));
        let places = pages.and_then(|pages| Some(pages.get(at)?.page_locations().clone()));
        let pages: Box<dyn PageReader> = Box::new(SerializedPageReader::new(
            self.blocks.clone(),
            group.column(at),
            all,
            places,
        )?);
        let of = self.metadata.file_metadata().schema_descr().column(at);
        let mut reader = ColumnReaderImpl::<T>::new(of, pages);
        if rows.start > 0 && reader.skip_records(rows.start)? < rows.start {
            return Err(ended());
        }
        let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        let levels = (Some(&mut defined), Some(&mut repeated));
        let (read, ..) = reader.read_records(rows.len(), levels.0, levels.1, &mut values)?;
        match read == rows.len() {
            true => Ok(Values { values: values.into_iter(), defined, repeated }),
            false => Err(ended()),
        }
    }
}

impl<T> Values<T> {
    fn next(&mut self) -> Result<T, ParquetError> {
        self.values.next().ok_or_else(ended)
    }

    /// Returns the value of a row of a column with nulls.
    fn get(&mut self, row: usize) -> Result<Option<T>, ParquetError> {
        match self.defined.get(row) {
            Some(0) => Ok(None),
            Some(_) => self.next().map(Some),
            None => Err(ended()),
        }
    }
}

impl Columns {
    fn records(
        mut self,
        id: &JobId,
        rows: usize,
    ) -> Result<Vec<(u32, StoredRecord)>, ParquetError> {
        let mut records = Vec::with_capacity(rows);
        // The next level of `values`.
        let mut at = 0;
        for row in 0..rows {
            let kind = self.kinds.next()?;
            let kind = Kind::of_name(kind.as_utf8()?).ok_or_else(|| unknown(&kind))?;
            let schema = self.schemas.get(row)?;
            let mut values = Vec::new();
            loop {
                match self.values.defined.get(at).copied() {
                    Some(IN_LIST) => values.push(self.values.next()?),
                    Some(_) => {}
                    None => return Err(ended()),
                }
                at += 1;
                if self.values.repeated.get(at).is_none_or(|level| *level == 0) {
                    break;
                }
            }
            let (document, raw) = (self.documents.get(row)?, self.raw.get(row)?);
            let content = match (&schema, &document, &raw) {
                (Some(schema), None, None) => JobRecord::sample_content(schema.as_utf8()?, &values),
                (None, Some(content), None) | (None, None, Some(content)) => {
                    content.data().to_vec()
                }
                _ => return Err(ParquetError::General("a row has no content, or two".to_owned())),
            };
            let node = self.nodes.next()?;
            let record = JobRecord {
                kind,
                job: id.job(),
                generation: id.generation(),
                node: node.as_utf8()?,
                time: Timestamp::from_nanos(self.times.next()?),
                content: &content,
            };
            let position = self.positions.next()?.cast_unsigned();
            records.push((position, StoredRecord::of(&record)));
        }
        Ok(records)
    }
}

fn ended() -> ParquetError {
    ParquetError::EOF("a column ends before its row group".to_owned())
}

fn unknown(kind: &ByteArray) -> ParquetError {
    ParquetError::General(format!(
        "`{}` is not a kind of record",
        String::from_utf8_lossy(kind.data())
    ))
}
