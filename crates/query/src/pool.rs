//! The threads that plan and compute queries. They are not the threads that wait for clients and clocks, so
//! a query that computes for long delays its own answer alone.

use std::io;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::DataFrame;
use futures_util::StreamExt as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::error::Error;

/// Number of batches that are computed before the client takes them.
const AHEAD: usize = 2;

/// Size of their stacks. The planner recurses once for each level of a statement, and a debug build needs some
/// 100 KiB for each of `MAX_DEPTH` levels. Unused pages of a stack take no memory.
const STACK_BYTES: usize = 128 << 20;

/// A runtime that may be dropped anywhere.
#[derive(Debug)]
pub(crate) struct Pool(Option<Runtime>);

impl Pool {
    /// Starts threads of this name: `count`, or as many as there are cores.
    pub(crate) fn new(name: &str, count: Option<usize>) -> io::Result<Self> {
        let mut threads = Builder::new_multi_thread();
        threads.thread_name(name).thread_stack_size(STACK_BYTES);
        if let Some(count) = count {
            threads.worker_threads(count);
        }
        let runtime = threads.enable_time().build()?;
        Ok(Self(Some(runtime)))
    }

    /// Does `work` on a thread of the pool. Dropping the future cancels it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = std::result::Result<T, Error>> + Send + 'static,
    ) -> std::result::Result<T, Error> {
        let broken = || Error::Query { message: "the query was cancelled".to_owned() };
        let Some(runtime) = &self.0 else { return Err(broken()) };
        let mut task = AbortOnDrop(runtime.spawn(work));
        (&mut task.0).await.unwrap_or_else(|_| Err(broken()))
    }

    /// Does `work` until the pool is dropped.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.0 {
            runtime.spawn(work);
        }
    }

    /// Starts to execute a query. Dropping the stream cancels it.
    pub(crate) async fn execute(&self, frame: DataFrame) -> Result<SendableRecordBatchStream> {
        let broken = || DataFusionError::Internal("the query was cancelled".to_owned());
        let Some(runtime) = &self.0 else { return Err(broken()) };
        let (started, schema) = oneshot::channel();
        let (put, batches) = mpsc::channel(AHEAD);
        let task = runtime.spawn(async move {
            let mut stream = match frame.execute_stream().await {
                Ok(stream) => stream,
                Err(e) => {
                    let _ = started.send(Err(e));
                    return;
                }
            };
            let _ = started.send(Ok(stream.schema()));
            while let Some(batch) = stream.next().await {
                if put.send(batch).await.is_err() {
                    return;
                }
            }
        });
        let running = Running { batches, task: AbortOnDrop(task) };
        let schema = schema.await.unwrap_or_else(|_| Err(broken()))?;
        let batches = futures_util::stream::unfold(Some(running), |running| async {
            let mut running = running?;
            if let Some(batch) = running.batches.recv().await {
                return Some((batch, Some(running)));
            }
            // A task that panicked has sent no error.
            let outcome = (&mut running.task.0).await;
            outcome.err().map(|e| (Err(DataFusionError::External(Box::new(e))), None))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

struct Running {
    batches: mpsc::Receiver<Result<RecordBatch>>,
    task: AbortOnDrop<()>,
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
