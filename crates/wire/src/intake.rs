//! The thread of a follower, which takes in messages.
//!
//! With signed messages, a publisher counts as present once a message of it was genuine. A liveliness token is no
//! proof, because any node could declare it: it only makes the follower ask.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_model::Timestamp;
use zenoh::Wait as _;
use zenoh::qos::Priority;

use crate::arrived::Snapshot;
use crate::batch::Batch;
use crate::clock::wall;
use crate::error::Error;
use crate::inbox::{Inbox, Message};
use crate::keys;
use crate::plane::Plane;
use crate::requested::{Decision, Requested, SNAPSHOT_TIMEOUT, Standing};
use crate::site::{NodeState, NodeWatcher, Site};
use crate::snapshot::SnapshotParts;
use crate::trust::{self, Exchange, Tagged};

/// Time between two looks for nodes that are silent or long gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Silence after which a publisher of signed messages counts as gone, whatever its token says: it sends a batch every
/// second.
const SILENCE: Duration = Duration::from_secs(5);

/// Takes in the messages of a site.
pub(crate) struct Intake<W> {
    site: Site,
    plane: Plane,
    inbox: Inbox,
    watcher: W,
    requested: Requested,
    looked_at: Instant,
}

impl<W: NodeWatcher> Intake<W> {
    pub(crate) fn new(site: Site, plane: Plane, inbox: Inbox, watcher: W) -> Self {
        let (requested, looked_at) = (Requested::default(), Instant::now());
        Self { site, plane, inbox, watcher, requested, looked_at }
    }

    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        loop {
            match messages.recv_timeout(LOOK_EVERY) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.presence();
            if self.looked_at.elapsed() >= LOOK_EVERY {
                self.looked_at = Instant::now();
                self.look();
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Stop | Message::Presence => {}
            Message::Batch { node, incarnation, message, received_at } => {
                self.batch(&node, incarnation, &message, received_at);
            }
            Message::TooLong { node, incarnation } => self.too_long(&node, incarnation),
            Message::Snapshot(snapshot) => self.snapshot(snapshot),
            Message::Refreshed { node, batch, done } => {
                let is_known = self
                    .site
                    .node(&node)
                    .is_some_and(|node| node.state().mirror.refresh(batch, &mut self.watcher));
                // The caller may have given up.
                let _ = done.try_send(is_known);
            }
        }
    }

    fn presence(&mut self) {
        for ((node, incarnation), is_present) in self.inbox.presence() {
            match is_present {
                true if self.plane.desk.demands() => self.request_snapshot(&node, incarnation),
                true => self.appeared(&node, incarnation),
                false => self.disappeared(&node, incarnation),
            }
        }
    }

    /// Notes that a publisher is present.
    fn appeared(&mut self, name: &str, incarnation: i64) {
        let Some(node) = self.site.find_or_add(name, incarnation) else { return };
        let mut state = node.state();
        state.heard_at = state.heard_at.max(wall());
        state.heard = Some(Instant::now());
        if state.appeared(incarnation, &mut self.watcher) {
            self.watcher.node(name, &state);
            let incarnation = state.incarnation;
            drop(state);
            self.request_snapshot(name, incarnation);
        }
    }

    fn disappeared(&mut self, name: &str, incarnation: i64) {
        let Some(node) = self.site.node(name) else { return };
        let mut state = node.state();
        if state.disappeared(incarnation, &mut self.watcher) {
            self.watcher.node(name, &state);
            if state.is_alive {
                let incarnation = state.incarnation;
                drop(state);
                self.request_snapshot(name, incarnation);
            }
        }
    }

    /// Finds publishers that are silent although their tokens are there, and forgets nodes that are long gone, and
    /// requests without an answer.
    fn look(&mut self) {
        self.requested.expire(Instant::now());
        if self.plane.desk.demands() {
            let is_silent = |state: &NodeState| {
                state.is_alive && state.heard.is_some_and(|at| at.elapsed() > SILENCE)
            };
            for node in self.site.nodes() {
                let state = node.state();
                if is_silent(&state) {
                    let incarnation = state.incarnation;
                    drop(state);
                    self.disappeared(node.name(), incarnation);
                }
            }
        }
        for node in self.site.forget_gone() {
            let mut state = node.state();
            state.mirror.clear(&mut self.watcher);
            self.watcher.node(node.name(), &state);
        }
    }

    fn batch(
        &mut self,
        name: &str,
        incarnation: i64,
        message: &trust::Message,
        received_at: Timestamp,
    ) {
        if self.plane.desk.demands() && !self.is_genuine(name, incarnation, message) {
            return;
        }
        let Some(node) = self.site.find_or_add(name, incarnation) else { return };
        let mut state = node.state();
        if state.incarnation != incarnation {
            return;
        }
        let Ok(batch) = Batch::decode(&message.payload) else {
            self.malformed(name, &mut state);
            return;
        };
        state.hear(batch.sent_at, received_at);
        state.mirror.take(batch, &mut self.watcher);
        // A requested snapshot may be too old or get lost, so it is requested until nothing is missing.
        let is_complete = state.mirror.is_complete();
        self.watcher.node(name, &state);
        drop(state);
        if !is_complete {
            self.request_snapshot(name, incarnation);
        }
    }

    /// Returns true if the publisher of this name made a batch. A publisher that is not known well enough is asked for a
    /// snapshot.
    fn is_genuine(&mut self, name: &str, incarnation: i64, message: &trust::Message) -> bool {
        let tagged = self.site.node(name).map_or(Tagged::Absent, |node| {
            let state = node.state();
            let session = state.session.as_ref().filter(|_| state.incarnation == incarnation);
            let tags = message.proof.as_deref().unwrap_or_default();
            session.map_or(Tagged::Absent, |one| one.check(&message.key, &message.payload, tags))
        });
        match tagged {
            Tagged::Genuine => {
                // Its token may be gone, or another node may have said so.
                self.appeared(name, incarnation);
                true
            }
            Tagged::Forged => {
                self.site.shared.counts.forged.fetch_add(1, Ordering::Relaxed);
                false
            }
            Tagged::Absent => {
                self.request_snapshot(name, incarnation);
                false
            }
        }
    }

    /// Counts bytes that cannot be a batch. They count for the node that they name where messages need no proof.
    fn too_long(&mut self, name: &str, incarnation: i64) {
        let node = self.site.node(name).filter(|_| !self.plane.desk.demands());
        let state = node.as_ref().map(|node| node.state());
        match state.filter(|state| state.incarnation == incarnation) {
            Some(mut state) => self.malformed(name, &mut state),
            None => drop(self.site.shared.counts.malformed.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn malformed(&mut self, name: &str, state: &mut NodeState) {
        state.malformed += 1;
        self.site.shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
        self.watcher.node(name, state);
    }

    fn snapshot(&mut self, mut snapshot: Snapshot) {
        let (name, incarnation) = (snapshot.node.clone(), snapshot.incarnation);
        let Ok(session) = snapshot.take_session() else {
            self.requested.remove(&name, incarnation);
            self.site.shared.counts.forged.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if session.is_some() {
            self.appeared(&name, incarnation);
        }
        self.requested.remove(&name, incarnation);
        let Some(node) = self.site.node(&name) else { return };
        let mut state = node.state();
        if state.incarnation != incarnation {
            return;
        }
        match snapshot.batches() {
            Ok(batches) => {
                let received_at = wall();
                batches.iter().for_each(|batch| state.hear(batch.sent_at, received_at));
                state.session = session;
                state.mirror.reset(batches, &mut self.watcher);
                self.watcher.node(&name, &state);
            }
            Err(_) => self.malformed(&name, &mut state),
        }
    }

    /// Requests a snapshot of a publisher, unless one is under way. Counts the request if there is no place for it.
    fn request_snapshot(&mut self, name: &str, incarnation: i64) {
        let standing = match self.site.node(name) {
            Some(node) if node.state().incarnation == incarnation => Standing::Followed,
            Some(_) => Standing::Known,
            None => Standing::Unknown,
        };
        let now = Instant::now();
        match self.requested.decide(name, incarnation, standing, now) {
            Decision::UnderWay => {}
            Decision::Full => {
                self.site.shared.counts.overflowed.fetch_add(1, Ordering::Relaxed);
            }
            Decision::Ask => {
                if self.send_request(name, incarnation).is_ok() {
                    self.requested.insert(name, incarnation, now);
                }
            }
        }
    }

    fn send_request(&self, name: &str, incarnation: i64) -> Result<(), Error> {
        let desk = &self.plane.desk;
        let key = keys::of_publisher(&self.plane.site, "whole", name, incarnation) + "/*";
        let exchange = desk.identity().map(|_| Exchange::begin()).transpose()?;
        let nonce = exchange.as_ref().map(|exchange| exchange.public).unwrap_or_default();
        let asked = desk.ask_with(&key, &[], &nonce)?;
        let parts = Arc::new(SnapshotParts {
            inbox: self.inbox.clone(),
            desk: desk.clone(),
            node: name.to_owned(),
            incarnation,
            nonce: asked.nonce,
            exchange: Mutex::new(exchange),
            parts: Mutex::default(),
        });
        // The priority is not that of batches, because a link that waits for
        // room for a part must not delay them.
        let request = self.plane.ask_all(key).attachment(asked.proof);
        let request = request.timeout(SNAPSHOT_TIMEOUT).priority(Priority::DataLow);
        let request = request.callback(move |reply| {
            if let Ok(sample) = reply.result() {
                parts.add(sample);
            }
        });
        request.wait().map_err(|e| Error::plane(&e))
    }
}
