//! The queue between the callbacks of a session and the thread of a follower.
//!
//! A callback never waits: that would delay the whole session. It applies a batch itself if no other thread works on the
//! site, no message is queued that came before, and nothing is unusual about the batch: then a reader of the mirror has
//! the values a wake-up earlier. It puts every other message into the queue. A batch that finds the queue full is dropped
//! and counted, and a later snapshot replaces it. Publishers that appear or disappear are noted beside the queue,
//! because they are reported only once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use skopos_model::{Timestamp, unpoisoned};
use zenoh::bytes::ZBytes;
use zenoh::sample::{Sample, SampleKind};

use crate::arrived::Snapshot;
use crate::batch::{Batch, MAX_BATCH_BYTES};
use crate::clock::wall;
use crate::keys;
use crate::site::Shared;
use crate::trust::{self, MAX_TAGS_BYTES};

/// The most messages in the queue: one from each of a thousand nodes, several times over. Further
/// messages are dropped and counted, and the follower requests a snapshot. With the longest batches it takes half a
/// gigabyte.
const MAX_QUEUED: usize = 8192;

/// The most publishers that are noted: all nodes of a large site, and some of them twice.
const MAX_NOTED: usize = 200_000;

/// A message to the thread of a follower.
pub(crate) enum Message {
    /// A batch, or bytes that should be one.
    Batch(Arrived),
    /// A publisher whose mirror needs a snapshot.
    Incomplete { node: String, incarnation: i64 },
    /// Bytes that cannot be a batch, because they are too many. They are dropped.
    TooLong { node: String, incarnation: i64 },
    /// Publishers have appeared or disappeared: see [`Inbox::presence`].
    Presence,
    /// A complete snapshot.
    Snapshot(Snapshot),
    /// A topic that its node measured on request.
    Refreshed { node: String, batch: Batch, done: SyncSender<bool> },
    /// The follower ends.
    Stop,
}

/// A batch, or bytes that should be one, as it arrived.
pub(crate) struct Arrived {
    pub(crate) node: String,
    pub(crate) incarnation: i64,
    pub(crate) message: trust::Message,
    pub(crate) received_at: Timestamp,
}

/// Applies batches without waiting.
pub(crate) trait Direct: Send + Sync {
    /// Applies a batch, or returns it if the thread of the follower has to do that.
    fn apply(&self, arrived: Arrived) -> Result<(), Arrived>;
}

/// The sending side of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    queue: SyncSender<Message>,
    /// Number of messages in the queue, and of those that the thread works on.
    unfinished: Arc<AtomicUsize>,
    /// Publishers by name and incarnation, and whether they are present.
    noted: Arc<Mutex<HashMap<(String, i64), bool>>>,
    shared: Arc<Shared>,
}

impl Inbox {
    pub(crate) fn new(shared: Arc<Shared>) -> (Self, Receiver<Message>) {
        let (queue, messages) = sync_channel(MAX_QUEUED);
        let unfinished = Arc::default();
        (Self { queue, unfinished, noted: Arc::default(), shared }, messages)
    }

    /// Counts a message that another node made than it says.
    pub(crate) fn note_forged(&self) {
        self.shared.counts.forged.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message that cannot be what its key says.
    pub(crate) fn note_malformed(&self) {
        self.shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts a message into the queue. Returns false, and drops the message, if the queue is full.
    pub(crate) fn put(&self, message: Message) -> bool {
        // SYNC: pairs with the Acquire in `is_idle`: a callback that sees this message finished sees its effects, too.
        self.unfinished.fetch_add(1, Ordering::Release);
        let is_put = self.queue.try_send(message).is_ok();
        if !is_put {
            self.finished();
        }
        is_put
    }

    /// Notes that the thread has applied a message.
    pub(crate) fn finished(&self) {
        // SYNC: pairs with the Acquire in `is_idle`.
        self.unfinished.fetch_sub(1, Ordering::Release);
    }

    /// Returns true if every message that was put into the queue has been applied.
    pub(crate) fn is_idle(&self) -> bool {
        // SYNC: pairs with the Release in `put` and `finished`.
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Asks the thread to end, and waits for room in the queue if necessary.
    pub(crate) fn stop(&self) {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let _ = self.queue.send(Message::Stop);
    }

    /// Applies a batch, or puts it into the queue; counts it if that is impossible. The queue bounds the number of messages, and the
    /// transport accepts longer ones than a batch can be: bytes that are too many stay out of the queue.
    pub(crate) fn put_batch(&self, sample: &Sample, direct: &dyn Direct) {
        let shared = &self.shared;
        let Some((node, incarnation)) = other_publisher(shared, sample) else { return };
        let tags = sample.attachment().map_or(0, ZBytes::len);
        let message = if sample.payload().len() > MAX_BATCH_BYTES || tags > MAX_TAGS_BYTES {
            Message::TooLong { node, incarnation }
        } else {
            let (message, received_at) = (trust::Message::from(sample), wall());
            match direct.apply(Arrived { node, incarnation, message, received_at }) {
                Ok(()) => return,
                Err(arrived) => Message::Batch(arrived),
            }
        };
        if !self.put(message) {
            shared.counts.overflowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a publisher appeared or disappeared.
    pub(crate) fn note_presence(&self, sample: &Sample) {
        let shared = &self.shared;
        let Some(key) = other_publisher(shared, sample) else { return };
        let mut noted = unpoisoned(self.noted.lock());
        if noted.len() >= MAX_NOTED && !noted.contains_key(&key) {
            shared.counts.overflowed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        noted.insert(key, sample.kind() == SampleKind::Put);
        drop(noted);
        // If the queue is full, the thread has messages to read, and takes the notes after each.
        self.put(Message::Presence);
    }

    /// Takes the noted publishers: name, incarnation, and whether they are present.
    pub(crate) fn presence(&self) -> HashMap<(String, i64), bool> {
        std::mem::take(&mut *unpoisoned(self.noted.lock()))
    }
}

/// Returns the publisher of a message, unless it is this node. Counts a message without a publisher.
fn other_publisher(shared: &Shared, sample: &Sample) -> Option<(String, i64)> {
    let publisher = keys::publisher(sample.key_expr().as_str());
    if publisher.is_none() {
        shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
    }
    publisher.filter(|(node, _)| !shared.interest.is_own(node))
}

#[cfg(test)]
mod tests {
    use zenoh::key_expr::KeyExpr;
    use zenoh::sample::SampleBuilder;

    use super::*;

    /// Leaves all batches to the thread.
    struct Busy;

    impl Direct for Busy {
        fn apply(&self, arrived: Arrived) -> Result<(), Arrived> {
            Err(arrived)
        }
    }

    #[test]
    fn bytes_that_are_too_many_for_a_batch_stay_out_of_the_queue() {
        let (inbox, messages) = Inbox::new(Arc::default());
        let put = |payload: usize, tags: usize| {
            let key = KeyExpr::new("skopos/test/live/n01/1").expect("a key");
            let sample = SampleBuilder::put(key, vec![0u8; payload]);
            inbox.put_batch(&sample.attachment(vec![0u8; tags]).into(), &Busy);
            messages.try_recv().expect("a message")
        };
        let kept = put(MAX_BATCH_BYTES, MAX_TAGS_BYTES);
        assert!(matches!(kept, Message::Batch(_)), "the longest batch");
        for (payload, tags) in [(MAX_BATCH_BYTES + 1, 0), (1, MAX_TAGS_BYTES + 1)] {
            let dropped = put(payload, tags);
            assert!(matches!(dropped, Message::TooLong { .. }), "{payload} bytes, {tags} of tags");
        }
    }
}
