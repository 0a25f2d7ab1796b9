//! Columns that are made of samples: each knows its name, type, help and the part of a sample that it is
//! made of.

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use skopos_model::{Origin, Topic, schema};
use skopos_store::history;

use crate::column::{Column, schema_of, time_type};
use crate::source::Row;

/// A column that is made of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleColumn {
    Topic,
    Node,
    Family,
    Instance,
    Metric,
    Value,
    Text,
    Unit,
    Kind,
    Origin,
    Bound,
    Time,
    CheckedAt,
    Age,
    Publisher,
    /// `Time` under the name that the paper uses.
    PaperTimestamp,
    /// `Value` under the name that the paper uses.
    PaperMetric,
}

impl SampleColumn {
    /// Columns whose value follows from the series of a sample.
    pub(crate) const OF_SERIES: [Self; 7] = [
        Self::Topic,
        Self::Node,
        Self::Family,
        Self::Instance,
        Self::Metric,
        Self::Unit,
        Self::Kind,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Node => "node",
            Self::Family => "family",
            Self::Instance => "instance",
            Self::Metric | Self::PaperMetric => "metric",
            Self::Value => "value",
            Self::Text => "text",
            Self::Unit => "unit",
            Self::Kind => "kind",
            Self::Origin => "origin",
            Self::Bound => "bound",
            Self::Time => "time",
            Self::CheckedAt => "checked_at",
            Self::Age => "age",
            Self::Publisher => "publisher",
            Self::PaperTimestamp => "timestamp",
        }
    }

    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Value | Self::PaperMetric | Self::Bound | Self::Age => DataType::Float64,
            Self::Time | Self::CheckedAt | Self::PaperTimestamp => time_type(),
            _ => DataType::Utf8,
        }
    }

    fn help(self) -> &'static str {
        match self {
            Self::Topic => "Name of the vertex, such as `n01/mem/free_bytes`",
            Self::Node => "First segment of the topic",
            Self::Family => "Family of facts that the topic belongs to, if it is a fact",
            Self::Instance => "Device, core or other instance of the family that the fact is about",
            Self::Metric => "Last segment of the topic",
            Self::Value | Self::PaperMetric => "Value as a number; NULL if it is unknown or a text",
            Self::Text => "Value as JSON, of structured values",
            Self::Unit => "Unit of the value",
            Self::Kind => "`counter`, `gauge` or `state`",
            Self::Origin => "`measured`, `predicted` or `unknown`",
            Self::Bound => "Bound of the error of a predicted value",
            Self::Time | Self::PaperTimestamp => "Time of the sample",
            Self::CheckedAt => "Time at which the source was last read",
            Self::Age => "Seconds since the source was last read",
            Self::Publisher => "Segment or node that published the sample",
        }
    }

    pub(crate) fn column(self) -> Column {
        Column::new(self.name(), self.data_type(), self.help())
    }

    /// Returns true if adjacent rows of samples mostly share the value of a column of this name: samples
    /// are read series by series, and the times within one rise slowly.
    pub(crate) fn comes_in_runs(name: &str) -> bool {
        let times = [Self::Time, Self::PaperTimestamp];
        Self::OF_SERIES.iter().chain(&times).any(|column| column.name() == name)
    }

    /// Returns the column of a part of history that this column is made of; `None` if it follows from
    /// the series.
    pub(crate) fn stored(self) -> Option<history::Column> {
        Some(match self {
            Self::Time | Self::PaperTimestamp => history::Column::Time,
            Self::Value | Self::PaperMetric => history::Column::Value,
            Self::Text => history::Column::Text,
            Self::Origin => history::Column::Origin,
            Self::Bound => history::Column::Bound,
            _ => return None,
        })
    }
}

/// Returns the schema of these columns.
pub(crate) fn sample_schema(columns: &[SampleColumn]) -> SchemaRef {
    let columns: Vec<Column> = columns.iter().map(|column| column.column()).collect();
    schema_of(&columns)
}

/// Returns the value as a number; `None` if it is unknown, not a number, or not finite.
pub(crate) fn value(row: &Row<'_>) -> Option<f64> {
    let is_known = row.sample.origin != Origin::Unknown;
    // There is one zero, see `numbers`.
    row.sample.value.as_f64().filter(|v| is_known && v.is_finite()).map(|v| v + 0.0)
}

/// Returns the part of a topic between the path of its family and the metric.
pub(crate) fn instance(topic: &Topic) -> Option<&str> {
    let (family, metric) = schema::lookup_in_family(topic)?;
    let below_node = topic.as_str().split_once('/')?.1;
    let below_path = below_node.strip_prefix(family.path)?.strip_prefix('/')?;
    below_path.strip_suffix(metric.name)?.strip_suffix('/')
}
