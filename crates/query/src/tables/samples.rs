//! Tables whose rows are samples: `latest`, `samples`, those of a part of the topics, and the table
//! of one topic.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use skopos_model::Topic;

use super::columns::{Batch, Column, schema_of};
use super::made::{Asked, Rows};
use crate::source::{Row, Source, Wanted};

/// Rows of a batch, as DataFusion has them.
const BATCH_ROWS: usize = 8192;

/// Columns of `latest` and of the parts of it.
pub(crate) const LATEST: &[Column] = &[
    Column::Topic,
    Column::Node,
    Column::Family,
    Column::Instance,
    Column::Metric,
    Column::Value,
    Column::Text,
    Column::Unit,
    Column::Kind,
    Column::Origin,
    Column::Bound,
    Column::Time,
    Column::CheckedAt,
    Column::Age,
    Column::Publisher,
];

/// Columns of `samples`.
pub(crate) const SAMPLES: &[Column] = &[
    Column::Topic,
    Column::Node,
    Column::Family,
    Column::Instance,
    Column::Metric,
    Column::Time,
    Column::Value,
    Column::Text,
    Column::Unit,
    Column::Kind,
    Column::Origin,
    Column::Bound,
];

/// Columns of the table of one topic: what the paper calls a tuple of a vertex.
pub(crate) const OF_A_TOPIC: &[Column] = &[
    Column::PaperTimestamp,
    Column::PaperMetric,
    Column::Origin,
    Column::Bound,
    Column::Text,
    Column::Unit,
];

/// A table of samples.
#[derive(Clone)]
pub(crate) struct SampleTable {
    source: Arc<dyn Source>,
    columns: &'static [Column],
    /// Only the latest of each topic.
    is_latest: bool,
    part: Part,
}

/// Which topics a table is of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// Every one.
    All,
    /// This one.
    One(Topic),
    /// Those whose second segment is this, in front of which only the node stands.
    Below(&'static str),
}

impl Part {
    pub(super) fn selects(&self, topic: &Topic) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => topic == one,
            Self::Below(name) => topic.segments().nth(1) == Some(name),
        }
    }
}

impl SampleTable {
    pub(crate) fn latest(source: Arc<dyn Source>, part: Part) -> Self {
        Self { source, columns: LATEST, is_latest: true, part }
    }

    pub(crate) fn samples(source: Arc<dyn Source>, part: Part) -> Self {
        Self { source, columns: SAMPLES, is_latest: false, part }
    }

    pub(crate) fn of_topic(source: Arc<dyn Source>, topic: Topic) -> Self {
        let part = Part::One(topic);
        Self { source, columns: OF_A_TOPIC, is_latest: false, part }
    }
}

impl fmt::Debug for SampleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleTable").field("part", &self.part).finish_non_exhaustive()
    }
}

impl Rows for SampleTable {
    fn schema(&self) -> SchemaRef {
        schema_of(self.columns)
    }

    fn batches(&self, asked: &Asked) -> Vec<Result<RecordBatch>> {
        let columns: Vec<Column> = asked.columns.iter().map(|at| self.columns[*at]).collect();
        let wanted = match &self.part {
            Part::One(topic) => &Wanted::These(vec![topic.clone()]),
            _ => &asked.wanted,
        };
        let mut batch = Batch::new(&columns, self.source.now());
        let mut batches = Vec::new();
        let mut visit = |row: &Row<'_>| {
            if !self.part.selects(row.of.topic) {
                return;
            }
            batch.push(row);
            if batch.rows() == BATCH_ROWS {
                batches.push(batch.take());
            }
        };
        if self.is_latest {
            self.source.latest(wanted, &mut visit);
        } else {
            self.source.samples(wanted, asked.times.clone(), &mut visit);
        }
        if batch.rows() > 0 {
            batches.push(batch.take());
        }
        batches
    }
}
