//! An answer as bytes, piece by piece: a long one is not in memory twice.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use skopos_model::Timestamp;
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::datatypes::{Field, Schema};
use skopos_query::arrow::error::ArrowError;
use skopos_query::arrow::ipc::writer::StreamWriter;
use skopos_query::arrow::json::WriterBuilder;
use skopos_query::arrow::json::writer::{JsonArray, Writer};
use skopos_query::{Answer, Way};

use crate::standing::Change;

/// Before the rows of the JSON document.
#[derive(Serialize)]
struct Head<'a> {
    columns: Vec<ColumnJson<'a>>,
}

#[derive(Serialize)]
struct ColumnJson<'a> {
    name: &'a str,
    r#type: String,
}

/// After them.
#[derive(Serialize)]
struct Tail {
    way: &'static str,
    missing: Vec<String>,
    elapsed_seconds: f64,
}

/// The document `docs/json/sql.schema.json`, on one line.
pub struct JsonRows {
    rows: Writer<Vec<u8>, JsonArray>,
    tail: Tail,
}

impl JsonRows {
    /// Of an answer that took so long.
    pub fn new(answer: &Answer, took: Duration) -> Result<Self, ArrowError> {
        let fields = answer.schema.fields().iter();
        let column = |f: &Field| -> String { f.data_type().to_string() };
        let columns = fields.map(|f| ColumnJson { name: f.name(), r#type: column(f) }).collect();
        let mut head = serde_json::to_vec(&Head { columns }).map_err(io::Error::other)?;
        head.pop();
        head.extend_from_slice(b",\"rows\":");
        let way = if answer.way == Way::Point { "point" } else { "planned" };
        // To the microsecond.
        let elapsed_seconds = took.as_micros() as f64 / 1e6;
        let tail = Tail { way, missing: answer.missing.clone(), elapsed_seconds };
        Ok(Self { rows: rows(head), tail })
    }

    /// The next rows.
    pub fn piece(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        self.rows.write(batch)?;
        Ok(std::mem::take(self.rows.get_mut()))
    }

    /// What is after the last of them.
    pub fn end(mut self) -> Result<Vec<u8>, ArrowError> {
        self.rows.finish()?;
        let mut bytes = self.rows.into_inner();
        let tail = serde_json::to_vec(&self.tail).map_err(io::Error::other)?;
        bytes.push(b',');
        bytes.extend_from_slice(tail.get(1..).unwrap_or_default());
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Rows as a list of objects, behind what is there already.
pub fn rows(before: Vec<u8>) -> Writer<Vec<u8>, JsonArray> {
    WriterBuilder::new().with_explicit_nulls(true).build::<_, JsonArray>(before)
}

/// An Arrow IPC stream.
pub struct ArrowRows(StreamWriter<Vec<u8>>);

impl ArrowRows {
    /// Of such columns.
    pub fn new(schema: &Schema) -> Result<Self, ArrowError> {
        Ok(Self(StreamWriter::try_new(Vec::new(), schema)?))
    }

    /// The next rows.
    pub fn piece(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        self.0.write(batch)?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    /// What is after the last of them.
    pub fn end(self) -> Result<Vec<u8>, ArrowError> {
        self.0.into_inner()
    }
}

fn rows_json(batches: &[RecordBatch], writer: &mut impl Write) -> Result<(), ArrowError> {
    let mut rows = rows(Vec::new());
    rows.write_batches(&batches.iter().collect::<Vec<_>>())?;
    rows.finish()?;
    writer.write_all(&rows.into_inner())?;
    Ok(())
}

/// What changed in an answer that stands, as `docs/json/watch-sql.schema.json` has it.
pub fn change_json(
    change: &Change,
    time: Timestamp,
    writer: &mut impl Write,
) -> Result<(), ArrowError> {
    write!(writer, "{{\"event\":\"rows\",\"time\":\"{time}\",\"time_ns\":{}", time.as_nanos())?;
    write!(writer, ",\"new\":")?;
    rows_json(&change.new, writer)?;
    write!(writer, ",\"gone\":")?;
    rows_json(std::slice::from_ref(&change.gone), writer)?;
    write!(writer, ",\"rows\":{}}}", change.rows)?;
    Ok(())
}

/// As an Arrow IPC stream.
pub fn arrow<'b>(
    schema: &Schema,
    batches: impl IntoIterator<Item = &'b RecordBatch>,
    writer: impl Write,
) -> Result<(), ArrowError> {
    let mut writer = StreamWriter::try_new(writer, schema)?;
    batches.into_iter().try_for_each(|batch| writer.write(batch))?;
    writer.finish()
}
