//! Tables whose rows are samples: `samples`, those of a part of the topics, and the table of one topic.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode as _;
use datafusion::error::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use skopos_model::Topic;
use tokio::sync::OnceCell;

use super::columns::{Column, schema_of};
use super::pushdown;
use super::scan::{Ask, Scan, TopicFilter};
use super::subset::Subset;
use crate::source::{Source, Wanted};

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
    which: Subset,
}

impl SampleTable {
    pub(crate) fn new(source: Arc<dyn Source>, which: Subset) -> Self {
        Self { source, columns: SAMPLES, which }
    }

    pub(crate) fn of_topic(source: Arc<dyn Source>, topic: Topic) -> Self {
        Self { source, columns: OF_A_TOPIC, which: Subset::One(topic) }
    }
}

impl fmt::Debug for SampleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleTable").field("which", &self.which).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for SampleTable {
    fn schema(&self) -> SchemaRef {
        schema_of(self.columns)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projected(self.columns, projection);
        let wanted = match &self.which {
            Subset::One(topic) => Wanted::These(vec![topic.clone()]),
            _ => pushdown::topics(filters),
        };
        let ask = Arc::new(Ask {
            source: self.source.clone(),
            which: self.which.clone(),
            wanted,
            times: pushdown::times(filters),
            filter: topic_filter(state, filters)?,
        });
        let (schema, work) = (schema_of(&columns), Arc::new(OnceCell::new()));
        let scan = Arc::new(Scan { schema: schema.clone(), columns, ask, work });
        // Without history there is nothing that would be worth a thread.
        let count = match self.source.has_history() {
            true => state.config().target_partitions(),
            false => 1,
        };
        let partitions = std::iter::repeat_n(scan as Arc<dyn PartitionStream>, count).collect();
        let limit = limit.filter(|_| filters.is_empty());
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, limit)?))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(supported(filters))
    }
}

/// The columns of a table that a scan is to show.
pub(crate) fn projected(all: &[Column], projection: Option<&Vec<usize>>) -> Arc<[Column]> {
    match projection {
        Some(wanted) => wanted.iter().map(|at| all[*at]).collect(),
        None => all.into(),
    }
}

/// What follows from the topic is decided by a scan. Else more may be shown than is wanted, so what is
/// shown is filtered again.
pub(crate) fn supported(filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
    let support = |filter: &&Expr| match is_of_topic(filter) {
        true => TableProviderFilterPushDown::Exact,
        false => TableProviderFilterPushDown::Inexact,
    };
    filters.iter().map(support).collect()
}

/// Whether a condition can be decided by the topic alone.
fn is_of_topic(filter: &Expr) -> bool {
    let columns = filter.column_refs();
    let is_plain = |expr: &Expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::OuterReferenceColumn(..)
        ))
    };
    !columns.is_empty()
        && columns.iter().all(|column| Column::OF_SERIES.iter().any(|c| c.name() == column.name))
        && !filter.is_volatile()
        && !filter.exists(is_plain).unwrap_or(true)
}

/// What of these conditions can be decided so.
pub(crate) fn topic_filter(state: &dyn Session, filters: &[Expr]) -> Result<Option<TopicFilter>> {
    let filters: Vec<Expr> = filters.iter().filter(|f| is_of_topic(f)).cloned().collect();
    let names: Vec<String> =
        filters.iter().flat_map(Expr::column_refs).map(|column| column.name.clone()).collect();
    let columns = Column::OF_SERIES.into_iter().filter(|c| names.iter().any(|n| n == c.name()));
    let columns: Vec<Column> = columns.collect();
    let Some(all) = conjunction(filters) else { return Ok(None) };
    let schema = DFSchema::try_from(schema_of(&columns))?;
    let condition = state.create_physical_expr(all, &schema)?;
    Ok(Some(TopicFilter { columns, condition }))
}
