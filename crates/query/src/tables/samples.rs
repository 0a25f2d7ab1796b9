//! Tables whose rows are samples: `samples`, and the table of one topic.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use skopos_model::Topic;

use crate::column::Column;
use crate::source::{Source, Wanted};
use crate::tables::pushdown;
use crate::tables::sample_column::{SampleColumn, sample_schema};
use crate::tables::sample_scan::SampleScan;
use crate::tables::sample_stream::SampleStream;
use crate::tables::series_filter::{SeriesFilter, supported};
use crate::topic_filter::TopicFilter;

/// Columns of `samples`.
pub(crate) const SAMPLES: &[SampleColumn] = &[
    SampleColumn::Topic,
    SampleColumn::Node,
    SampleColumn::Family,
    SampleColumn::Instance,
    SampleColumn::Metric,
    SampleColumn::Time,
    SampleColumn::Value,
    SampleColumn::Text,
    SampleColumn::Unit,
    SampleColumn::Kind,
    SampleColumn::Origin,
    SampleColumn::Bound,
];

/// Columns of the table of one topic: the paper calls a row a tuple of a vertex.
pub(crate) const OF_A_TOPIC: &[SampleColumn] = &[
    SampleColumn::PaperTimestamp,
    SampleColumn::PaperMetric,
    SampleColumn::Origin,
    SampleColumn::Bound,
    SampleColumn::Text,
    SampleColumn::Unit,
];

/// A table of samples: of one topic, or of all.
#[derive(Clone)]
pub(crate) struct SampleTable {
    source: Arc<dyn Source>,
    columns: &'static [SampleColumn],
    topic: Option<Topic>,
}

impl SampleTable {
    /// Returns the table `samples`.
    pub(crate) fn all(source: Arc<dyn Source>) -> Self {
        Self { source, columns: SAMPLES, topic: None }
    }

    /// Returns the table of one topic.
    pub(crate) fn of_topic(source: Arc<dyn Source>, topic: Topic) -> Self {
        Self { source, columns: OF_A_TOPIC, topic: Some(topic) }
    }

    pub(crate) fn columns(&self) -> Vec<Column> {
        self.columns.iter().map(|column| column.column()).collect()
    }

    /// Returns the topics that a scan with these conditions reads.
    pub(crate) fn topics(&self, filters: &[Expr]) -> TopicFilter {
        match &self.topic {
            Some(topic) => Wanted::These(vec![topic.clone()]).into(),
            None => pushdown::topic_filter(filters),
        }
    }
}

impl fmt::Debug for SampleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleTable").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl SampleTable {
    fn plan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Conditions beyond `wanted` are decided once a series, by `SeriesFilter`.
        let wanted = self.topics(filters).wanted().clone();
        let scan = SampleScan {
            source: self.source.clone(),
            topics: wanted.into(),
            times: pushdown::times(filters),
            filter: SeriesFilter::new(state, filters, self.columns)?,
        };
        let columns = projected(self.columns, projection);
        let stream = SampleStream::new(columns, scan);
        let schema = PartitionStream::schema(&stream).clone();
        // Samples in memory are not worth a second thread.
        let count = match self.source.has_history() {
            true => state.config().target_partitions(),
            false => 1,
        };
        let partition = |_| Arc::new(stream.another()) as Arc<dyn PartitionStream>;
        let partitions = (0..count).map(partition).collect();
        let limit = limit.filter(|_| filters.is_empty());
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, limit)?))
    }
}

impl TableProvider for SampleTable {
    fn schema(&self) -> SchemaRef {
        sample_schema(self.columns)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    scan_by_plan!();

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(supported(filters, self.columns))
    }
}

/// Returns the columns that a scan has to make.
pub(crate) fn projected(
    all: &[SampleColumn],
    projection: Option<&Vec<usize>>,
) -> Arc<[SampleColumn]> {
    match projection {
        Some(wanted) => wanted.iter().map(|at| all[*at]).collect(),
        None => all.into(),
    }
}
