//! The queue between the callbacks of a session and the thread of a follower.
//!
//! A callback never waits: that would delay the whole session. It applies a batch itself if no other thread works on the
//! site, no message is queued that came before, and nothing is unusual about the batch: then a reader of the mirror has
//! the values a wake-up earlier. It puts every other message into the queue. A batch that finds the queue full is dropped
//! and counted, and a later snapshot replaces it. Publishers that appear or disappear are noted beside the queue,
//! because they are reported only once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex};

use skopos_model::{Timestamp, unpoisoned};
use zenoh::bytes::ZBytes;
use zenoh::sample::{Sample, SampleKind};

use crate::arrived::Snapshot;
use crate::batch::{Batch, MAX_BATCH_BYTES};
use crate::clock::wall;
use crate::keys;
use crate::maker::Maker;
use crate::site::{Node, Shared};
use crate::trust::{self, MAX_TAGS_BYTES};

/// The most bytes of messages in the queue: some seconds of the batches of ten thousand nodes. Further messages are dropped
/// and counted, and the follower requests a snapshot.
const MAX_QUEUED_BYTES: usize = 256 << 20;

/// The most bytes of one publisher's messages among them: the descriptions of all topics that a publisher can have, or a
/// second of the most batches that it sends.
const MAX_BYTES_OF_PUBLISHER: usize = 4 << 20;

/// The most bytes of messages among them that do not prove their publisher, and of publishers that the follower does not know:
/// names can be invented.
const MAX_BYTES_OF_UNPROVEN: usize = 32 << 20;

/// The bytes that a message counts beside its content: its place in the queue, its names, and what memory management adds.
const LEAST_BYTES: usize = 512;

/// The most publishers that are noted: all nodes of a large site, and some of them twice.
const MAX_NOTED: usize = 200_000;

/// A message to the thread of a follower.
pub(crate) enum Message {
    /// A batch, or bytes that should be one.
    Batch(Arrived),
    /// A publisher whose mirror needs a snapshot.
    Incomplete { node: String, incarnation: i64 },
    /// Bytes that cannot be a batch, because they are too many. They are dropped.
    TooLong { node: String, incarnation: i64, maker: Maker },
    /// Publishers have appeared or disappeared: see [`Inbox::presence`].
    Presence,
    /// A complete snapshot.
    Snapshot(Snapshot),
    /// A topic that its node measured on request.
    Refreshed { node: String, batch: Batch, done: SyncSender<bool> },
    /// The follower ends.
    Stop,
}

impl Message {
    /// Returns the bytes that the message takes in the queue.
    fn bytes(&self) -> usize {
        let content = match self {
            Self::Batch(Arrived { message, node, .. }) => {
                let proof = message.proof.as_ref().map_or(0, Vec::len);
                message.payload.len() + proof + message.key.len() + node.len()
            }
            Self::Snapshot(snapshot) => snapshot.parts.iter().map(Vec::len).sum(),
            // Its client has a thread, of which there are few.
            Self::Refreshed { .. } => MAX_BATCH_BYTES,
            Self::Incomplete { .. } | Self::TooLong { .. } | Self::Presence | Self::Stop => 0,
        };
        LEAST_BYTES + content
    }

    /// Returns the share of the queue that the message takes.
    fn share(&self) -> Share<'_> {
        match self {
            Self::Batch(Arrived { node, maker: Maker::Publisher, .. })
            | Self::Incomplete { node, .. }
            | Self::TooLong { node, maker: Maker::Publisher, .. } => Share::Publisher(node),
            Self::Batch(_) | Self::TooLong { .. } => Share::Unproven,
            Self::Presence | Self::Snapshot(_) | Self::Refreshed { .. } | Self::Stop => {
                Share::Whole
            }
        }
    }
}

/// A share of the queue.
enum Share<'a> {
    /// The room of a publisher.
    Publisher(&'a str),
    /// The room of all messages that do not prove their publisher.
    Unproven,
    /// The whole queue, for messages that this program asked for.
    Whole,
}

/// A message in the queue. Its room is free again when it is dropped.
pub(crate) struct Queued {
    pub(crate) message: Option<Message>,
    _rooms: [Option<Room>; 2],
}

/// Bytes of a bound that a message takes.
struct Room {
    bytes: usize,
    of: Taken,
}

/// The counter of a bound.
enum Taken {
    /// Of a publisher that the follower knows.
    Node(Arc<Node>),
    /// Of the whole queue, or of all messages that do not prove their publisher.
    Shared(Arc<AtomicUsize>),
}

impl Taken {
    fn bytes(&self) -> &AtomicUsize {
        match self {
            Self::Node(node) => node.queued_bytes(),
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Room {
    /// Takes room within a bound; `None` if there is too little.
    fn take(bytes: usize, of: Taken, most: usize) -> Option<Self> {
        let before = of.bytes().fetch_add(bytes, Ordering::Relaxed);
        // Dropped if it does not fit.
        let room = Self { bytes, of };
        (before + bytes <= most).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.bytes().fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A batch, or bytes that should be one, as it arrived.
pub(crate) struct Arrived {
    pub(crate) node: String,
    pub(crate) incarnation: i64,
    pub(crate) message: trust::Message,
    pub(crate) maker: Maker,
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
    queue: Sender<Queued>,
    /// Bytes of all messages in the queue.
    bytes: Arc<AtomicUsize>,
    /// Bytes of the messages among them that do not prove their publisher, and of unknown publishers.
    bytes_of_unproven: Arc<AtomicUsize>,
    /// Number of messages in the queue, and of those that the thread works on.
    unfinished: Arc<AtomicUsize>,
    /// Publishers by name and incarnation, and whether they are present.
    noted: Arc<Mutex<HashMap<(String, i64), bool>>>,
    /// True while a message in the queue says that there are notes.
    is_announced: Arc<AtomicBool>,
    shared: Arc<Shared>,
    /// True if messages must prove their makers.
    demands: bool,
}

impl Inbox {
    pub(crate) fn new(shared: Arc<Shared>, demands: bool) -> (Self, Receiver<Queued>) {
        let (queue, messages) = channel();
        let inbox = Self {
            queue,
            bytes: Arc::default(),
            bytes_of_unproven: Arc::default(),
            unfinished: Arc::default(),
            noted: Arc::default(),
            is_announced: Arc::default(),
            shared,
            demands,
        };
        (inbox, messages)
    }

    /// Counts a message that another node made than it says.
    pub(crate) fn note_forged(&self) {
        self.shared.counts.forged.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a publisher that cannot be followed, because its keys are of another version.
    pub(crate) fn note_other_version(&self, token: &Sample) {
        if token.kind() == SampleKind::Put {
            self.shared.counts.other_versions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a message that cannot be what its key says.
    pub(crate) fn note_malformed(&self) {
        self.shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts a message into the queue. Returns false, and drops the message, if there is no room for it.
    pub(crate) fn put(&self, message: Message) -> bool {
        let Some(rooms) = self.rooms(&message) else { return false };
        self.send(message, rooms)
    }

    fn send(&self, message: Message, _rooms: [Option<Room>; 2]) -> bool {
        // SYNC: pairs with the Acquire in `is_idle`: a callback that sees this message finished sees its effects, too.
        self.unfinished.fetch_add(1, Ordering::Release);
        let is_put = self.queue.send(Queued { message: Some(message), _rooms }).is_ok();
        if !is_put {
            self.finished();
        }
        is_put
    }

    /// Takes room for a message in the queue, and in its share of it.
    fn rooms(&self, message: &Message) -> Option<[Option<Room>; 2]> {
        let bytes = message.bytes();
        let publisher = match message.share() {
            Share::Publisher(name) => self.shared.node(name),
            Share::Unproven | Share::Whole => None,
        };
        let share = match (publisher, message.share()) {
            (Some(node), _) => Some(Room::take(bytes, Taken::Node(node), MAX_BYTES_OF_PUBLISHER)?),
            (None, Share::Whole) => None,
            (None, Share::Publisher(_) | Share::Unproven) => {
                let unproven = Taken::Shared(self.bytes_of_unproven.clone());
                Some(Room::take(bytes, unproven, MAX_BYTES_OF_UNPROVEN)?)
            }
        };
        let all = Room::take(bytes, Taken::Shared(self.bytes.clone()), MAX_QUEUED_BYTES)?;
        Some([share, Some(all)])
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

    /// Asks the thread to end.
    pub(crate) fn stop(&self) {
        self.send(Message::Stop, [None, None]);
    }

    /// Applies a batch, or puts it into the queue; counts it if that is impossible. The transport accepts longer messages
    /// than a batch can be: bytes that are too many stay out of the queue.
    pub(crate) fn put_batch(&self, sample: &Sample, direct: &dyn Direct) {
        let shared = &self.shared;
        let Some((node, incarnation)) = other_publisher(shared, sample) else { return };
        let tags = sample.attachment().map_or(0, ZBytes::len);
        let message = if sample.payload().len() > MAX_BATCH_BYTES || tags > MAX_TAGS_BYTES {
            let maker = if self.demands { Maker::Unproven } else { Maker::Publisher };
            Message::TooLong { node, incarnation, maker }
        } else {
            let (message, received_at) = (trust::Message::from(sample), wall());
            let maker = self.maker(&node, incarnation, &message);
            if maker == Maker::Forged {
                return self.note_forged();
            }
            match direct.apply(Arrived { node, incarnation, message, maker, received_at }) {
                Ok(()) => return,
                Err(arrived) => Message::Batch(arrived),
            }
        };
        if !self.put(message) {
            shared.counts.overflowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the maker of a batch. Without proofs, all sessions are of one user.
    fn maker(&self, node: &str, incarnation: i64, message: &trust::Message) -> Maker {
        if !self.demands {
            return Maker::Publisher;
        }
        self.shared.node(node).map_or(Maker::Unproven, |node| node.maker(incarnation, message))
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
        // One message is enough for all notes. If the queue is full, the thread takes the notes after each of its messages.
        // SYNC: pairs with the Release in `presence`: the note is there before the thread is told of it again.
        if !self.is_announced.swap(true, Ordering::AcqRel) && !self.put(Message::Presence) {
            self.is_announced.store(false, Ordering::Relaxed);
        }
    }

    /// Takes the noted publishers: name, incarnation, and whether they are present.
    pub(crate) fn presence(&self) -> HashMap<(String, i64), bool> {
        // SYNC: pairs with the AcqRel in `note_presence`. Lowered first: a later note brings a message of its own.
        self.is_announced.store(false, Ordering::Release);
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
        let (inbox, messages) = Inbox::new(Arc::default(), false);
        let put = |payload: usize, tags: usize| {
            let key = KeyExpr::new("skopos/test/live/cd/n01/1").expect("a key");
            let sample = SampleBuilder::put(key, vec![0u8; payload]);
            inbox.put_batch(&sample.attachment(vec![0u8; tags]).into(), &Busy);
            messages.try_recv().expect("a message").message
        };
        let kept = put(MAX_BATCH_BYTES, MAX_TAGS_BYTES);
        assert!(matches!(kept, Some(Message::Batch(_))), "the longest batch");
        for (payload, tags) in [(MAX_BATCH_BYTES + 1, 0), (1, MAX_TAGS_BYTES + 1)] {
            let dropped = put(payload, tags);
            assert!(
                matches!(dropped, Some(Message::TooLong { .. })),
                "{payload} bytes, {tags} of tags"
            );
        }
    }
}
