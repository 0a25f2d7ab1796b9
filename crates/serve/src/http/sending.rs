//! Bodies of long answers: sent piece by piece, at the speed of the client, until a deadline.

use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream::{self, Stream};
use skopos_access::Caller;
use skopos_query::{BoxError, Engine, Error, HeldBytes};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// Minimum time for a client to read an answer, whatever its deadline. The answer counts as memory in use meanwhile.
pub(super) const SEND_TIME: Duration = Duration::from_secs(30);

/// Number of pieces that wait for the client: the one that is sent, and the next.
const AHEAD: usize = 2;

/// Bytes of the longest text that is sent at once, and of a piece of a longer one.
const SMALL_TEXT_BYTES: usize = 64 << 10;

/// Returns pieces that another thread makes, ahead of the client. A client that has not read them all by `until` does
/// not get the rest.
pub(super) fn sent<I>(mut pieces: I, until: Instant) -> impl Stream<Item = Result<Bytes, BoxError>>
where
    I: Iterator<Item = Result<Bytes, BoxError>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel::<Result<Bytes, BoxError>>(AHEAD);
    tokio::spawn(async move {
        loop {
            // Only making a piece takes a thread, and not the wait for a slow client.
            let made = tokio::task::spawn_blocking(move || {
                let piece = pieces.next();
                (pieces, piece)
            });
            let Ok((rest, piece)) = made.await else { return };
            pieces = rest;
            // Only with the empty piece the answer is whole.
            let is_last = !matches!(piece, Some(Ok(_)));
            let sending = sender.send(piece.unwrap_or_else(|| Ok(Bytes::new())));
            if !matches!(timeout_at(until, sending).await, Ok(Ok(()))) || is_last {
                return;
            }
        }
    });
    stream::unfold(Some(receiver), async |receiver| {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Ok(piece)) if piece.is_empty() => None,
            Some(piece) => Some((piece, Some(receiver))),
            None => Some((Err("the client has not read the answer in time".into()), None)),
        }
    })
}

/// Returns the body of an answer that is a text. A long one counts as memory in use until it is sent.
///
/// # Errors
/// The answers of the caller, or all together, hold too much.
pub(super) fn text(engine: &Engine, caller: &Caller, text: Vec<u8>) -> Result<Body, Error> {
    if text.len() <= SMALL_TEXT_BYTES {
        return Ok(Body::from(text));
    }
    let held = engine.hold(caller, text.len())?;
    let pieces = Text { text, at: 0, _held: held };
    Ok(Body::from_stream(sent(pieces, Instant::now() + SEND_TIME)))
}

/// Iterates over copies of the parts of a text: a piece that waits for the client must not keep the rest in memory.
struct Text {
    text: Vec<u8>,
    at: usize,
    _held: HeldBytes,
}

impl Iterator for Text {
    type Item = Result<Bytes, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let piece = &rest[..rest.len().min(SMALL_TEXT_BYTES)];
        self.at += piece.len();
        Some(Ok(Bytes::copy_from_slice(piece)))
    }
}
