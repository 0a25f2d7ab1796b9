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

/// The columns of a row group. Rows that are read in their order cost each page once; a column that is not read costs nothing.
/// Each column has at most a page and a dictionary in memory.
#[derive(Default)]
pub(super) struct Group {
    /// The number of the group in its segment.
    pub(super) number: usize,
    positions: Pages<Int32Type>,
    kinds: Pages<ByteArrayType>,
    schemas: Pages<ByteArrayType>,
    nodes: Pages<ByteArrayType>,
    times: Pages<Int64Type>,
    values: Pages<DoubleType>,
    documents: Pages<ByteArrayType>,
    raw: Pages<ByteArrayType>,
}

/// The segment of a group.
#[derive(Clone, Copy)]
pub(super) struct Source<'s> {
    pub(super) blocks: &'s Arc<Blocks>,
    pub(super) metadata: &'s ParquetMetaData,
}

/// Rows of one job.
pub(super) struct Wanted<'w> {
    pub(super) id: &'w JobId,
    /// The rows in the group.
    pub(super) rows: Range<usize>,
    /// The kind of all of these rows, if they have one. Columns that rows of this kind do not have are not read.
    pub(super) kind: Option<Kind>,
}

impl Group {
    /// Returns the columns of a group, of which nothing is read yet.
    pub(super) fn new(number: usize) -> Self {
        Self { number, ..Self::default() }
    }

    /// Reads rows of a job. Returns their records with the position of each in the order of arrival. After an error, the group
    /// must not be read any more.
    ///
    /// # Errors
    /// The file is damaged, or it cannot be read.
    pub(super) fn read(
        &mut self,
        source: Source<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<(u32, StoredRecord)>, ParquetError> {
        let (of, rows) = ((source, self.number), &wanted.rows);
        let may_be_sample = wanted.kind.is_none_or(|kind| kind == Kind::Sample);
        let may_be_document = wanted.kind != Some(Kind::Sample);
        let columns = Columns {
            positions: self.positions.read(of, Column::Position, rows)?,
            kinds: self.kinds.read(of, Column::Kind, rows)?,
            nodes: self.nodes.read(of, Column::Node, rows)?,
            times: self.times.read(of, Column::Time, rows)?,
            schemas: match may_be_sample {
                true => Some(self.schemas.read(of, Column::Schema, rows)?),
                false => None,
            },
            lists: match may_be_sample {
                true => Some(Lists::new(self.values.read(of, Column::Values, rows)?)),
                false => None,
            },
            documents: match may_be_document {
                true => Some(self.documents.read(of, Column::Document, rows)?),
                false => None,
            },
            raw: self.raw.read(of, Column::Raw, rows)?,
        };
        columns.records(wanted)
    }
}

/// The pages of a column, once it is read, and the row that comes next.
struct Pages<T: DataType>(Option<(ColumnReaderImpl<T>, usize)>);

impl<T: DataType> Default for Pages<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: DataType> Pages<T> {
    fn read(
        &mut self,
        of: (Source<'_>, usize),
        column: Column,
        rows: &Range<usize>,
    ) -> Result<Values<T::T>, ParquetError> {
        // Rows before the next one are read from the begin of the group.
        let (mut reader, next) = match self.0.take().filter(|(_, next)| *next <= rows.start) {
            Some(open) => open,
            None => (open(of, column)?, 0),
        };
        let skipped = rows.start - next;
        if skipped > 0 && reader.skip_records(skipped)? < skipped {
            return Err(ended());
        }
        let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        let levels = (Some(&mut defined), Some(&mut repeated));
        let (read, ..) = reader.read_records(rows.len(), levels.0, levels.1, &mut values)?;
        if read != rows.len() {
            return Err(ended());
        }
        self.0 = Some((reader, rows.end));
        Ok(Values { values: values.into_iter(), defined, repeated })
    }
}

/// Opens a column of a group.
fn open<T: DataType>(
    (source, number): (Source<'_>, usize),
    column: Column,
) -> Result<ColumnReaderImpl<T>, ParquetError> {
    let at = column as usize;
    let group = source.metadata.row_group(number);
    let all = usize::try_from(group.num_rows()).unwrap_or(0);
    let pages = source.metadata.offset_index().and_then(|index| index.get(number));
    let places = pages.and_then(|pages| Some(pages.get(at)?.page_locations().clone()));
    let pages: Box<dyn PageReader> =
        Box::new(SerializedPageReader::new(source.blocks.clone(), group.column(at), all, places)?);
    let of = source.metadata.file_metadata().schema_descr().column(at);
    Ok(ColumnReaderImpl::<T>::new(of, pages))
}

/// Consecutive rows of one group, column by column. A column that rows of their kind do not have was not read.
struct Columns {
    positions: Values<i32>,
    kinds: Values<ByteArray>,
    schemas: Option<Values<ByteArray>>,
    nodes: Values<ByteArray>,
    times: Values<i64>,
    lists: Option<Lists>,
    documents: Option<Values<ByteArray>>,
    raw: Values<ByteArray>,
}

/// A column with its levels. A column without nulls has no levels.
struct Values<T> {
    values: std::vec::IntoIter<T>,
    defined: Vec<i16>,
    repeated: Vec<i16>,
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

/// The column of lists, which is read row by row.
struct Lists {
    of: Values<f64>,
    /// The level with which the next row begins.
    level: usize,
}

impl Lists {
    fn new(of: Values<f64>) -> Self {
        Self { of, level: 0 }
    }

    /// Puts the values of the next row into `values`.
    fn next(&mut self, values: &mut Vec<f64>) -> Result<(), ParquetError> {
        let Values { values: left, defined, repeated } = &mut self.of;
        let after = repeated.get(self.level + 1..).ok_or_else(ended)?;
        let end = after.iter().position(|level| *level == 0).unwrap_or(after.len());
        let row = self.level..self.level + 1 + end;
        let levels = defined.get(row.clone()).ok_or_else(ended)?;
        let count = levels.iter().filter(|level| **level == IN_LIST).count();
        values.clear();
        values.extend(left.take(count));
        self.level = row.end;
        if values.len() == count { Ok(()) } else { Err(ended()) }
    }
}

impl Columns {
    fn records(mut self, wanted: &Wanted<'_>) -> Result<Vec<(u32, StoredRecord)>, ParquetError> {
        let rows = wanted.rows.len();
        let (mut records, mut values) = (Vec::with_capacity(rows), Vec::new());
        for row in 0..rows {
            let kind = self.kinds.next()?;
            let kind = Kind::of_name(kind.as_utf8()?).ok_or_else(|| unknown(&kind))?;
            if wanted.kind.is_some_and(|wanted| wanted != kind) {
                let why = "a row has another kind than the list of parts says";
                return Err(ParquetError::General(why.to_owned()));
            }
            let schema = self.schemas.as_mut().map(|of| of.get(row)).transpose()?.flatten();
            self.lists.as_mut().map(|of| of.next(&mut values)).transpose()?;
            let document = self.documents.as_mut().map(|of| of.get(row)).transpose()?.flatten();
            let raw = self.raw.get(row)?;
            let sample;
            let content = match (&schema, &document, &raw) {
                (Some(schema), None, None) => {
                    sample = JobRecord::sample_content(schema.as_utf8()?, &values);
                    &sample[..]
                }
                (None, Some(content), None) | (None, None, Some(content)) => content.data(),
                _ => return Err(ParquetError::General("a row has no content, or two".to_owned())),
            };
            let node = self.nodes.next()?;
            let record = JobRecord {
                kind,
                job: wanted.id.job(),
                generation: wanted.id.generation(),
                node: node.as_utf8()?,
                time: Timestamp::from_nanos(self.times.next()?),
                content,
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
