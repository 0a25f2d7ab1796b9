//! Measures bodies: messages, bytes, and the time of their polls.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::recorder::Recorder;

/// Length of the head of a message of gRPC: a flag, and the length with four bytes.
const HEAD_BYTES: usize = 5;

/// Follows the messages of a body through its chunks, which may cut a message anywhere.
#[derive(Debug, Default)]
pub(super) struct Messages {
    head: [u8; HEAD_BYTES],
    filled: usize,
    left: u64,
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Messages {
    pub(super) fn feed(&mut self, mut data: &[u8]) {
        self.bytes += data.len() as u64;
        while !data.is_empty() {
            let taken = if self.left > 0 {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
                self.left -= taken as u64;
                taken
            } else {
                self.feed_head(data)
            };
            data = &data[taken..];
        }
    }

    fn feed_head(&mut self, data: &[u8]) -> usize {
        let taken = (HEAD_BYTES - self.filled).min(data.len());
        self.head[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
        self.filled += taken;
        if self.filled == HEAD_BYTES {
            let [_, length @ ..] = self.head;
            self.left = u64::from(u32::from_be_bytes(length));
            self.filled = 0;
            self.count += 1;
        }
        taken
    }
}

/// The numbers of a request's body, which another task may poll. In ticks, apart from the counts.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) messages: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Time of the polls that returned data.
    pub(super) polling: AtomicU64,
    /// Time from data to the next poll.
    pub(super) between: AtomicU64,
}

pin_project! {
    /// A request's body that is measured.
    pub(super) struct Metered<B> {
        #[pin]
        inner: B,
        recorder: Recorder,
        flow: Arc<Flow>,
        messages: Messages,
        // The tick at which data was returned; 0 once the next poll came.
        returned: u64,
    }
}

impl<B> Metered<B> {
    pub(super) fn new(inner: B, recorder: Recorder, flow: Arc<Flow>) -> Self {
        Self { inner, recorder, flow, messages: Messages::default(), returned: 0 }
    }
}

impl<B: Body<Data = Bytes>> Body for Metered<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let from = this.recorder.ticks();
        if *this.returned > 0 {
            add(&this.flow.between, from.saturating_sub(*this.returned));
            *this.returned = 0;
        }
        let polled = this.inner.poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let to = this.recorder.ticks();
            this.messages.feed(data);
            add(&this.flow.polling, to.saturating_sub(from));
            this.flow.messages.store(this.messages.count, Ordering::Relaxed);
            this.flow.bytes.store(this.messages.bytes, Ordering::Relaxed);
            *this.returned = to;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Adds to a number that one task writes and another one reads.
fn add(to: &AtomicU64, ticks: u64) {
    to.fetch_add(ticks, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_are_counted_however_the_body_is_cut(lengths in prop::collection::vec(0..40_usize, 0..9), step in 1..50_usize) {
            let mut body = Vec::new();
            for length in &lengths {
                body.push(0);
                body.extend(u32::try_from(*length).unwrap_or(0).to_be_bytes());
                body.extend(vec![0xff; *length]);
            }
            let mut messages = Messages::default();
            body.chunks(step).for_each(|chunk| messages.feed(chunk));
            prop_assert_eq!(messages.count, lengths.len() as u64);
            prop_assert_eq!(messages.bytes, body.len() as u64);
        }
    }
}
