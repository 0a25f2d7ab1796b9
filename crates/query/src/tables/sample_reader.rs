//! Samples for tables of other crates that are made of them.

use std::ops::RangeInclusive;
use std::sync::Arc;

use datafusion::error::DataFusionError;
use futures_util::{StreamExt as _, TryStreamExt as _};
use skopos_model::Timestamp;

use crate::rows::{BoxError, Rows};
use crate::scan::Scan;
use crate::source::Source;
use crate::tables::sample_column::SampleColumn;
use crate::tables::sample_scan::SampleScan;
use crate::tables::sample_stream::SampleStream;
use crate::tables::samples::SAMPLES;
use crate::topic_filter::TopicFilter;

/// Reads samples for a table that is made of them, from memory, from disk and from other nodes. Each sample
/// is read once.
#[derive(Clone, Debug)]
pub struct SampleReader {
    source: Arc<dyn Source>,
}

impl SampleReader {
    /// Returns a reader of the samples of `source`.
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self { source }
    }

    /// Returns samples with some `columns` of the table `samples`, in the order of `columns`. Other nodes
    /// have to answer within the deadline of the statement that `scan` belongs to; the answer to the
    /// statement names those that do not.
    ///
    /// # Errors
    /// The table `samples` does not have one of the columns. Errors of reading are in the rows.
    pub fn read(
        &self,
        columns: &[&str],
        topics: TopicFilter,
        times: RangeInclusive<Timestamp>,
        scan: &Scan,
    ) -> Result<Rows, BoxError> {
        let column = |name: &&str| -> Result<SampleColumn, BoxError> {
            let column = SAMPLES.iter().find(|column| column.name() == *name).copied();
            column.ok_or_else(|| format!("the table `samples` has no column `{name}`").into())
        };
        let columns: Arc<[SampleColumn]> = columns.iter().map(column).collect::<Result<_, _>>()?;
        let samples = SampleScan { source: self.source.clone(), topics, times, filter: None };
        let context = scan.context.clone();
        let context = context.unwrap_or_default();
        let batches = SampleStream::new(columns, samples).start(context);
        Ok(Rows::of_stream(batches.map_err(cause).boxed()))
    }
}

/// Returns the error that DataFusion carries, without its own text around.
fn cause(error: DataFusionError) -> BoxError {
    match error {
        DataFusionError::External(cause) => cause,
        other => Box::new(other),
    }
}
