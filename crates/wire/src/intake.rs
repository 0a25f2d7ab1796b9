//! The thread of a follower, which takes in messages.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use skopos_model::Timestamp;
use zenoh::Wait as _;
use zenoh::qos::Priority;

use crate::batch::Batch;
use crate::clock::wall;
use crate::error::Error;
use crate::inbox::{Inbox, Message};
use crate::keys;
use crate::plane::Plane;
use crate::site::{NodeState, NodeWatcher, Site};
use crate::snapshot::SnapshotParts;

/// Time after which a missing snapshot is requested again. It is long enough that a thousand nodes that
/// start together are not asked twice, which would delay their snapshots further.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes in the messages of a site.
pub(crate) struct Intake<W> {
    pub(crate) site: Site,
    pub(crate) plane: Plane,
    pub(crate) inbox: Inbox,
    pub(crate) watcher: W,
}

impl<W: NodeWatcher> Intake<W> {
    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Stop => return,
                Message::Presence => {}
                Message::Batch { node, incarnation, bytes, received_at } => {
                    self.batch(&node, incarnation, &bytes, received_at);
                }
                Message::Snapshot { node, incarnation, parts } => {
                    self.snapshot(&node, incarnation, &parts);
                }
                Message::Refreshed { node, batch, done } => {
                    let is_known = self
                        .site
                        .node(&node)
                        .is_some_and(|node| node.state().mirror.refresh(batch, &mut self.watcher));
                    // The caller may have given up.
                    let _ = done.try_send(is_known);
                }
            }
            self.presence();
        }
    }

    fn presence(&mut self) {
        for ((node, incarnation), is_present) in self.inbox.presence() {
            match is_present {
                true => self.appeared(&node, incarnation),
                false => self.disappeared(&node, incarnation),
            }
        }
    }

    fn appeared(&mut self, name: &str, incarnation: i64) {
        let Some(node) = self.site.find_or_add(name, incarnation) else { return };
        let mut state = node.state();
        state.heard_at = state.heard_at.max(wall());
        if state.appeared(incarnation, &mut self.watcher) {
            self.request_snapshot(name, &mut state);
            self.watcher.node(name, &state);
        }
    }

    fn disappeared(&mut self, name: &str, incarnation: i64) {
        let Some(node) = self.site.node(name) else { return };
        let mut state = node.state();
        if state.disappeared(incarnation, &mut self.watcher) {
            if state.is_alive {
                self.request_snapshot(name, &mut state);
            }
            self.watcher.node(name, &state);
        }
    }

    fn batch(&mut self, name: &str, incarnation: i64, bytes: &[u8], received_at: Timestamp) {
        let Some(node) = self.site.find_or_add(name, incarnation) else { return };
        let mut state = node.state();
        if state.incarnation != incarnation {
            return;
        }
        let Ok(batch) = Batch::decode(bytes) else {
            self.malformed(name, &mut state);
            return;
        };
        state.hear(batch.sent_at, received_at);
        state.mirror.take(batch, &mut self.watcher);
        // A requested snapshot may be too old or get lost, so it is requested until nothing is missing.
        if !state.mirror.is_complete() {
            self.request_snapshot(name, &mut state);
        }
        self.watcher.node(name, &state);
    }

    fn malformed(&mut self, name: &str, state: &mut NodeState) {
        state.malformed += 1;
        self.site.shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
        self.watcher.node(name, state);
    }

    fn snapshot(&mut self, name: &str, incarnation: i64, parts: &[Vec<u8>]) {
        let Some(node) = self.site.node(name) else { return };
        let mut state = node.state();
        if state.incarnation != incarnation {
            return;
        }
        state.requested_at = None;
        let batches: Result<Vec<Batch>, Error> =
            parts.iter().map(|part| Batch::decode(part)).collect();
        match batches {
            Ok(batches) => {
                let received_at = wall();
                batches.iter().for_each(|batch| state.hear(batch.sent_at, received_at));
                state.mirror.reset(batches, &mut self.watcher);
                self.watcher.node(name, &state);
            }
            Err(_) => self.malformed(name, &mut state),
        }
    }

    /// Requests a snapshot of a node, unless one is under way.
    fn request_snapshot(&self, name: &str, state: &mut NodeState) {
        if state.requested_at.is_some_and(|at| at.elapsed() < SNAPSHOT_TIMEOUT) {
            return;
        }
        state.requested_at = Some(Instant::now());
        let incarnation = state.incarnation;
        let key = keys::of_publisher(&self.plane.site, "whole", name, incarnation);
        let parts = SnapshotParts::new(self.inbox.clone(), name.to_owned(), incarnation);
        let parts = Arc::new(parts);
        // After the last answer the session drops the callback, and with it `parts`, which puts the
        // snapshot into the inbox. The priority is not that of batches, because a link that waits for
        // room for a part must not delay them.
        let request = self.plane.session.get(format!("{key}/*"));
        let request = request.timeout(SNAPSHOT_TIMEOUT).priority(Priority::DataLow);
        let request = request.callback(move |reply| {
            if let Ok(sample) = reply.result() {
                let bytes = sample.payload().to_bytes().into_owned();
                parts.add(sample.key_expr().as_str(), bytes);
            }
        });
        if request.wait().is_err() {
            state.requested_at = None;
        }
    }
}
