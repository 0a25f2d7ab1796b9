//! `latest_at('2026-11-22T09:00:00Z')`, `latest_at('1h')`: the samples that held at a time, or so long
//! ago.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
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
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use skopos_model::{Timestamp, duration};

use super::columns::{Column, of_chunk, schema_of};
use super::last::last;
use super::pushdown;
use super::samples::{SAMPLES, projected, supported, topic_filter};
use super::scan::Ask;
use super::subset::Subset;
use crate::context::ExecutionContext;
use crate::source::{Elsewhere, Source, When};

/// Its name.
pub(crate) const LATEST_AT: &str = "latest_at";

/// Makes tables of a time.
pub(crate) struct LatestAt(pub(crate) Arc<dyn Source>);

/// When.
#[derive(Clone, Copy, Debug)]
enum At {
    Time(Timestamp),
    /// So long before the statement is executed.
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
        Ok(Arc::new(TableAt { source: self.0.clone(), at }))
    }
}

struct TableAt {
    source: Arc<dyn Source>,
    at: At,
}

impl fmt::Debug for TableAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LATEST_AT}({:?})", self.at)
    }
}

#[async_trait]
impl TableProvider for TableAt {
    fn schema(&self) -> SchemaRef {
        schema_of(SAMPLES)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projected(SAMPLES, projection);
        let all_times = pushdown::times(&[]);
        let ask = Ask {
            source: self.source.clone(),
            which: Subset::All,
            wanted: pushdown::topics(filters),
            times: all_times,
            filter: topic_filter(state, filters)?,
        };
        let schema = schema_of(&columns);
        let scan = Scan { schema: schema.clone(), columns, ask: Arc::new(ask), at: self.at };
        let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(scan)];
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, None)?))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(supported(filters))
    }
}

struct Scan {
    schema: SchemaRef,
    columns: Arc<[Column]>,
    ask: Arc<Ask>,
    at: At,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LATEST_AT}({:?}) of {:?}", self.at, self.ask.wanted)
    }
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (ask, at) = (self.ask.clone(), self.at);
        let (columns, schema) = (self.columns.clone(), self.schema.clone());
        let stored = Column::stored(&columns);
        let found = async move {
            let asking = ExecutionContext::of(&context);
            let time = match at {
                At::Time(time) => time,
                At::Ago(ago) => ask.source.now().saturating_sub(ago),
            };
            let elsewhere = match ask.source.elsewhere(&ask.wanted, &When::AsOf(time), asking.until)
            {
                Some(asked) => asked.await,
                None => Elsewhere::default(),
            };
            asking.missing.add(elsewhere.missing.clone());
            let ask = ask.until(time);
            let rows = last(&ask.found(&elsewhere)?, &stored)?;
            let batches = rows.into_iter().map(move |(part, chunk)| {
                let of = (part.stretches(), &chunk.runs[..]);
                of_chunk(&columns, schema.clone(), &stored, &chunk.batch, of)
            });
            Ok::<_, DataFusionError>(stream::iter(batches))
        };
        let stream = stream::once(found).try_flatten().boxed();
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream))
    }
}
