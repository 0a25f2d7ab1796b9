//! The columns of a part's file.

use std::sync::{Arc, OnceLock};

use parquet::errors::ParquetError;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{SchemaDescriptor, TypePtr};

/// Number of the columns before those of [`Column`] in a part's file: `node` and `topic`.
pub(super) const TEXT_COLUMNS: usize = 2;

/// A column of samples, beside the columns that follow from their series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Time at which the value held, in nanoseconds of UNIX time.
    Time,
    /// The number as a double; null if the value is not a known number.
    Value,
    /// The number as an integer, if the double is not exact; else null. Two's complement of an unsigned number.
    Integer,
    /// `0` measured, `1` predicted, `2` unknown.
    Origin,
    /// The bound of a predicted value.
    Bound,
    /// JSON of a structured value.
    Text,
}

impl Column {
    /// All columns, in the order of a part.
    pub const ALL: [Self; 6] =
        [Self::Time, Self::Value, Self::Integer, Self::Origin, Self::Bound, Self::Text];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Value => "value",
            Self::Integer => "integer",
            Self::Origin => "origin",
            Self::Bound => "bound",
            Self::Text => "text",
        }
    }
}

/// The schema of a part's file.
const SCHEMA: &str = "message skopos {
    required binary node (STRING);
    required binary topic (STRING);
    required int64 time (TIMESTAMP(NANOS,true));
    optional double value;
    optional int64 integer;
    required int32 origin (INTEGER(8,false));
    optional double bound;
    optional binary text (STRING);
}";

/// Returns the schema of a part's file.
pub(super) fn schema() -> Result<TypePtr, ParquetError> {
    static PARSED: OnceLock<TypePtr> = OnceLock::new();
    if let Some(parsed) = PARSED.get() {
        return Ok(parsed.clone());
    }
    let parsed = Arc::new(parse_message_type(SCHEMA)?);
    Ok(PARSED.get_or_init(|| parsed).clone())
}

/// Returns true if values of a file with schema `found` are read as those of a part.
pub(super) fn is_schema(found: &SchemaDescriptor) -> Result<bool, ParquetError> {
    let ours = SchemaDescriptor::new(schema()?);
    let is_alike = |at: usize| {
        let (ours, theirs) = (ours.column(at), found.column(at));
        ours.name() == theirs.name()
            && ours.physical_type() == theirs.physical_type()
            && ours.max_def_level() == theirs.max_def_level()
            && ours.max_rep_level() == theirs.max_rep_level()
    };
    let count = ours.num_columns();
    Ok(found.num_columns() == count && (0..count).all(is_alike))
}
