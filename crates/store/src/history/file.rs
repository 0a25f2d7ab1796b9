//! Reads columns of one row group of a part's file.

use std::ops::Range;
use std::sync::Arc;

use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::column::{Column, TEXT_COLUMNS};
use super::series::Samples;
use crate::sealed::Blocks;

/// Reads rows of a group in ascending order.
pub(super) struct GroupReader {
    columns: Vec<ColumnReader>,
    /// The next row of all columns.
    next: usize,
    /// Definition levels of the rows that were read last: 1 for a value, 0 for null.
    levels: Vec<i16>,
}

/// Reads the values of one column.
enum ColumnReader {
    Time(ColumnReaderImpl<Int64Type>),
    Value(ColumnReaderImpl<DoubleType>),
    Integer(ColumnReaderImpl<Int64Type>),
    Origin(ColumnReaderImpl<Int32Type>),
    Bound(ColumnReaderImpl<DoubleType>),
    Text(ColumnReaderImpl<ByteArrayType>),
}

impl GroupReader {
    /// Opens these columns of a group.
    ///
    /// # Errors
    /// The metadata do not fit.
    pub(super) fn open(
        blocks: &Arc<Blocks>,
        metadata: &ParquetMetaData,
        group: usize,
        columns: &[Column],
    ) -> Result<Self, ParquetError> {
        let schema = metadata.file_metadata().schema_descr();
        let row_group = metadata.row_group(group);
        let rows = usize::try_from(row_group.num_rows()).unwrap_or(0);
        let pages = metadata.offset_index().and_then(|index| index.get(group));
        let open = |column: &Column| {
            let at = TEXT_COLUMNS + *column as usize;
            let places = pages.and_then(|pages| Some(pages.get(at)?.page_locations().clone()));
            let chunk = row_group.column(at);
            let pages: Box<dyn PageReader> =
                Box::new(SerializedPageReader::new(blocks.clone(), chunk, rows, places)?);
            let of = schema.column(at);
            Ok(match column {
                Column::Time => ColumnReader::Time(ColumnReaderImpl::new(of, pages)),
                Column::Value => ColumnReader::Value(ColumnReaderImpl::new(of, pages)),
                Column::Integer => ColumnReader::Integer(ColumnReaderImpl::new(of, pages)),
                Column::Origin => ColumnReader::Origin(ColumnReaderImpl::new(of, pages)),
                Column::Bound => ColumnReader::Bound(ColumnReaderImpl::new(of, pages)),
                Column::Text => ColumnReader::Text(ColumnReaderImpl::new(of, pages)),
            })
        };
        let columns: Result<_, ParquetError> = columns.iter().map(open).collect();
        Ok(Self { columns: columns?, next: 0, levels: Vec::new() })
    }

    /// Appends rows to `samples`, where they become the rows from `at` on. Rows before them are skipped.
    ///
    /// # Errors
    /// The file is damaged, or it cannot be read.
    pub(super) fn read(
        &mut self,
        rows: Range<usize>,
        samples: &mut Samples,
        at: usize,
    ) -> Result<(), ParquetError> {
        let (skipped, count) = (rows.start.saturating_sub(self.next), rows.len());
        self.next = rows.end;
        let levels = &mut self.levels;
        for column in &mut self.columns {
            levels.clear();
            match column {
                ColumnReader::Time(reader) => {
                    read(reader, skipped, count, levels, &mut samples.times)?;
                }
                ColumnReader::Value(reader) => {
                    let start = samples.values.len();
                    read(reader, skipped, count, levels, &mut samples.values)?;
                    spread(&mut samples.values, start, levels);
                }
                ColumnReader::Integer(reader) => {
                    let mut integers = Vec::new();
                    read(reader, skipped, count, levels, &mut integers)?;
                    samples.integers.extend(known(levels, at).zip(integers));
                }
                ColumnReader::Origin(reader) => {
                    let mut codes = Vec::with_capacity(count);
                    read(reader, skipped, count, levels, &mut codes)?;
                    // A code that does not fit is as unknown as the last one.
                    let code = |code: i32| u8::try_from(code).unwrap_or(u8::MAX);
                    samples.origins.extend(codes.into_iter().map(code));
                }
                ColumnReader::Bound(reader) => {
                    let mut bounds = Vec::new();
                    read(reader, skipped, count, levels, &mut bounds)?;
                    samples.bounds.extend(known(levels, at).zip(bounds));
                }
                ColumnReader::Text(reader) => {
                    let mut texts = Vec::new();
                    read(reader, skipped, count, levels, &mut texts)?;
                    for (row, text) in known(levels, at).zip(&texts) {
                        samples.texts.push((row, text.as_utf8()?.to_owned()));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Skips rows, and appends the values of the next rows. Null has no value and level 0.
fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    skipped: usize,
    count: usize,
    levels: &mut Vec<i16>,
    values: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    let ended = || ParquetError::EOF("a column ends before its row group".to_owned());
    if skipped > 0 && reader.skip_records(skipped)? < skipped {
        return Err(ended());
    }
    let (read, ..) = reader.read_records(count, Some(levels), None, values)?;
    if read < count { Err(ended()) } else { Ok(()) }
}

/// Moves the values from `start` on to the rows with level 1; the others become NaN.
fn spread(values: &mut Vec<f64>, start: usize, levels: &[i16]) {
    let mut from = values.len();
    if from == start + levels.len() {
        return;
    }
    values.resize(start + levels.len(), f64::NAN);
    for (row, level) in levels.iter().enumerate().rev() {
        values[start + row] = if *level == 0 {
            f64::NAN
        } else {
            from -= 1;
            values[from]
        };
    }
}

/// Returns the rows that are not null; the first level is that of row `at`.
fn known(levels: &[i16], at: usize) -> impl Iterator<Item = usize> {
    levels.iter().zip(at..).filter_map(|(level, row)| (*level > 0).then_some(row))
}
