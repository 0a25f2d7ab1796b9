//! Keeps a copy of another hub's jobs: `DoPut` with the descriptor path `replica`, the name of the hub, its site, and the
//! number of its storage. `skopos_hub::jobs` has the messages, which come in pieces; each result has an answer.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::server::PeekableFlightDataStream;
use arrow_flight::{FlightDescriptor, PutResult};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use skopos_access::{Action, Caller, may};
use skopos_hub::jobs::replica::{Message, Reply};
use skopos_hub::jobs::{Copy, CopyError, JobsPlace};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::sleep;
use tonic::{Code, Status};

use super::pieces::Pieces;
use super::status;

/// Bytes of messages after which their records are written, though others are there.
const BATCH_BYTES: usize = 2 << 20;

/// Number of answers that wait for the primary. It may read none; then the hub reads no more.
const WAITING: usize = 16;

/// Pause before records are offered again to a copy that is full.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A hub that sends its jobs.
pub(super) struct Primary {
    hub: String,
    site: String,
    storage: u64,
}

impl Primary {
    /// Reads a descriptor; `None` if it is another one.
    pub(super) fn of(descriptor: Option<&FlightDescriptor>) -> Result<Option<Self>, Status> {
        let path = descriptor.map_or(&[][..], |descriptor| &descriptor.path);
        if path.first().is_none_or(|first| first != "replica") {
            return Ok(None);
        }
        let wrong = || {
            let hint = "its path is `replica`, the name of the hub, its site, and a number";
            let text = "the descriptor is not one of a copy of jobs";
            status::with_hint(Code::InvalidArgument, text, Some(hint))
        };
        let [_, hub, site, storage] = path else { return Err(wrong()) };
        let storage = u64::from_str_radix(storage, 16).map_err(|_| wrong())?;
        Ok(Some(Self { hub: hub.clone(), site: site.clone(), storage }))
    }
}

/// Keeps what a primary sends, and answers it.
pub(super) async fn keep(
    place: Arc<JobsPlace>,
    caller: Caller,
    primary: Primary,
    data: PeekableFlightDataStream,
) -> Result<BoxStream<'static, Result<PutResult, Status>>, Status> {
    let action = Action::Replicate { hub: &primary.hub };
    may(&caller, action).map_err(|denied| status::denied(&denied))?;
    let opening = tokio::task::spawn_blocking(move || {
        let Primary { hub, site, storage } = &primary;
        place.copies().begin(&caller, (hub, site), *storage)
    });
    let opened = opening.await.map_err(|e| Status::internal(e.to_string()))?;
    let (copy, welcome) = opened.map_err(refused)?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let stream = Stream { copy, data, pieces: Pieces::default(), sender };
    tokio::spawn(stream.run(welcome));
    let answers =
        stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    Ok(answers.boxed())
}

fn refused(error: CopyError) -> Status {
    match error {
        CopyError::Denied(denied) => status::denied(&denied),
        CopyError::Invalid(why) => Status::invalid_argument(why),
        CopyError::Failed(why) => Status::unavailable(why),
    }
}

/// A stream of a primary.
struct Stream {
    copy: Copy,
    data: PeekableFlightDataStream,
    pieces: Pieces,
    sender: Sender<Result<PutResult, Status>>,
}

impl Stream {
    async fn run(mut self, welcome: Reply) {
        let ended = match self.answer(vec![welcome]).await {
            Ok(()) => self.take_all().await,
            gone => gone,
        };
        if let Err(status) = ended {
            let _ = self.sender.send(Err(status)).await;
        }
    }

    async fn take_all(&mut self) -> Result<(), Status> {
        // The first message has the descriptor alone.
        let mut is_first = true;
        while let Some(data) = self.data.next().await {
            let (mut messages, mut bytes) = (Vec::new(), 0);
            let mut next = Some(data);
            while let Some(data) = next.take() {
                let data = data?;
                if !std::mem::take(&mut is_first) {
                    let whole = self.pieces.add(&data).map_err(Status::invalid_argument)?;
                    if let Some((message, length)) = whole {
                        messages.push(message);
                        bytes += length;
                    }
                }
                if bytes < BATCH_BYTES {
                    next = self.data.next().now_or_never().flatten();
                }
            }
            if !messages.is_empty() {
                self.take(messages).await?;
            }
        }
        Ok(())
    }

    /// Takes messages. A primary whose copy is full tries again after the answer, which waits.
    async fn take(&mut self, messages: Vec<Message>) -> Result<(), Status> {
        let copy = self.copy.clone();
        let taking = tokio::task::spawn_blocking(move || copy.take(&messages));
        let replies = taking.await.map_err(|e| Status::internal(e.to_string()))?;
        let replies = replies.map_err(refused)?;
        if replies.iter().any(|reply| matches!(reply, Reply::Full { .. })) {
            sleep(RETRY_AFTER).await;
        }
        self.answer(replies).await
    }

    async fn answer(&mut self, replies: Vec<Reply>) -> Result<(), Status> {
        for reply in replies {
            let result = PutResult { app_metadata: reply.encode().into() };
            let gone = |_| Status::cancelled("the hub is gone");
            self.sender.send(Ok(result)).await.map_err(gone)?;
        }
        Ok(())
    }
}
