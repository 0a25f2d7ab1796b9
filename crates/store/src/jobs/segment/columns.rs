//! The columns of a segment, and how they are written.

use std::sync::{Arc, OnceLock};

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, SchemaDescriptor, TypePtr};

/// The key of the metadata of a segment.
pub(super) const SEGMENT_KEY: &str = "skopos.segment";

/// The key of the list of parts.
pub(super) const PARTS_KEY: &str = "skopos.parts";

/// The layout that this program writes.
pub(super) const LAYOUT: u32 = 1;

/// Bytes of a page before compression: those of one job with 281 measurements of 45 values. Reading a job reads few
/// bytes of its neighbours.
const PAGE_BYTES: usize = 128 * 1024;

/// Rows of a page of a narrow column. A page of names and times has those of ten or more jobs; smaller pages would be
/// mostly headers.
const PAGE_ROWS: usize = 4096;

/// The schema of a segment.
const SCHEMA: &str = "message skopos {
    required binary job (STRING);
    required int32 generation (INTEGER(32,false));
    required int32 part (INTEGER(32,false));
    required int32 position (INTEGER(32,false));
    required binary kind (STRING);
    optional binary schema (STRING);
    required binary node (STRING);
    required int64 time (TIMESTAMP(NANOS,true));
    optional group values (LIST) {
        repeated group list {
            required double element;
        }
    }
    optional binary document (STRING);
    optional binary raw;
}";

/// A column, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Position = 3,
    Kind = 4,
    Schema = 5,
    Node = 6,
    Time = 7,
    Values = 8,
    Document = 9,
    Raw = 10,
}

/// Definition levels of `values`: null, an empty list, a value.
pub(super) const NO_LIST: i16 = 0;
pub(super) const EMPTY_LIST: i16 = 1;
pub(super) const IN_LIST: i16 = 2;

/// Returns the schema of a segment.
pub(super) fn schema() -> Result<TypePtr, ParquetError> {
    static PARSED: OnceLock<TypePtr> = OnceLock::new();
    if let Some(parsed) = PARSED.get() {
        return Ok(parsed.clone());
    }
    let parsed = Arc::new(parse_message_type(SCHEMA)?);
    Ok(PARSED.get_or_init(|| parsed).clone())
}

/// Returns true if a file with schema `found` is read as a segment.
pub(super) fn is_schema(found: &SchemaDescriptor) -> Result<bool, ParquetError> {
    let ours = SchemaDescriptor::new(schema()?);
    let is_alike = |at: usize| {
        let (ours, theirs) = (ours.column(at), found.column(at));
        ours.path() == theirs.path()
            && ours.physical_type() == theirs.physical_type()
            && ours.max_def_level() == theirs.max_def_level()
            && ours.max_rep_level() == theirs.max_rep_level()
    };
    let count = ours.num_columns();
    Ok(found.num_columns() == count && (0..count).all(is_alike))
}

pub(super) fn properties() -> WriterProperties {
    let path =
        |words: &[&str]| ColumnPath::new(words.iter().map(|word| (*word).to_owned()).collect());
    let level = ZstdLevel::try_new(1).unwrap_or_default();
    let values = path(&["values", "list", "element"]);
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_column_dictionary_enabled(values.clone(), false)
        .set_column_encoding(values.clone(), VALUES_ENCODING)
        .set_column_statistics_enabled(values, EnabledStatistics::None);
    // Rows are sorted by time within a node, so both rise by about equal steps.
    for name in ["position", "time"] {
        builder = builder
            .set_column_dictionary_enabled(path(&[name]), false)
            .set_column_encoding(path(&[name]), Encoding::DELTA_BINARY_PACKED);
    }
    for name in ["document", "raw"] {
        builder = builder
            .set_column_dictionary_enabled(path(&[name]), false)
            .set_column_statistics_enabled(path(&[name]), EnabledStatistics::None);
    }
    builder.build()
}

/// The encoding of values.
const VALUES_ENCODING: Encoding = Encoding::PLAIN;
