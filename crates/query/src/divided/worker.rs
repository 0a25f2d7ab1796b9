//! The part of a hub that works for others.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionContext;
pub use datafusion_distributed::Worker;
use datafusion_distributed::{
    ChannelResolver, DistributedExt as _, WorkerChannel, WorkerPlanRewriteEvent,
    WorkerPlanRewriteEventResponse, WorkerQueryContext,
};
use url::Url;

use super::codec::PieceCodec;
use super::plan::check;
use crate::functions;

/// Connects to nobody: a worker has no worker of its own.
struct Nobody;

#[async_trait]
impl ChannelResolver for Nobody {
    async fn get_worker_client_for_url(&self, _: &Url) -> Result<Box<dyn WorkerChannel>> {
        exec_err!("a hub that works for another one asks no third one")
    }
}

fn checked(event: WorkerPlanRewriteEvent<'_>) -> Result<WorkerPlanRewriteEventResponse> {
    check(&event.plan)?;
    Ok(WorkerPlanRewriteEventResponse::new(event.plan))
}

/// Returns a runtime without files.
pub(super) fn runtime(memory: Arc<dyn MemoryPool>) -> Result<Arc<RuntimeEnv>> {
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(memory).with_disk_manager_builder(disk);
    let runtime = runtime.build_arc()?;
    // DataFusion begins with the file system: without it, a plan can name no file.
    let files = Url::parse("file://").map_err(|e| DataFusionError::External(Box::new(e)))?;
    runtime.deregister_object_store(&files)?;
    Ok(runtime)
}

/// Returns what works for other hubs. It shares the memory of this hub's own statements.
pub(crate) fn worker(codec: PieceCodec, memory: Arc<dyn MemoryPool>) -> Result<Worker> {
    let runtime = runtime(memory)?;
    let session = move |query: WorkerQueryContext| {
        let codec = codec.clone();
        async move {
            let builder = query.builder.with_distributed_user_codec(codec);
            let builder = builder.with_distributed_worker_plan_rewrite_handler(checked);
            let state = builder.with_distributed_channel_resolver(Nobody).build();
            let context = SessionContext::new_with_state(state);
            functions::register(&context);
            Ok(context.state())
        }
    };
    Ok(Worker::from_session_builder(session).with_runtime_env(runtime))
}
