//! `latest`, and the parts of it.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;

use super::columns::{Batch, Column, schema_of};
use super::made::{Asked, Rows};
use super::subset::Subset;
use crate::source::{Row, Source};

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

/// The latest values of some topics.
#[derive(Clone)]
pub(crate) struct LatestTable {
    source: Arc<dyn Source>,
    which: Subset,
}

impl LatestTable {
    pub(crate) fn new(source: Arc<dyn Source>, which: Subset) -> Self {
        Self { source, which }
    }
}

impl fmt::Debug for LatestTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatestTable").field("which", &self.which).finish_non_exhaustive()
    }
}

impl Rows for LatestTable {
    fn schema(&self) -> SchemaRef {
        schema_of(LATEST)
    }

    fn batches(&self, asked: &Asked) -> Vec<Result<RecordBatch>> {
        let columns: Vec<Column> = asked.columns.iter().map(|at| LATEST[*at]).collect();
        let mut batch = Batch::new(&columns, self.source.now());
        let mut batches = Vec::new();
        self.source.latest(&asked.wanted, &mut |row: &Row<'_>| {
            if !self.which.selects(row.of.topic) {
                return;
            }
            batch.push(row);
            if batch.rows() == BATCH_ROWS {
                batches.push(batch.take());
            }
        });
        if batch.rows() > 0 {
            batches.push(batch.take());
        }
        batches
    }
}
