//! The nodes of a site, as they tell it: who is there, and a mirror of each.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Instant;

use skopos_model::{Timestamp, unpoisoned};

use crate::clock::ClockOffset;
use crate::mirror::Mirror;
use crate::watch::{Interest, Watcher};

/// Nodes that are remembered after they went. Bounds what names that come and go can fill.
const MAX_NODES: usize = 100_000;

/// Publishers of one name that are remembered. There are two for a moment when a node starts again.
const MAX_OF_ONE_NAME: usize = 16;

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

/// What went wrong.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Messages for which there was no room.
    pub(crate) overflowed: AtomicU64,
    /// Messages that were none, whoever sent them.
    pub(crate) malformed: AtomicU64,
}

/// One node.
#[derive(Debug)]
pub struct Node {
    name: String,
    state: Mutex<State>,
}

/// What is known of a node.
#[derive(Debug)]
pub struct State {
    /// Which of those of its name.
    pub incarnation: i64,
    /// Whether its publisher is there.
    pub is_alive: bool,
    /// What it told.
    pub mirror: Mirror,
    /// When anything of it came last, by this machine's clock.
    pub heard_at: Timestamp,
    /// Publishers of this name that are there. The first one is the node; others give way to it.
    there: BTreeSet<i64>,
    /// Messages of it that were none.
    pub malformed: u64,
    pub(crate) clock: ClockOffset,
    /// When a snapshot was asked for that has not come yet.
    pub(crate) asked_at: Option<Instant>,
}

impl State {
    fn new(incarnation: i64, interest: Interest) -> Self {
        Self {
            incarnation,
            is_alive: false,
            mirror: Mirror::new(interest),
            heard_at: Timestamp::default(),
            there: BTreeSet::new(),
            malformed: 0,
            clock: ClockOffset::default(),
            asked_at: None,
        }
    }

    /// A publisher came. True if that makes a difference.
    pub(crate) fn came(&mut self, incarnation: i64, watcher: &mut dyn Watcher) -> bool {
        if self.there.len() < MAX_OF_ONE_NAME {
            self.there.insert(incarnation);
        }
        self.choose(watcher)
    }

    /// A publisher went. True if that makes a difference.
    pub(crate) fn went(&mut self, incarnation: i64, watcher: &mut dyn Watcher) -> bool {
        self.there.remove(&incarnation);
        self.choose(watcher)
    }

    /// Follows the first of a node's publishers, if there is one.
    fn choose(&mut self, watcher: &mut dyn Watcher) -> bool {
        let before = (self.is_alive, self.incarnation);
        let first = self.there.first().copied();
        self.is_alive = first.is_some();
        if let Some(first) = first.filter(|first| *first != self.incarnation) {
            self.incarnation = first;
            self.mirror.clear(watcher);
        }
        let is_other = before != (self.is_alive, self.incarnation);
        if is_other {
            self.asked_at = None;
        }
        is_other
    }

    /// It said something: when, by its clock, and when that came, by ours.
    pub(crate) fn hear(&mut self, sent_at: Timestamp, came_at: Timestamp) {
        self.heard_at = came_at;
        self.clock.note(sent_at, came_at, Instant::now());
    }

    /// Nanoseconds that its clock is ahead of this machine's, once it has told anything: from the batch
    /// that took the least time, and too low by that time.
    pub fn clock_offset(&self) -> Option<i64> {
        self.clock.nanos()
    }
}

impl Node {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is known of it, for as long as the guard is held: not long.
    pub fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

impl Site {
    pub(crate) fn new(interest: Interest) -> Self {
        Self { shared: Arc::new(Shared { interest, ..Shared::default() }) }
    }

    /// Every node that was ever there, in no order.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        let nodes = unpoisoned(self.shared.nodes.read());
        nodes.values().cloned().collect()
    }

    /// One node.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        unpoisoned(self.shared.nodes.read()).get(name).cloned()
    }

    /// Messages that did not fit or were none.
    pub fn failed_messages(&self) -> (u64, u64) {
        let Counts { overflowed, malformed } = &self.shared.counts;
        (overflowed.load(Ordering::Relaxed), malformed.load(Ordering::Relaxed))
    }

    /// The node, known from now on unless there are too many.
    pub(crate) fn meet(&self, name: &str, incarnation: i64) -> Option<Arc<Node>> {
        if let Some(node) = self.node(name) {
            return Some(node);
        }
        let mut nodes = unpoisoned(self.shared.nodes.write());
        if nodes.len() >= MAX_NODES {
            return None;
        }
        let state = Mutex::new(State::new(incarnation, self.shared.interest.clone()));
        let node = Arc::new(Node { name: name.to_owned(), state });
        nodes.insert(name.to_owned(), node.clone());
        Some(node)
    }
}
