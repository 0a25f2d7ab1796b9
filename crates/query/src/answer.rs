//! The answer to a statement, and the way in which the engine found it.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

use crate::admission::Permit;
use crate::error::Error;

/// The way in which the engine found an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A point read: look-ups in memory, without the planner.
    Point,
    /// A plan that DataFusion made and ran.
    Planned,
}

/// The whole answer to a statement. It holds the place of its statement and counts as memory that is in use, so it is to
/// be dropped when it is sent. Only a small answer of a point read holds nothing, and may be sent at any time.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows; no batch is empty.
    pub batches: Vec<RecordBatch>,
    /// The way in which the engine found them.
    pub way: Way,
    /// Parts that the answer lacks, for people, sorted: names of nodes that sent none or only a part of the history that
    /// they were asked for, damaged files, and parts of tables.
    pub missing: Vec<String>,
    pub(crate) permit: Option<Arc<Permit>>,
}

impl Answer {
    /// Returns an answer that no permit belongs to.
    pub fn new(
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        way: Way,
        missing: Vec<String>,
    ) -> Self {
        Self { schema, batches, way, missing, permit: None }
    }

    /// Counts the bytes of another form of the answer, until the answer is dropped.
    ///
    /// # Errors
    /// All answers together hold too much.
    pub fn hold(&self, bytes: usize) -> Result<(), Error> {
        self.permit.as_ref().map_or(Ok(()), |permit| permit.hold(bytes))
    }

    /// Returns the reason why nothing can be decided by the answer, which names the parts that it lacks; `None` if it is whole.
    pub fn partial_reason(&self) -> Option<String> {
        let names = self.missing.join(", ");
        (!self.missing.is_empty()).then(|| format!("the answer is partial; missing: {names}"))
    }

    /// Returns true if the answer counts until it is dropped: it is to be sent within a time.
    pub fn is_held(&self) -> bool {
        self.permit.is_some()
    }

    /// Returns the bytes of memory of its rows.
    pub(crate) fn bytes(&self) -> usize {
        self.batches.iter().map(RecordBatch::get_array_memory_size).sum()
    }

    /// An answer of a point read.
    pub(crate) fn of_point(batch: RecordBatch) -> Self {
        let schema = batch.schema();
        let batches = if batch.num_rows() == 0 { Vec::new() } else { vec![batch] };
        Self::new(schema, batches, Way::Point, Vec::new())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}
