//! How an answer leaves: batch by batch, as fast as it is taken, until the deadline.
//!
//! An answer that lacks what some nodes have kept says so in the end, when it is known: by a last batch
//! without rows, whose `app_metadata` is `{"missing":["n07"]}`. A whole answer has no such batch.

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
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, Sender};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::status;
use skopos_hub::counts::Running;

/// Batches that wait for the client. One is being sent, the next is ready.
const WAITING: usize = 2;

/// What `DoGet` answers.
pub(super) type Flow = BoxStream<'static, Result<FlightData, Status>>;

/// What a query holds while it runs.
pub(super) struct Turn {
    pub permit: OwnedSemaphorePermit,
    pub running: Running,
}

/// Sends what `answer` finds. Nothing of it runs when the client is gone, or when it takes longer than
/// `limits` allow.
pub(super) fn send(answer: Stream, turn: Turn, limits: &Limits) -> Flow {
    let (schema, missing) = (plain(&answer.schema), answer.missing.clone());
    let (sender, receiver) = mpsc::channel(WAITING);
    let (end, ended) = oneshot::channel();
    let deadline = limits.deadline;
    let until = Instant::now() + deadline;
    tokio::spawn(async move {
        // A client that takes nothing would hold its place for ever.
        let is_late = timeout_at(until, pump(answer, &sender)).await.is_err();
        if is_late || !sender.is_closed() {
            turn.running.done();
        }
        drop(turn.permit);
        let _ = end.send(is_late);
    });
    let batches =
        stream::unfold(
            receiver,
            |mut receiver| async move { Some((receiver.recv().await?, receiver)) },
        );
    let told = schema.clone();
    let batches = encoder(schema, batches.map(move |batch| as_told(batch, &told)));
    let schema = batches.known_schema();
    // What waits for the client may fill the queue, so the end is told apart from it: an answer that was
    // broken off must not look whole.
    let last = stream::once(ended).filter_map(move |ended| {
        ready(match ended {
            Ok(false) => partial(schema.clone(), &missing.names()),
            Ok(true) => Some(Err(status::of(&Error::Deadline(deadline)))),
            Err(_) => Some(Err(Status::internal("the answer was broken off"))),
        })
    });
    batches.map_err(Status::from).chain(last).boxed()
}

/// What says that these nodes are missing; `None` if none is.
fn partial(schema: Option<SchemaRef>, missing: &[String]) -> Option<Result<FlightData, Status>> {
    if missing.is_empty() {
        return None;
    }
    let nothing = RecordBatch::new_empty(schema?);
    let (mut tracker, options) = (DictionaryTracker::new(false), IpcWriteOptions::default());
    let maker = IpcDataGenerator::default();
    let encoded = maker.encode(&nothing, &mut tracker, &options, &mut Default::default());
    let told = json!({ "missing": missing }).to_string();
    Some(match encoded {
        Ok((_, batch)) => Ok(FlightData::from(batch).with_app_metadata(told)),
        Err(e) => Err(Status::internal(e.to_string())),
    })
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

/// A schema as it can be told before the answer is there: what may be null is known only then, so
/// everything may be.
pub(super) fn plain(schema: &Schema) -> SchemaRef {
    let field = |f: &Arc<Field>| Field::clone(f).with_nullable(true);
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

fn as_told(
    batch: Result<RecordBatch, Error>,
    schema: &SchemaRef,
) -> Result<RecordBatch, FlightError> {
    let batch = batch.map_err(|e| FlightError::Tonic(Box::new(status::of(&e))))?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let (_, columns, _) = batch.into_parts();
    let told = RecordBatch::try_new_with_options(schema.clone(), columns, &rows);
    told.map_err(FlightError::from)
}
