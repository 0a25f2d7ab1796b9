//! Answers that arrive batch by batch, so that no side has to hold all rows of a long one.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use std::time::Duration;
use tokio::time::Instant;

use crate::admission::Permit;
use crate::answer::{Answer, Way};
use crate::context::Missing;
use crate::error::Error;
use crate::limits::Limits;

/// An answer under way. Dropping it ends the query.
pub struct Stream {
    /// The columns.
    pub schema: SchemaRef,
    /// The way in which the rows are found.
    pub way: Way,
    /// The rows. No batch is empty, and an error is the last item.
    pub batches: BoxStream<'static, Result<RecordBatch, Error>>,
    /// Nodes that sent none or only a part of their history, complete after the last batch.
    pub missing: Missing,
    permit: Option<Arc<Permit>>,
}

/// Turns an error of DataFusion into one in this project's words.
pub(crate) type Explain = Box<dyn Fn(DataFusionError) -> Error + Send + Sync>;

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("way", &self.way).finish_non_exhaustive()
    }
}

impl Stream {
    /// Returns an answer that is complete as a stream.
    ///
    /// # Errors
    /// The answer has more rows than `limits` allow.
    pub fn of(answer: Answer, limits: &Limits) -> Result<Self, Error> {
        if answer.rows() > limits.rows {
            return Err(Error::TooManyRows(limits.rows));
        }
        let Answer { schema, batches, way, permit, .. } = answer;
        let batches = stream::iter(batches.into_iter().map(Ok)).boxed();
        Ok(Self { schema, way, batches, missing: Missing::default(), permit })
    }

    /// Returns the answer of a plan that was started at `begun`, within limits.
    pub(crate) fn planned(
        batches: SendableRecordBatchStream,
        (limits, begun): (&Limits, Instant),
        missing: Missing,
        explain: Explain,
    ) -> Self {
        let schema = batches.schema();
        let until = begun + limits.deadline;
        let state = Limited { inner: Some(batches), until, rows: 0, limits: *limits, explain };
        let batches = stream::unfold(state, |mut state| async move {
            let batch = state.next().await?;
            Some((batch, state))
        });
        Self { schema, way: Way::Planned, batches: batches.boxed(), missing, permit: None }
    }

    /// Returns the stream with the permit of its statement, which ends it when it stops the statement.
    pub(crate) fn held_by(mut self, permit: Permit) -> Self {
        let permit = Arc::new(permit);
        let state = Some((self.batches, permit.clone()));
        self.permit = Some(permit);
        let batches = stream::unfold(state, async |state| {
            let (mut batches, permit) = state?;
            let batch = tokio::select! {
                batch = batches.next() => batch?,
                error = permit.stopped() => return Some((Err(error), None)),
            };
            Some((batch, Some((batches, permit))))
        });
        self.batches = batches.boxed();
        self
    }

    /// Collects all rows. The answer holds the permit.
    ///
    /// # Errors
    /// See [`Engine::query`](crate::Engine::query).
    pub async fn collect(mut self) -> Result<Answer, Error> {
        let mut batches = Vec::new();
        while let Some(batch) = self.batches.next().await {
            let batch = batch?;
            if let Some(permit) = &self.permit {
                permit.hold(batch.get_array_memory_size())?;
            }
            batches.push(batch);
        }
        let missing = self.missing.names();
        let answer = Answer::new(self.schema, batches, self.way, missing);
        Ok(Answer { permit: self.permit, ..answer })
    }
}

/// Waits for a part of a query that began at `begun` until the deadline of the whole query.
pub(crate) async fn within<T>(
    begun: Instant,
    deadline: Duration,
    part: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let left = deadline.saturating_sub(begun.elapsed());
    tokio::time::timeout(left, part).await.unwrap_or(Err(Error::Deadline(deadline)))
}

/// A query that runs within limits.
struct Limited {
    /// `None` after an error.
    inner: Option<SendableRecordBatchStream>,
    until: Instant,
    /// Number of rows so far.
    rows: usize,
    limits: Limits,
    explain: Explain,
}

impl Limited {
    async fn next(&mut self) -> Option<Result<RecordBatch, Error>> {
        let batch = self.next_batch().await;
        if !matches!(batch, Some(Ok(_))) {
            self.inner = None;
        }
        batch
    }

    async fn next_batch(&mut self) -> Option<Result<RecordBatch, Error>> {
        let inner = self.inner.as_mut()?;
        loop {
            let batch = match tokio::time::timeout_at(self.until, inner.next()).await {
                Err(_) => return Some(Err(Error::Deadline(self.limits.deadline))),
                Ok(None) => return None,
                Ok(Some(Err(e))) => return Some(Err((self.explain)(e))),
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
