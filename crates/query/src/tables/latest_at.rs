//! `latest_at('2026-11-22T09:00:00Z')`, `latest_at('1h')`: the sample of each topic that held at a time, or
//! so long ago.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures_util::{TryStreamExt as _, stream};
use skopos_model::{Timestamp, duration};

use crate::context::ExecutionContext;
use crate::source::{Source, When};
use crate::tables::chunk::{of_chunk, stored};
use crate::tables::last::last;
use crate::tables::pushdown;
use crate::tables::sample_column::{SampleColumn, sample_schema};
use crate::tables::sample_scan::SampleScan;
use crate::tables::samples::{SAMPLES, projected};
use crate::tables::series_filter::{SeriesFilter, supported};
use crate::topic_filter::TopicFilter;

/// Name of the function.
pub(crate) const LATEST_AT: &str = "latest_at";

/// The function `latest_at`.
pub(crate) struct LatestAt(pub(crate) Arc<dyn Source>);

/// The time of the samples.
#[derive(Clone, Copy, Debug)]
enum At {
    Time(Timestamp),
    /// Time before the execution of the statement.
    Ago(Duration),
}

impl fmt::Debug for LatestAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(LATEST_AT)
    }
}

impl TableFunctionImpl for LatestAt {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let text = match args.exprs() {
            [Expr::Literal(value, _)] => value.try_as_str().flatten(),
            _ => None,
        };
        let at = text.and_then(|text| {
            let time = string_to_timestamp_nanos(text).map(Timestamp::from_nanos).map(At::Time);
            time.ok().or_else(|| duration::parse(text).ok().map(At::Ago))
        });
        let Some(at) = at else {
            return plan_err!(
                "{LATEST_AT} takes one text: a time such as '2026-11-22T09:00:00Z', or how long ago, \
                 such as '1h'"
            );
        };
        Ok(Arc::new(LatestAtTable { source: self.0.clone(), at }))
    }
}

/// The table that a call of the function is.
pub(crate) struct LatestAtTable {
    source: Arc<dyn Source>,
    at: At,
}

impl LatestAtTable {
    /// Returns the topics that a scan with these conditions reads.
    pub(crate) fn topics(&self, filters: &[Expr]) -> TopicFilter {
        pushdown::topic_filter(filters)
    }

    /// Returns true if the time of the samples moves with the clock.
    pub(crate) fn moves(&self) -> bool {
        matches!(self.at, At::Ago(_))
    }
}

impl fmt::Debug for LatestAtTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LATEST_AT}({:?})", self.at)
    }
}

impl LatestAtTable {
    fn plan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projected(SAMPLES, projection);
        let scan = SampleScan {
            source: self.source.clone(),
            topics: pushdown::wanted(filters).into(),
            times: pushdown::times(&[]),
            filter: SeriesFilter::new(state, filters, SAMPLES)?,
        };
        let schema = sample_schema(&columns);
        let stream =
            LatestAtStream { schema: schema.clone(), columns, scan: Arc::new(scan), at: self.at };
        let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(stream)];
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, None)?))
    }
}

impl TableProvider for LatestAtTable {
    fn schema(&self) -> SchemaRef {
        sample_schema(SAMPLES)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    scan_by_plan!();

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(supported(filters, SAMPLES))
    }
}

struct LatestAtStream {
    schema: SchemaRef,
    columns: Arc<[SampleColumn]>,
    scan: Arc<SampleScan>,
    at: At,
}

impl fmt::Debug for LatestAtStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LATEST_AT}({:?}) of {:?}", self.at, self.scan.topics.wanted())
    }
}

impl PartitionStream for LatestAtStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (scan, at) = (self.scan.clone(), self.at);
        let (columns, schema) = (self.columns.clone(), self.schema.clone());
        let begin = async move {
            let context = ExecutionContext::of(&context);
            let time = match at {
                At::Time(time) => time,
                At::Ago(ago) => scan.source.now().saturating_sub(ago),
            };
            let remote = scan.remote(&When::AsOf(time), &context).await;
            let stored = stored(&columns);
            let missing = &context.missing;
            let rows = last(&scan.until(time).selected(&remote, missing)?, &stored, missing)?;
            let batches = rows.into_iter().map(move |(part, chunk)| {
                of_chunk(&columns, schema.clone(), part.stretches(), chunk)
            });
            Ok::<_, DataFusionError>(stream::iter(batches))
        };
        let batches = stream::once(begin).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}
