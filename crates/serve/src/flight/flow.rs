//! Sends answers batch by batch, at the speed of the client, until the deadline.
//!
//! Missing nodes are known only at the end of an answer. If some did not answer, a last batch without rows has the
//! `app_metadata` `{"missing":["n07"]}`. A complete answer does not have this batch.

use std::future::ready;
use std::sync::Arc;

use arrow_flight::FlightData;
use arrow_flight::encode::{FlightDataEncoder, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream as Batches, StreamExt as _, TryStreamExt as _};
use serde_json::json;
use skopos_query::arrow::array::{RecordBatch, RecordBatchOptions};
use skopos_query::arrow::datatypes::{Field, Schema, SchemaRef};
use skopos_query::arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use skopos_query::{Error, Limits, Stream};
use tokio::sync::mpsc::{self, Sender};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::status;
use skopos_hub::counts::RunningQuery;

/// Maximum number of batches that wait for the client: one that is sent, and the next.
const WAITING: usize = 2;

/// The response to `DoGet`.
pub(super) type Flow = BoxStream<'static, Result<FlightData, Status>>;

/// Sends `answer`. The query is cancelled when the client is gone, or at the deadline of `limits`.
pub(super) fn send(answer: Stream, running: RunningQuery, limits: &Limits) -> Flow {
    let (schema, missing) = (plain(&answer.schema), answer.missing.clone());
    let (sender, receiver) = mpsc::channel(WAITING);
    let (end, ended) = oneshot::channel();
    let deadline = limits.deadline;
    let until = Instant::now() + deadline;
    tokio::spawn(async move {
        // Without the deadline, a client that does not read would keep its permit for ever.
        let is_late = timeout_at(until, pump(answer, &sender)).await.is_err();
        if is_late || !sender.is_closed() {
            running.done();
        }
        let _ = end.send(is_late);
    });
    let batches =
        stream::unfold(
            receiver,
            |mut receiver| async move { Some((receiver.recv().await?, receiver)) },
        );
    let announced = schema.clone();
    let batches = encoder(schema, batches.map(move |batch| with_schema(batch, &announced)));
    let schema = batches.known_schema();
    // Waiting batches may fill the queue, so the end has a channel of its own: an aborted answer must not look
    // complete.
    let last = stream::once(ended).filter_map(move |ended| {
        ready(match ended {
            Ok(false) => partial(schema.clone(), &missing.names()),
            Ok(true) => Some(Err(status::of(&Error::Deadline(deadline)))),
            Err(_) => Some(Err(Status::internal("the answer was aborted"))),
        })
    });
    batches.map_err(Status::from).chain(last).boxed()
}

/// Returns the batch that names the missing nodes; `None` if no node is missing.
fn partial(schema: Option<SchemaRef>, missing: &[String]) -> Option<Result<FlightData, Status>> {
    if missing.is_empty() {
        return None;
    }
    Some(metadata(schema?, json!({ "missing": missing }).to_string()))
}

/// Returns a batch without rows that has this metadata.
pub(crate) fn metadata(schema: SchemaRef, metadata: String) -> Result<FlightData, Status> {
    let nothing = RecordBatch::new_empty(schema);
    let (mut tracker, options) = (DictionaryTracker::new(false), IpcWriteOptions::default());
    let maker = IpcDataGenerator::default();
    let encoded = maker.encode(&nothing, &mut tracker, &options, &mut Default::default());
    let (_, batch) = encoded.map_err(|e| Status::internal(e.to_string()))?;
    Ok(FlightData::from(batch).with_app_metadata(metadata))
}

/// Sends a finished answer.
pub(super) fn at_once(answer: Stream) -> Flow {
    let schema = plain(&answer.schema);
    encode(schema.clone(), answer.batches.map(move |batch| with_schema(batch, &schema)))
}

/// Passes batches on until the last one, or until the client is gone.
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

/// Sends one finished batch.
pub(super) fn whole(batch: RecordBatch) -> Flow {
    encode(batch.schema(), stream::iter([Ok(batch)]))
}

fn encoder(
    schema: SchemaRef,
    batches: impl Batches<Item = Result<RecordBatch, FlightError>> + Send + 'static,
) -> FlightDataEncoder {
    FlightDataEncoderBuilder::new().with_schema(schema).build(batches)
}

fn encode(
    schema: SchemaRef,
    batches: impl Batches<Item = Result<RecordBatch, FlightError>> + Send + 'static,
) -> Flow {
    encoder(schema, batches).map_err(Status::from).boxed()
}

/// Returns a schema as it is announced before the answer. Nullability is known only with the answer, so every column is
/// nullable.
pub(super) fn plain(schema: &Schema) -> SchemaRef {
    let field = |f: &Arc<Field>| Field::clone(f).with_nullable(true);
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

/// Returns a batch under the schema that was announced before the answer.
fn with_schema(
    batch: Result<RecordBatch, Error>,
    schema: &SchemaRef,
) -> Result<RecordBatch, FlightError> {
    let batch = batch.map_err(|e| FlightError::Tonic(Box::new(status::of(&e))))?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let (_, columns, _) = batch.into_parts();
    let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &rows);
    batch.map_err(FlightError::from)
}
