//! How an answer leaves: batch by batch, as fast as it is taken, until the deadline.

use std::sync::Arc;

use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::datatypes::{Schema, SchemaRef};
use skopos_query::arrow::error::ArrowError;
use skopos_query::{Error, Limits, Stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::status;
use crate::hub::counts::Held;

/// Batches that wait for the client. One is being sent, the next is ready.
const WAITING: usize = 2;

/// What `DoGet` answers.
pub(super) type Flow = BoxStream<'static, Result<FlightData, Status>>;

/// What a query holds while it runs.
pub(super) struct Turn {
    pub(super) permit: OwnedSemaphorePermit,
    pub(super) held: Held,
}

/// Sends what `answer` finds. Nothing of it runs when the client is gone, or when it takes longer than
/// `limits` allow.
pub(super) fn send(answer: Stream, turn: Turn, limits: &Limits) -> Flow {
    let schema = plain(&answer.schema);
    let until = Instant::now() + limits.deadline;
    let (sender, receiver) = mpsc::channel(WAITING);
    let deadline = limits.deadline;
    tokio::spawn(async move {
        // A client that takes nothing would hold its place for ever.
        let is_late = timeout_at(until, pump(answer, &sender)).await.is_err();
        if is_late {
            let _ = sender.try_send(Err(Error::Deadline(deadline)));
        }
        if is_late || !sender.is_closed() {
            turn.held.done();
        }
        drop(turn.permit);
    });
    let batches =
        stream::unfold(
            receiver,
            |mut receiver| async move { Some((receiver.recv().await?, receiver)) },
        );
    encode(schema.clone(), batches.map(move |batch| as_told(batch, &schema)))
}

/// An answer that is there already.
pub(super) fn at_once(answer: Stream) -> Flow {
    let schema = plain(&answer.schema);
    encode(schema.clone(), answer.batches.map(move |batch| as_told(batch, &schema)))
}

/// Passes batches on until there is none, or nobody who takes them.
async fn pump(mut answer: Stream, sender: &Sender<Result<RecordBatch, Error>>) {
    let mut batches = async || {
        while let Some(batch) = answer.batches.next().await {
            if sender.send(batch).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = batches() => {}
        () = sender.closed() => {}
    }
}

/// One batch that is there already.
pub(super) fn whole(batch: RecordBatch) -> Flow {
    encode(batch.schema(), stream::iter([Ok(batch)]))
}

fn encode(
    schema: SchemaRef,
    batches: impl futures_util::Stream<Item = Result<RecordBatch, FlightError>> + Send + 'static,
) -> Flow {
    let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
    encoded.map_err(Status::from).boxed()
}

/// A schema as it can be told before the answer is there: what may be null is known only then, so
/// everything may be.
pub(super) fn plain(schema: &Schema) -> SchemaRef {
    let field = |f: &Arc<_>| skopos_query::arrow::datatypes::Field::clone(f).with_nullable(true);
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

fn as_told(
    batch: Result<RecordBatch, Error>,
    schema: &SchemaRef,
) -> Result<RecordBatch, FlightError> {
    let batch = batch.map_err(|e| FlightError::Tonic(Box::new(status::of(&e))))?;
    let rows = skopos_query::arrow::array::RecordBatchOptions::new()
        .with_row_count(Some(batch.num_rows()));
    let (_, columns, _) = batch.into_parts();
    let told = RecordBatch::try_new_with_options(schema.clone(), columns, &rows);
    told.map_err(|e: ArrowError| FlightError::Arrow(e))
}
