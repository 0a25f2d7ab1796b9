//! Encodes answers piece by piece, so that a long answer is not in memory twice.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::datatypes::{Field, Schema};
use skopos_query::arrow::error::ArrowError;
use skopos_query::arrow::ipc::writer::StreamWriter;
use skopos_query::arrow::json::WriterBuilder;
use skopos_query::arrow::json::writer::{JsonArray, Writer};
use skopos_query::{Answer, Way};

/// The part of the JSON document before its rows.
#[derive(Serialize)]
struct Head<'a> {
    columns: Vec<ColumnJson<'a>>,
}

#[derive(Serialize)]
struct ColumnJson<'a> {
    name: &'a str,
    r#type: String,
}

/// The part of the JSON document after its rows.
#[derive(Serialize)]
struct Tail {
    way: &'static str,
    missing: Vec<String>,
    elapsed_seconds: f64,
}

/// Encodes an answer as the document `docs/json/sql.schema.json`, on one line.
pub struct JsonRows {
    rows: Writer<Vec<u8>, JsonArray>,
    tail: Tail,
}

impl JsonRows {
    /// Starts a document for `answer`, which took the time `took`.
    ///
    /// # Errors
    /// Fails if the columns cannot be encoded.
    pub fn new(answer: &Answer, took: Duration) -> Result<Self, ArrowError> {
        let fields = answer.schema.fields().iter();
        let column = |f: &Field| -> String { f.data_type().to_string() };
        let columns = fields.map(|f| ColumnJson { name: f.name(), r#type: column(f) }).collect();
        let mut head = serde_json::to_vec(&Head { columns }).map_err(io::Error::other)?;
        head.pop();
        head.extend_from_slice(b",\"rows\":");
        let way = if answer.way == Way::Point { "point" } else { "planned" };
        // Rounded to microseconds.
        let elapsed_seconds = took.as_micros() as f64 / 1e6;
        let tail = Tail { way, missing: answer.missing.clone(), elapsed_seconds };
        Ok(Self { rows: rows(head), tail })
    }

    /// Encodes the next rows.
    ///
    /// # Errors
    /// Fails if a column has a type that cannot be encoded.
    pub fn piece(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        self.rows.write(batch)?;
        Ok(std::mem::take(self.rows.get_mut()))
    }

    /// Encodes the end.
    ///
    /// # Errors
    /// Fails if the end cannot be encoded.
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

/// Returns a writer that appends rows as a list of objects to `before`.
fn rows(before: Vec<u8>) -> Writer<Vec<u8>, JsonArray> {
    WriterBuilder::new().with_explicit_nulls(true).build::<_, JsonArray>(before)
}

/// Encodes an answer as an Arrow IPC stream.
pub struct ArrowRows(StreamWriter<Vec<u8>>);

impl ArrowRows {
    /// Starts a stream with the columns of `schema`.
    ///
    /// # Errors
    /// Fails if the schema cannot be encoded.
    pub fn new(schema: &Schema) -> Result<Self, ArrowError> {
        Ok(Self(StreamWriter::try_new(Vec::new(), schema)?))
    }

    /// Encodes the next rows.
    ///
    /// # Errors
    /// Fails if a column has a type that cannot be encoded.
    pub fn piece(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        self.0.write(batch)?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    /// Encodes the end.
    ///
    /// # Errors
    /// Fails if the end cannot be encoded.
    pub fn end(self) -> Result<Vec<u8>, ArrowError> {
        self.0.into_inner()
    }
}

/// Encodes rows as a list of objects.
///
/// # Errors
/// Fails if a column has a type that cannot be encoded.
pub(crate) fn rows_json(batches: &[RecordBatch]) -> Result<String, ArrowError> {
    let mut rows = rows(Vec::new());
    rows.write_batches(&batches.iter().collect::<Vec<_>>())?;
    rows.finish()?;
    String::from_utf8(rows.into_inner()).map_err(|e| ArrowError::JsonError(e.to_string()))
}

/// Writes batches as an Arrow IPC stream.
///
/// # Errors
/// Fails if the batches cannot be encoded or written.
pub fn arrow<'b>(
    schema: &Schema,
    batches: impl IntoIterator<Item = &'b RecordBatch>,
    writer: impl Write,
) -> Result<(), ArrowError> {
    let mut writer = StreamWriter::try_new(writer, schema)?;
    batches.into_iter().try_for_each(|batch| writer.write(batch))?;
    writer.finish()
}
