//! The nodes of a site, with a mirror of each.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, TryLockError};
use std::time::{Duration, Instant};

use skopos_model::schema::{Metric, self_live};
use skopos_model::{Timestamp, unpoisoned};

use crate::clock::ClockOffset;
use crate::interest::Interest;
use crate::maker::{Agreed, Maker};
use crate::mirror::Mirror;
use crate::trust::{Message, Session};
use crate::watch::MirrorWatcher;

/// The most nodes that are remembered, with those that are gone. Bounds the memory that changing names
/// can fill.
const MAX_NODES: usize = 100_000;

/// Time after which a node that is gone is forgotten: a week, so that a node which broke on a Friday is still missed on
/// Monday.
const FORGET_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);

/// The most publishers of one name that are remembered, or asked for a snapshot at one time. A node that restarts has two for a moment.
pub(crate) const MAX_PUBLISHERS_OF_A_NAME: usize = 16;

/// The nodes of a site. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Site {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    nodes: RwLock<HashMap<String, Arc<Node>>>,
    pub(crate) interest: Interest,
    pub(crate) counts: Counts,
}

/// Counts of failed messages.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Messages that were dropped because the queue was full.
    pub(crate) overflowed: AtomicU64,
    /// Messages that could not be read, of all senders.
    pub(crate) malformed: AtomicU64,
    /// Messages that another node made than they say.
    pub(crate) forged: AtomicU64,
    /// Publishers whose keys are of another version.
    pub(crate) other_versions: AtomicU64,
}

/// Numbers of messages that a follower dropped, and of publishers that it cannot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedMessages {
    /// The queue was full.
    pub overflowed: u64,
    /// They could not be read.
    pub malformed: u64,
    /// Their maker is not the node that they name.
    pub forged: u64,
    /// Publishers that appeared with keys of another version.
    pub other_versions: u64,
}

impl FailedMessages {
    /// Returns each number with the metric of its fact, always in the same order.
    pub fn numbers(&self) -> [(&'static Metric, u64); 4] {
        [
            (&self_live::MESSAGES_OVERFLOWED_TOTAL, self.overflowed),
            (&self_live::MESSAGES_MALFORMED_TOTAL, self.malformed),
            (&self_live::MESSAGES_FORGED_TOTAL, self.forged),
            (&self_live::PUBLISHERS_OF_OTHER_VERSIONS_TOTAL, self.other_versions),
        ]
    }
}

/// A node of a site.
#[derive(Debug)]
pub struct Node {
    name: String,
    state: Mutex<NodeState>,
    /// Bytes of the messages in the follower's queue that take its room.
    queued_bytes: AtomicUsize,
    /// The session with its publisher, where messages are signed.
    agreed: Mutex<Option<Agreed>>,
}

/// The state of a node, as far as its messages show it.
#[derive(Debug)]
pub struct NodeState {
    /// Incarnation of the publisher that is followed.
    pub incarnation: i64,
    /// True if that publisher is present.
    pub is_alive: bool,
    /// Mirror of its vertices.
    pub mirror: Mirror,
    /// Arrival time of its last message, by this machine's clock.
    pub heard_at: Timestamp,
    /// Incarnations of all present publishers of this name. The first one is the node; the others give
    /// way to it.
    present: BTreeSet<i64>,
    /// True while the publisher that is followed counts as gone because it says nothing, although its token is there.
    is_silent: bool,
    /// Number of its messages that could not be read.
    pub malformed: u64,
    pub(crate) clock: ClockOffset,
    /// Arrival time of its last message, by a clock that never goes back.
    pub(crate) heard: Option<Instant>,
}

/// Receives the changes of a site's nodes, on the thread that applies them; it should not wait for
/// anything. `()` ignores them.
pub trait NodeWatcher: MirrorWatcher + Send {
    /// A node appeared, disappeared, or sent a message that changed its state.
    fn node(&mut self, name: &str, state: &NodeState);
}

impl NodeWatcher for () {
    fn node(&mut self, _: &str, _: &NodeState) {}
}

impl NodeState {
    fn new(name: &str, incarnation: i64, interest: Interest) -> Self {
        Self {
            incarnation,
            is_alive: false,
            mirror: Mirror::of_node(name, interest),
            heard_at: Timestamp::default(),
            present: BTreeSet::new(),
            is_silent: false,
            malformed: 0,
            clock: ClockOffset::default(),
            heard: None,
        }
    }

    /// Notes that a publisher appeared. Returns true if that changes the state.
    pub(crate) fn appeared(&mut self, incarnation: i64, watcher: &mut dyn MirrorWatcher) -> bool {
        if self.present.len() < MAX_PUBLISHERS_OF_A_NAME {
            self.present.insert(incarnation);
        }
        self.is_silent &= incarnation != self.incarnation;
        self.choose(watcher)
    }

    /// Notes that a publisher disappeared. Returns true if that changes the state.
    pub(crate) fn disappeared(
        &mut self,
        incarnation: i64,
        watcher: &mut dyn MirrorWatcher,
    ) -> bool {
        self.present.remove(&incarnation);
        self.is_silent &= incarnation != self.incarnation;
        self.choose(watcher)
    }

    /// Notes that the publisher that is followed says nothing. Its next message shows that it is there again. Returns true
    /// if that changes the state.
    pub(crate) fn fell_silent(&mut self, watcher: &mut dyn MirrorWatcher) -> bool {
        let incarnation = self.incarnation;
        let is_change = self.disappeared(incarnation, watcher);
        self.is_silent = self.incarnation == incarnation;
        is_change
    }

    /// Returns true if the publisher that is followed counts as gone until its next message.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Follows the first of the node's publishers, if any is present.
    fn choose(&mut self, watcher: &mut dyn MirrorWatcher) -> bool {
        let before = (self.is_alive, self.incarnation);
        let first = self.present.first().copied();
        self.is_alive = first.is_some();
        if let Some(first) = first.filter(|first| *first != self.incarnation) {
            self.incarnation = first;
            self.is_silent = false;
            self.mirror.clear(watcher);
        }
        before != (self.is_alive, self.incarnation)
    }

    /// Notes a message with its time of sending, by the node's clock, and of arrival, by this machine's.
    pub(crate) fn hear(&mut self, sent_at: Timestamp, received_at: Timestamp) {
        self.heard_at = received_at;
        self.heard = Some(Instant::now());
        self.clock.note(sent_at, received_at, Instant::now());
    }

    /// Returns the nanoseconds by which the node's clock is ahead of this machine's; `None` before its
    /// first batch. The estimate comes from the batch with the shortest delay, and is too low by that
    /// delay.
    pub fn clock_offset(&self) -> Option<i64> {
        self.clock.nanos()
    }
}

impl Shared {
    /// Returns the node of this name.
    pub(crate) fn node(&self, name: &str) -> Option<Arc<Node>> {
        unpoisoned(self.nodes.read()).get(name).cloned()
    }
}

impl Node {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counter of the bytes of the messages in the follower's queue that take its room.
    pub(crate) fn queued_bytes(&self) -> &AtomicUsize {
        &self.queued_bytes
    }

    /// Notes the session with its publisher of this incarnation.
    pub(crate) fn agree(&self, incarnation: i64, session: Session) {
        *unpoisoned(self.agreed.lock()) = Some(Agreed::new(incarnation, session));
    }

    /// Returns the maker of a batch, by its tag.
    pub(crate) fn maker(&self, incarnation: i64, message: &Message) -> Maker {
        let mut agreed = unpoisoned(self.agreed.lock());
        agreed.as_mut().map_or(Maker::Unproven, |agreed| agreed.maker(incarnation, message))
    }

    /// Locks its state. Hold the guard for a short time only.
    pub fn state(&self) -> MutexGuard<'_, NodeState> {
        unpoisoned(self.state.lock())
    }

    /// Locks its state, unless another thread has locked it.
    pub(crate) fn try_state(&self) -> Option<MutexGuard<'_, NodeState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Site {
    pub(crate) fn new(interest: Interest) -> Self {
        Self { shared: Arc::new(Shared { interest, ..Shared::default() }) }
    }

    /// Returns every node that is present or was within a week, in any order.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        let nodes = unpoisoned(self.shared.nodes.read());
        nodes.values().cloned().collect()
    }

    /// Returns the node of this name.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.shared.node(name)
    }

    /// Returns the number of messages that were dropped, by reason.
    pub fn failed_messages(&self) -> FailedMessages {
        let Counts { overflowed, malformed, forged, other_versions } = &self.shared.counts;
        let [overflowed, malformed, forged, other_versions] =
            [overflowed, malformed, forged, other_versions]
                .map(|count| count.load(Ordering::Relaxed));
        FailedMessages { overflowed, malformed, forged, other_versions }
    }

    /// Removes the nodes that have been gone for long, and returns them.
    pub(crate) fn forget_gone(&self) -> Vec<Arc<Node>> {
        let is_long_gone = |node: &Arc<Node>| {
            let state = node.state();
            !state.is_alive && state.heard.is_none_or(|at| at.elapsed() > FORGET_AFTER)
        };
        let gone: Vec<Arc<Node>> = self.nodes().into_iter().filter(is_long_gone).collect();
        if !gone.is_empty() {
            let mut nodes = unpoisoned(self.shared.nodes.write());
            gone.iter().for_each(|node| drop(nodes.remove(node.name())));
        }
        gone
    }

    /// Returns the node of this name, and adds it if it is new. Returns `None` if there are too many.
    pub(crate) fn find_or_add(&self, name: &str, incarnation: i64) -> Option<Arc<Node>> {
        if let Some(node) = self.node(name) {
            return Some(node);
        }
        let mut nodes = unpoisoned(self.shared.nodes.write());
        if nodes.len() >= MAX_NODES {
            return None;
        }
        let state = NodeState::new(name, incarnation, self.shared.interest.clone());
        let state = Mutex::new(state);
        let node = Node {
            name: name.to_owned(),
            state,
            queued_bytes: AtomicUsize::new(0),
            agreed: Mutex::default(),
        };
        let node = Arc::new(node);
        nodes.insert(name.to_owned(), node.clone());
        Some(node)
    }
}
