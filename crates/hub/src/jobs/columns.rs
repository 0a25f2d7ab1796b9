//! Records of jobs as Arrow batches with the columns of a segment: the form in which they are downloaded.
//!
//! `docs/reference/job-segment.md` has the columns. A client turns a batch into records again, and compares their sum with that
//! of the hub.

use std::sync::{Arc, LazyLock};

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_query::arrow::array::{
    Array as _, AsArray as _, BinaryBuilder, Float64Builder, ListBuilder, RecordBatch,
    StringBuilder, TimestampNanosecondBuilder, UInt32Builder,
};
use skopos_query::arrow::datatypes::{
    DataType, Field, Float64Type, Schema, SchemaRef, TimeUnit, TimestampNanosecondType, UInt32Type,
};
use skopos_query::arrow::error::ArrowError;
use skopos_store::jobs::StoredRecord;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let field = |name: &str, of: DataType, nullable| Field::new(name, of, nullable);
    let value = Arc::new(field("item", DataType::Float64, false));
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        field("job", DataType::Utf8, false),
        field("generation", DataType::UInt32, false),
        field("part", DataType::UInt32, false),
        field("position", DataType::UInt32, false),
        field("kind", DataType::Utf8, false),
        field("schema", DataType::Utf8, true),
        field("node", DataType::Utf8, false),
        field("time", time, false),
        field("values", DataType::List(value), true),
        field("document", DataType::Utf8, true),
        field("raw", DataType::Binary, true),
    ]))
});

/// Returns the columns.
pub fn download_schema() -> SchemaRef {
    SCHEMA.clone()
}

/// A record with its place in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedRecord {
    /// The number of the part.
    pub part: u32,
    /// The place in the part, in the order of arrival.
    pub position: u32,
    /// The record.
    pub record: StoredRecord,
}

/// The columns of a batch that is being made.
pub(super) struct Builder {
    rows: usize,
    bytes: usize,
    jobs: StringBuilder,
    generations: UInt32Builder,
    parts: UInt32Builder,
    positions: UInt32Builder,
    kinds: StringBuilder,
    schemas: StringBuilder,
    nodes: StringBuilder,
    times: TimestampNanosecondBuilder,
    values: ListBuilder<Float64Builder>,
    documents: StringBuilder,
    raw: BinaryBuilder,
    /// The values of one record.
    vector: Vec<f64>,
}

impl Default for Builder {
    fn default() -> Self {
        let item = Field::new("item", DataType::Float64, false);
        Self {
            rows: 0,
            bytes: 0,
            jobs: StringBuilder::new(),
            generations: UInt32Builder::new(),
            parts: UInt32Builder::new(),
            positions: UInt32Builder::new(),
            kinds: StringBuilder::new(),
            schemas: StringBuilder::new(),
            nodes: StringBuilder::new(),
            times: TimestampNanosecondBuilder::new(),
            values: ListBuilder::new(Float64Builder::new()).with_field(item),
            documents: StringBuilder::new(),
            raw: BinaryBuilder::new(),
            vector: Vec::new(),
        }
    }
}

impl Builder {
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the bytes of the records.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a record.
    pub(super) fn push(&mut self, (part, position): (u32, u32), record: &JobRecord<'_>) {
        self.rows += 1;
        self.bytes += 64 + record.job.len() + record.content.len();
        self.jobs.append_value(record.job);
        self.generations.append_value(record.generation);
        self.parts.append_value(part);
        self.positions.append_value(position);
        self.kinds.append_value(record.kind.name());
        self.nodes.append_value(record.node);
        self.times.append_value(record.time.as_nanos());
        if let Some((schema, values)) = record.sample() {
            self.schemas.append_value(schema);
            self.vector.clear();
            self.vector.extend(values);
            self.values.values().append_slice(&self.vector);
            self.values.append(true);
            self.documents.append_null();
            self.raw.append_null();
            return;
        }
        self.schemas.append_null();
        self.values.append(false);
        match std::str::from_utf8(record.content) {
            Ok(document) if record.kind != Kind::Sample => {
                self.documents.append_value(document);
                self.raw.append_null();
            }
            _ => {
                self.documents.append_null();
                self.raw.append_value(record.content);
            }
        }
    }

    pub(super) fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let times = self.times.finish().with_timezone("UTC");
        RecordBatch::try_new(
            download_schema(),
            vec![
                Arc::new(self.jobs.finish()),
                Arc::new(self.generations.finish()),
                Arc::new(self.parts.finish()),
                Arc::new(self.positions.finish()),
                Arc::new(self.kinds.finish()),
                Arc::new(self.schemas.finish()),
                Arc::new(self.nodes.finish()),
                Arc::new(times),
                Arc::new(self.values.finish()),
                Arc::new(self.documents.finish()),
                Arc::new(self.raw.finish()),
            ],
        )
    }
}

/// Returns the records of a batch in the order of its rows; `None` if it is not a batch of a download.
pub fn records_of(batch: &RecordBatch) -> Option<Vec<PlacedRecord>> {
    let text = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
    let number = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<UInt32Type>();
    let (jobs, kinds, schemas) = (text("job")?, text("kind")?, text("schema")?);
    let (nodes, documents) = (text("node")?, text("document")?);
    let (generations, parts) = (number("generation")?, number("part")?);
    let positions = number("position")?;
    let times = batch.column_by_name("time")?.as_primitive_opt::<TimestampNanosecondType>()?;
    let lists = batch.column_by_name("values")?.as_list_opt::<i32>()?;
    let values = lists.values().as_primitive_opt::<Float64Type>()?.values();
    let raw = batch.column_by_name("raw")?.as_binary_opt::<i32>()?;
    let mut records = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let content = if schemas.is_valid(row) {
            let (from, to) = (lists.value_offsets()[row], lists.value_offsets()[row + 1]);
            let list = values.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)?;
            JobRecord::sample_content(schemas.value(row), list)
        } else if documents.is_valid(row) {
            documents.value(row).as_bytes().to_vec()
        } else {
            raw.value(row).to_vec()
        };
        let record = JobRecord {
            kind: Kind::of_name(kinds.value(row))?,
            job: jobs.value(row),
            generation: generations.value(row),
            node: nodes.value(row),
            time: Timestamp::from_nanos(times.value(row)),
            content: &content,
        };
        // A name that is too long would not be read back.
        JobId::new(record.job, record.generation).ok()?;
        if record.node.len() > usize::from(u8::MAX) {
            return None;
        }
        let record = StoredRecord::of(&record);
        records.push(PlacedRecord {
            part: parts.value(row),
            position: positions.value(row),
            record,
        });
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_their_columns_bit_for_bit() {
        let odd = f64::from_bits(0x7ff8_0000_dead_beef);
        let sample = JobRecord::sample_content("node", &[odd, -0.0, f64::INFINITY]);
        let contents: [(Kind, &[u8]); 6] = [
            (Kind::Start, br#"{"user":"ann"}"#),
            (Kind::Sample, &sample),
            (Kind::Sample, b"\x04no"),
            (Kind::Report, b"\xff not text"),
            (Kind::Spans, b""),
            (Kind::End, b"{}"),
        ];
        let mut builder = Builder::default();
        let mut expected = Vec::new();
        for (at, (kind, content)) in (0..).zip(contents) {
            let time = Timestamp::from_nanos(i64::MIN + i64::from(at));
            let record =
                JobRecord { kind, job: "a/'7\"", generation: 3, node: "n01", time, content };
            builder.push((9, at), &record);
            expected.push(PlacedRecord {
                part: 9,
                position: at,
                record: StoredRecord::of(&record),
            });
        }
        assert_eq!(records_of(&builder.finish().expect("a batch")), Some(expected));
        assert_eq!(records_of(&RecordBatch::new_empty(Arc::new(Schema::empty()))), None);
    }
}
