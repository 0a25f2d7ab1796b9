//! Runs a statement on several hubs.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_distributed::grpc::create_worker_client;
use datafusion_distributed::{
    ChannelResolver, DistributedExec, DistributedExt as _, RouteTasksEvent,
    RouteTasksEventResponse, SessionStateBuilderExt as _, Worker, WorkerChannel, WorkerResolver,
};
use futures_util::{StreamExt as _, stream};
use url::Url;

use super::codec::PieceCodec;
use super::pieces::Hubs;
use super::plan::DividingPlanner;

/// The most bytes of an answer of several hubs, which is whole before its first row is sent: until then the statement can
/// run again without a hub that failed. Larger ones are computed here alone.
const MAX_BYTES: usize = 64 << 20;

/// The share of a statement's time in which the hubs must answer. The rest is for this hub alone.
const SHARE: f64 = 0.5;

/// The address of this hub among those that answer.
const HERE: &str = "hub://here";

/// All that a statement on several hubs needs.
pub(crate) struct Dividing {
    pub(crate) codec: PieceCodec,
    pub(crate) worker: Worker,
    pub(crate) hubs: OnceLock<Arc<dyn Hubs>>,
}

/// The outcome of dividing a statement.
pub(crate) enum Attempt {
    /// The statement is not one that several hubs answer.
    Local,
    /// The whole answer.
    Done(SendableRecordBatchStream),
    /// Hubs failed, or were too slow.
    Failed(String),
}

impl Dividing {
    /// Runs a plan with all hubs that can be reached, if it can be divided.
    pub(crate) async fn run(
        &self,
        state: SessionState,
        plan: &LogicalPlan,
        left: Duration,
    ) -> Attempt {
        let Some(hubs) = self.hubs.get() else { return Attempt::Local };
        let attempt = async {
            let others = hubs.reachable().await;
            if others.is_empty() {
                return Ok(None);
            }
            self.run_with(state, plan, hubs.clone(), &others).await
        };
        match tokio::time::timeout(left.mul_f64(SHARE), attempt).await {
            Ok(Ok(None)) => Attempt::Local,
            Ok(Ok(Some(answer))) => Attempt::Done(answer),
            Ok(Err(e)) => Attempt::Failed(e.strip_backtrace()),
            Err(_) => Attempt::Failed("they took too long".to_owned()),
        }
    }

    async fn run_with(
        &self,
        state: SessionState,
        plan: &LogicalPlan,
        hubs: Arc<dyn Hubs>,
        others: &[String],
    ) -> Result<Option<SendableRecordBatchStream>> {
        let urls = std::iter::once(HERE.to_owned())
            .chain(others.iter().map(|address| format!("hub://{address}")));
        let urls = urls.map(|url| Url::parse(&url)).collect::<std::result::Result<Vec<_>, _>>();
        let urls = urls.map_err(|e| DataFusionError::External(Box::new(e)))?;
        let here = self.worker.to_local_worker_context(urls[0].clone());
        let planner = DividingPlanner::new(urls.len());
        let state = SessionStateBuilder::new_from_existing(state)
            .with_query_planner(Arc::new(planner))
            .with_distributed_user_codec(self.codec.clone())
            .with_distributed_worker_resolver(Among(urls.clone()))
            .with_distributed_channel_resolver(Channels(hubs))
            .with_distributed_local_worker_context(here)
            .with_distributed_route_tasks_handler(move |event: RouteTasksEvent<'_>| {
                let tasks = urls.iter().cycle().take(event.task_count).cloned();
                Some(Ok(RouteTasksEventResponse::new(tasks.collect())))
            })
            .with_distributed_metrics_collection(false)?
            .with_distributed_planner()
            .build();
        let plan = state.create_physical_plan(plan).await?;
        if !plan.is::<DistributedExec>() {
            return Ok(None);
        }
        let (schema, mut rows) = (plan.schema(), execute_stream(plan, state.task_ctx())?);
        let (mut batches, mut bytes): (Vec<RecordBatch>, usize) = Default::default();
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            bytes += batch.get_array_memory_size();
            if bytes > MAX_BYTES {
                return exec_err!("the answer has more than {MAX_BYTES} bytes");
            }
            batches.push(batch);
        }
        let batches = stream::iter(batches.into_iter().map(Ok));
        Ok(Some(Box::pin(RecordBatchStreamAdapter::new(schema, batches))))
    }
}

/// The hubs that answer a statement.
struct Among(Vec<Url>);

impl WorkerResolver for Among {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// Finds the connections of hubs.
struct Channels(Arc<dyn Hubs>);

#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let address = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            _ => String::new(),
        };
        match self.0.channel(&address) {
            Some(channel) => Ok(create_worker_client(channel)),
            None => exec_err!("{url} is not a hub that answers with this one"),
        }
    }
}
