//! Answers that come batch by batch, as they are found, so that nobody has to hold all of a long one.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::DataFrame;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tokio::time::Instant;

use crate::asking::{Asking, Missing};
use crate::engine::{Engine, Limits, Way, within};
use crate::error::explained;
use crate::tables::Tables;
use crate::{Answer, Error};

/// An answer under way. Who drops it ends the query.
pub struct Stream {
    /// The columns.
    pub schema: SchemaRef,
    /// How the rows are found.
    pub way: Way,
    /// The rows. No batch is empty, and an error is the last item.
    pub batches: BoxStream<'static, Result<RecordBatch, Error>>,
    /// Nodes without which the answer is, known when the last batch has come.
    pub missing: Missing,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("way", &self.way).finish_non_exhaustive()
    }
}

impl Stream {
    /// One that was found already.
    ///
    /// # Errors
    /// It has more rows than it may.
    pub fn of(answer: Answer, limits: &Limits) -> Result<Self, Error> {
        if answer.rows() > limits.rows {
            return Err(Error::TooManyRows(limits.rows));
        }
        let Answer { schema, batches, way, .. } = answer;
        let batches = stream::iter(batches.into_iter().map(Ok)).boxed();
        Ok(Self { schema, way, batches, missing: Missing::default() })
    }

    /// All of it, counted in `memory` while it is collected.
    pub(crate) async fn collect(mut self, memory: &MemoryReservation) -> Result<Answer, Error> {
        let mut batches = Vec::new();
        while let Some(batch) = self.batches.next().await {
            let batch = batch?;
            memory.try_grow(batch.get_array_memory_size()).map_err(Error::Memory)?;
            batches.push(batch);
        }
        let missing = self.missing.names();
        Ok(Answer { schema: self.schema, batches, way: self.way, missing })
    }
}

impl Engine {
    /// The answer, batch by batch. The deadline is that of the last batch, however slowly they are
    /// taken.
    ///
    /// # Errors
    /// As [`query`](Self::query); what goes wrong later is in the stream.
    pub async fn stream(&self, sql: &str, limits: &Limits) -> Result<Stream, Error> {
        if let Some(answer) = self.point(sql) {
            return Stream::of(answer, limits);
        }
        let begun = Instant::now();
        let plan = within(limits.deadline, self.kept_plan(sql)).await?;
        self.start(sql, plan, limits, begun).await
    }

    /// Begins to execute a plan.
    pub(crate) async fn start(
        &self,
        sql: &str,
        plan: LogicalPlan,
        limits: &Limits,
        begun: Instant,
    ) -> Result<Stream, Error> {
        let context = Explaining { sql: sql.into(), tables: self.tables.clone() };
        let asking = Asking::new(limits.deadline.saturating_sub(begun.elapsed()));
        let (mut state, missing) = (self.context.state(), asking.missing.clone());
        state.config_mut().set_extension(Arc::new(asking));
        let frame = DataFrame::new(state, plan);
        let started = async { self.pool.execute(frame).await.map_err(|e| context.error(e)) };
        let left = limits.deadline.saturating_sub(begun.elapsed());
        let inner = within_of(left, limits.deadline, started).await?;
        let schema = inner.schema();
        let state = Taken {
            inner: Some(inner),
            until: begun + limits.deadline,
            rows: 0,
            limits: *limits,
            context,
        };
        let batches = stream::unfold(state, |mut state| async move {
            let batch = state.next().await?;
            Some((batch, state))
        });
        Ok(Stream { schema, way: Way::Planned, batches: batches.boxed(), missing })
    }
}

/// What is needed to say an error in this project's words.
struct Explaining {
    sql: String,
    tables: Arc<Tables>,
}

impl Explaining {
    fn error(&self, error: DataFusionError) -> Error {
        explained(error, &self.sql, &self.tables)
    }
}

/// A query that runs, and how far it may go.
struct Taken {
    /// `None` after an error.
    inner: Option<SendableRecordBatchStream>,
    until: Instant,
    rows: usize,
    limits: Limits,
    context: Explaining,
}

impl Taken {
    async fn next(&mut self) -> Option<Result<RecordBatch, Error>> {
        let found = self.find().await;
        if !matches!(found, Some(Ok(_))) {
            self.inner = None;
        }
        found
    }

    async fn find(&mut self) -> Option<Result<RecordBatch, Error>> {
        let inner = self.inner.as_mut()?;
        loop {
            let batch = match tokio::time::timeout_at(self.until, inner.next()).await {
                Err(_) => return Some(Err(Error::Deadline(self.limits.deadline))),
                Ok(None) => return None,
                Ok(Some(Err(e))) => return Some(Err(self.context.error(e))),
                Ok(Some(Ok(batch))) => batch,
            };
            self.rows += batch.num_rows();
            if self.rows > self.limits.rows {
                return Some(Err(Error::TooManyRows(self.limits.rows)));
            }
            if batch.num_rows() > 0 {
                return Some(Ok(batch));
            }
        }
    }
}

/// As [`within`] for what is left of a deadline, which is named as a whole.
async fn within_of<T>(
    left: Duration,
    deadline: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(left, answer).await.unwrap_or(Err(Error::Deadline(deadline)))
}
