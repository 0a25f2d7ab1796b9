//! The threads on which queries are planned and computed: others than those that wait for clients and clocks, so
//! that a query which computes for long holds up its own answer alone.

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

/// Batches that are computed before they are taken.
const AHEAD: usize = 2;

/// Their stacks: whoever plans calls itself for every level of a statement. A debug build needs some
/// 100 KiB for each of `depth::MAX_DEPTH`; what is not used is not in memory.
const STACK_BYTES: usize = 128 << 20;

/// A runtime that may be dropped anywhere.
#[derive(Debug)]
pub(crate) struct Pool(Option<Runtime>);

impl Pool {
    pub(crate) fn new() -> io::Result<Self> {
        let mut threads = Builder::new_multi_thread();
        threads.thread_name("query").thread_stack_size(STACK_BYTES);
        let runtime = threads.enable_time().build()?;
        Ok(Self(Some(runtime)))
    }

    /// Does `work` there, which ends when nobody waits for it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = std::result::Result<T, Error>> + Send + 'static,
    ) -> std::result::Result<T, Error> {
        let broken = || Error::Query { message: "a query ended before its answer".to_owned() };
        let Some(runtime) = &self.0 else { return Err(broken()) };
        let mut task = EndsWithMe(runtime.spawn(work));
        (&mut task.0).await.unwrap_or_else(|_| Err(broken()))
    }

    /// Begins to execute a query, which ends when the stream is dropped.
    pub(crate) async fn execute(&self, frame: DataFrame) -> Result<SendableRecordBatchStream> {
        let broken = || DataFusionError::Internal("a query ended before its answer".to_owned());
        let Some(runtime) = &self.0 else { return Err(broken()) };
        let (begun, schema) = oneshot::channel();
        let (put, batches) = mpsc::channel(AHEAD);
        let task = runtime.spawn(async move {
            let mut stream = match frame.execute_stream().await {
                Ok(stream) => stream,
                Err(e) => {
                    let _ = begun.send(Err(e));
                    return;
                }
            };
            let _ = begun.send(Ok(stream.schema()));
            while let Some(batch) = stream.next().await {
                if put.send(batch).await.is_err() {
                    return;
                }
            }
        });
        let driven = Driven { batches, task: EndsWithMe(task) };
        let schema = schema.await.unwrap_or_else(|_| Err(broken()))?;
        let batches = futures_util::stream::unfold(Some(driven), |driven| async {
            let mut driven = driven?;
            if let Some(batch) = driven.batches.recv().await {
                return Some((batch, Some(driven)));
            }
            // One that panicked has no end.
            let ended = (&mut driven.task.0).await;
            ended.err().map(|e| (Err(DataFusionError::External(Box::new(e))), None))
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

struct Driven {
    batches: mpsc::Receiver<Result<RecordBatch>>,
    task: EndsWithMe<()>,
}

struct EndsWithMe<T>(JoinHandle<T>);

impl<T> Drop for EndsWithMe<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
