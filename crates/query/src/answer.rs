//! The answer to a statement, and the way in which the engine found it.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

/// The way in which the engine found an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A point read: look-ups in memory, without the planner.
    Point,
    /// A plan that DataFusion made and ran.
    Planned,
}

/// The whole answer to a statement.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows; no batch is empty.
    pub batches: Vec<RecordBatch>,
    /// The way in which the engine found them.
    pub way: Way,
    /// Names of nodes that sent none or only a part of the history that they were asked for, sorted.
    /// The answer lacks their samples.
    pub missing: Vec<String>,
}

impl Answer {
    /// An answer of a point read.
    pub(crate) fn of_point(batch: RecordBatch) -> Self {
        let schema = batch.schema();
        let batches = if batch.num_rows() == 0 { Vec::new() } else { vec![batch] };
        Self { schema, batches, way: Way::Point, missing: Vec::new() }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}
