//! The measurements of a job as a Parquet file.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use skopos_term::Failure;

use super::table::Samples;
use crate::verbs::job::one::OneJob;

/// The columns, as the table `job_samples` has them.
const SCHEMA: &str = "message job_samples {
    REQUIRED BYTE_ARRAY node (STRING);
    REQUIRED INT64 time (TIMESTAMP(NANOS, true));
    REQUIRED BYTE_ARRAY schema (STRING);
    REQUIRED BYTE_ARRAY metric (STRING);
    REQUIRED DOUBLE value;
}";

/// The key of the job's document in the metadata of the file.
const KEY: &str = "skopos.job";

/// Rows of a row group: what a reader takes into memory at once.
const GROUP_ROWS: usize = 1 << 20;

/// Columns of a row group.
#[derive(Default)]
struct Group {
    nodes: Vec<ByteArray>,
    times: Vec<i64>,
    schemas: Vec<ByteArray>,
    metrics: Vec<ByteArray>,
    values: Vec<f64>,
}

/// Writes the measurements; the rest of the job is a JSON document in the metadata of the file.
pub(super) fn write(
    samples: &Samples,
    job: &OneJob,
    out: &mut (impl Write + Send),
) -> Result<(), Failure> {
    let document = serde_json::to_string(job)
        .map_err(|e| Failure::new("the job cannot be encoded").because(&e))?;
    let mut groups = vec![Group::default()];
    samples.for_each(|sample| {
        if groups.last().is_none_or(|group| group.values.len() == GROUP_ROWS) {
            groups.push(Group::default());
        }
        let Some(group) = groups.last_mut() else { return };
        group.nodes.push(sample.node.into());
        group.times.push(sample.time_ns);
        group.schemas.push(sample.schema.into());
        group.metrics.push(sample.metric.into());
        group.values.push(sample.value);
    })?;
    let failed = |e: ParquetError| Failure::new("the job cannot be written").because(&e);
    write_groups(&groups, document, out).map_err(failed)
}

fn write_groups(
    groups: &[Group],
    document: String,
    out: &mut (impl Write + Send),
) -> Result<(), ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(vec![KeyValue::new(KEY.to_owned(), document)]))
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    for group in groups {
        let mut row_group = writer.next_row_group()?;
        column::<ByteArrayType>(&mut row_group, &group.nodes)?;
        column::<Int64Type>(&mut row_group, &group.times)?;
        column::<ByteArrayType>(&mut row_group, &group.schemas)?;
        column::<ByteArrayType>(&mut row_group, &group.metrics)?;
        column::<DoubleType>(&mut row_group, &group.values)?;
        row_group.close()?;
    }
    writer.close().map(drop)
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the schema has fewer columns".to_owned()));
    };
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}
