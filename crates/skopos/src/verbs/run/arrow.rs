//! `series.arrow`: the series as an Arrow IPC file. It has a nullable Float64 column for each of [`COLUMNS`],
//! with the unit in the field's metadata.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use skopos_task::{COLUMNS, Row};

/// The key of a column's unit.
const UNIT: &str = "unit";

/// Writes the file with all rows in one batch, because a series has few rows.
pub(super) fn write(file: &mut impl Write, series: &[Row]) -> io::Result<()> {
    let written = batch(series).and_then(|batch| {
        let mut writer = FileWriter::try_new(file, &batch.schema())?;
        writer.write(&batch)?;
        writer.finish()
    });
    written.map_err(|e| match e {
        ArrowError::IoError(_, e) => e,
        other => io::Error::other(other),
    })
}

fn batch(series: &[Row]) -> Result<RecordBatch, ArrowError> {
    let field = |name: &&str| {
        let unit = HashMap::from([(UNIT.to_owned(), unit(name).to_owned())]);
        Field::new(*name, DataType::Float64, true).with_metadata(unit)
    };
    let column = |at: usize| -> ArrayRef {
        let values = series.iter().map(|row| row.values().get(at).copied().flatten());
        Arc::new(values.collect::<Float64Array>())
    };
    let schema = Schema::new(COLUMNS.iter().map(field).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), (0..COLUMNS.len()).map(column).collect())
}

/// Returns the unit at the end of a column's name; an empty text for a count.
fn unit(name: &str) -> &'static str {
    ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(unit)).unwrap_or("")
}
