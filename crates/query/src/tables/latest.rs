//! `latest` and `self`: the latest sample of each topic, or of the topics of this product.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;

use crate::column::Column;
use crate::rows::{BoxError, Rows};
use crate::scan::Scan;
use crate::source::{Row, Source};
use crate::table::{Fingerprint, Table};
use crate::tables::batch::SampleBatch;
use crate::tables::sample_column::SampleColumn;
use crate::topic_filter::TopicFilter;

/// Number of rows of a batch: DataFusion's own.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Columns of `latest`.
pub(crate) const LATEST: &[SampleColumn] = &[
    SampleColumn::Topic,
    SampleColumn::Node,
    SampleColumn::Family,
    SampleColumn::Instance,
    SampleColumn::Metric,
    SampleColumn::Value,
    SampleColumn::Text,
    SampleColumn::Unit,
    SampleColumn::Kind,
    SampleColumn::Origin,
    SampleColumn::Bound,
    SampleColumn::Time,
    SampleColumn::CheckedAt,
    SampleColumn::Age,
    SampleColumn::Publisher,
];

/// Returns the columns of the table `latest`, for tables that add columns to them.
pub fn latest_columns() -> Vec<Column> {
    LATEST.iter().map(|column| column.column()).collect()
}

/// Returns the latest sample of each topic that the filter selects, with the columns of the table `latest`.
///
/// # Errors
/// The rows do not fit into one batch.
pub fn latest_samples(source: &dyn Source, topics: &TopicFilter) -> Result<RecordBatch, BoxError> {
    let mut batch = SampleBatch::new(LATEST, source.now());
    source.latest(topics.wanted(), &mut |row: &Row<'_>| {
        if topics.fits(row.of.topic) {
            batch.push(row);
        }
    });
    Ok(batch.take()?)
}

/// The latest samples of all topics, or of those below a segment.
#[derive(Debug)]
pub(crate) struct LatestTable {
    name: &'static str,
    help: &'static str,
    columns: Vec<Column>,
    /// The second segment of the topics.
    below: Option<&'static str>,
    source: Arc<dyn Source>,
}

impl LatestTable {
    /// Returns the table `latest`.
    pub(crate) fn all(source: Arc<dyn Source>) -> Self {
        let help = "Latest sample of each topic";
        Self { name: "latest", help, columns: latest_columns(), below: None, source }
    }

    /// Returns the table `self`.
    pub(crate) fn of_this_product(source: Arc<dyn Source>) -> Self {
        let help = "Latest sample of each topic that Skopos publishes about itself";
        Self { name: "self", help, columns: latest_columns(), below: Some("self"), source }
    }

    fn topics(&self, scan: &Scan) -> TopicFilter {
        match self.below {
            Some(segment) => scan.topics().clone().below(segment),
            None => scan.topics().clone(),
        }
    }
}

impl Table for LatestTable {
    fn name(&self) -> &str {
        self.name
    }

    fn help(&self) -> &str {
        self.help
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let columns: Vec<SampleColumn> = scan.columns().iter().map(|at| LATEST[*at]).collect();
        let topics = self.topics(scan);
        let mut batch = SampleBatch::new(&columns, self.source.now());
        let mut batches: Vec<Result<RecordBatch, ArrowError>> = Vec::new();
        self.source.latest(topics.wanted(), &mut |row: &Row<'_>| {
            if !topics.fits(row.of.topic) {
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
        Ok(Rows::each(batches.into_iter().map(|batch| batch.map_err(BoxError::from))))
    }

    fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        Fingerprint::Samples(self.topics(scan))
    }
}
