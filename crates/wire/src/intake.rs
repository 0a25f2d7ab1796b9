//! The thread of a follower, which takes in messages, and the short way of a batch past it.
//!
//! A callback of the session applies a batch itself if it need not wait for that. It leaves the batch to the thread if
//! messages that came before are not applied yet, so that those of one publisher stay in order, and if more than the
//! mirror has to change.
//!
//! With signed messages, a publisher counts as present once a message of it was genuine. A liveliness token is no
//! proof, because any node could declare it: it only makes the follower ask.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use skopos_model::{Timestamp, unpoisoned};
use zenoh::Wait as _;
use zenoh::qos::Priority;

use crate::arrived::Snapshot;
use crate::batch::Batch;
use crate::clock::wall;
use crate::error::Error;
use crate::inbox::{Arrived, Direct, Inbox, Message, Queued};
use crate::keys;
use crate::maker::Maker;
use crate::mirror::BatchOutcome;
use crate::plane::Plane;
use crate::requested::{Decision, Requested, SNAPSHOT_TIMEOUT, Standing};
use crate::site::{NodeState, NodeWatcher, Site};
use crate::snapshot::SnapshotParts;
use crate::trust::Exchange;

/// Time between two looks for nodes that are long gone, and for requests without an answer.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Silence after which a publisher counts as gone, whatever its token says: it sends a batch in each
/// [`LONGEST_PAUSE`](crate::Outlet::LONGEST_PAUSE), and a death must be known within two seconds.
const SILENCE: Duration = Duration::from_millis(1800);

/// The shortest time between two looks for silent publishers: a node is found to be silent that much later at most, and
/// ten thousand nodes are looked at in less than a millisecond.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// The most by which messages in the queue put off a look for silent publishers. Afterwards, the publishers that have
/// messages in the queue are left out.
const LOOK_AT_LATEST: Duration = Duration::from_millis(200);

/// Silence after which a publisher counts as gone although messages of it are in the queue: it may have died long ago.
const LONG_SILENCE: Duration = Duration::from_secs(9);

/// Delay after which a look for silent publishers is put off: this program stood still, and messages wait in its sockets.
const LATE: Duration = Duration::from_millis(500);

/// Takes in messages until the follower stops.
pub(crate) fn run<W: NodeWatcher>(
    intake: &Mutex<Intake<W>>,
    inbox: &Inbox,
    messages: &Receiver<Queued>,
) {
    loop {
        let pause = lock(intake).look_at.saturating_duration_since(Instant::now());
        let mut queued = match messages.recv_timeout(pause) {
            Ok(Queued { message: Some(Message::Stop), .. })
            | Err(RecvTimeoutError::Disconnected) => return,
            Ok(queued) => Some(queued),
            Err(RecvTimeoutError::Timeout) => None,
        };
        lock(intake).turn(queued.as_mut().and_then(|queued| queued.message.take()));
        if queued.is_some() {
            inbox.finished();
        }
    }
}

fn lock<W>(intake: &Mutex<Intake<W>>) -> MutexGuard<'_, Intake<W>> {
    unpoisoned(intake.lock())
}

impl<W: NodeWatcher> Direct for Mutex<Intake<W>> {
    fn apply(&self, arrived: Arrived) -> Result<(), Arrived> {
        let mut intake = match self.try_lock() {
            Ok(intake) => intake,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(arrived),
        };
        // While this thread has the lock, the other one finishes no message.
        if intake.inbox.is_idle() && intake.apply(&arrived) { Ok(()) } else { Err(arrived) }
    }
}

/// Takes in the messages of a site.
pub(crate) struct Intake<W> {
    site: Site,
    plane: Plane,
    inbox: Inbox,
    watcher: W,
    requested: Requested,
    looked_at: Instant,
    /// Time of the next look for silent publishers.
    look_at: Instant,
}

impl<W: NodeWatcher> Intake<W> {
    pub(crate) fn new(site: Site, plane: Plane, inbox: Inbox, watcher: W) -> Self {
        let (requested, looked_at) = (Requested::default(), Instant::now());
        Self { site, plane, inbox, watcher, requested, looked_at, look_at: looked_at }
    }

    /// Applies a message, and looks for silent publishers if that is due.
    fn turn(&mut self, message: Option<Message>) {
        let is_quiet = message.is_none();
        message.into_iter().for_each(|message| self.take(message));
        self.presence();
        self.look_around(Instant::now(), is_quiet);
    }

    /// Looks for silent publishers and for nodes that are long gone, if that is due.
    fn look_around(&mut self, now: Instant, is_quiet: bool) {
        let delay = now.checked_duration_since(self.look_at);
        if let Some(delay) = delay.filter(|delay| is_quiet || *delay >= LOOK_AT_LATEST) {
            let is_late = delay > LATE;
            let pause = if is_late { SILENCE } else { self.find_silent(now) };
            self.look_at = now + pause.clamp(LEAST_PAUSE, SILENCE);
        }
        if now.saturating_duration_since(self.looked_at) >= LOOK_EVERY {
            self.looked_at = now;
            self.look();
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Stop | Message::Presence => {}
            Message::Batch(arrived) => self.batch(&arrived),
            Message::Incomplete { node, incarnation } => self.request_snapshot(&node, incarnation),
            Message::TooLong { node, incarnation, .. } => self.too_long(&node, incarnation),
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
                true if self.plane.rules.demands() => self.request_snapshot(&node, incarnation),
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

    /// Finds publishers that are silent although their tokens are there. Returns the time until the next one may be.
    fn find_silent(&mut self, now: Instant) -> Duration {
        let mut left = SILENCE;
        for node in self.site.nodes() {
            let mut state = node.state();
            let Some(heard) = state.heard.filter(|_| state.is_alive) else { continue };
            // A publisher is not silent while its message may be in the queue.
            let has_queued = node.queued_bytes().load(Ordering::Relaxed) > 0;
            let most = if has_queued { LONG_SILENCE } else { SILENCE };
            let left_of_node = most.saturating_sub(now.saturating_duration_since(heard));
            left = left.min(if left_of_node.is_zero() { SILENCE } else { left_of_node });
            if left_of_node.is_zero() && state.fell_silent(&mut self.watcher) {
                self.watcher.node(node.name(), &state);
                if state.is_alive {
                    let incarnation = state.incarnation;
                    drop(state);
                    self.request_snapshot(node.name(), incarnation);
                }
            }
        }
        left
    }

    /// Forgets nodes that are long gone, and requests without an answer.
    fn look(&mut self) {
        self.requested.expire(Instant::now());
        for node in self.site.forget_gone() {
            let mut state = node.state();
            state.mirror.clear(&mut self.watcher);
            self.watcher.node(node.name(), &state);
        }
    }

    /// Applies a batch without waiting. Returns false, and changes nothing, if more than the mirror has to change.
    fn apply(&mut self, arrived: &Arrived) -> bool {
        let Arrived { node: name, incarnation, message, maker, received_at } = arrived;
        let Some(node) = self.site.node(name) else { return false };
        let Some(mut state) = node.try_state() else { return false };
        let is_usual = state.is_alive
            && state.incarnation == *incarnation
            && state.mirror.is_complete()
            && maker.is_publisher();
        if !is_usual {
            return false;
        }
        let Ok(batch) = Batch::decode(&message.payload) else { return false };
        self.absorb(name, &mut state, batch, *received_at);
        if !state.mirror.is_complete() {
            let (node, incarnation) = (name.clone(), *incarnation);
            // If the queue is full, the next batch asks.
            let _ = self.inbox.put(Message::Incomplete { node, incarnation });
        }
        true
    }

    /// Changes the mirror of a node by a batch of its publisher. Returns false if the batch is not new: any node can send
    /// an old one again, so it tells nothing about its publisher.
    fn absorb(
        &mut self,
        name: &str,
        state: &mut NodeState,
        batch: Batch,
        received_at: Timestamp,
    ) -> bool {
        let sent_at = batch.sent_at;
        let is_new = state.mirror.take(batch, &mut self.watcher) != BatchOutcome::Duplicate;
        if is_new {
            state.hear(sent_at, received_at);
        }
        self.watcher.node(name, state);
        is_new
    }

    fn batch(&mut self, arrived: &Arrived) {
        let Arrived { node: name, incarnation, message, received_at, .. } = arrived;
        let incarnation = *incarnation;
        if !self.is_genuine(arrived) {
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
        let is_back = state.is_silent();
        let is_new = self.absorb(name, &mut state, batch, *received_at);
        // A requested snapshot may be too old or get lost, so it is requested until nothing is missing.
        let is_complete = state.mirror.is_complete();
        drop(state);
        // With proofs, its token may be gone, or another node may have said so.
        if is_new && (is_back || self.plane.rules.demands()) {
            self.appeared(name, incarnation);
        }
        if !is_complete {
            self.request_snapshot(name, incarnation);
        }
    }

    /// Returns true if the publisher of this name made a batch. A publisher that is not known well enough is asked for a
    /// snapshot.
    fn is_genuine(&mut self, arrived: &Arrived) -> bool {
        let Arrived { node: name, incarnation, message, maker, .. } = arrived;
        let maker = match maker {
            // The session may have begun after the batch arrived.
            Maker::Unproven => {
                let node = self.site.node(name);
                node.map_or(Maker::Unproven, |node| node.maker(*incarnation, message))
            }
            proven => *proven,
        };
        match maker {
            Maker::Forged => self.inbox.note_forged(),
            // A publisher that has just proved itself has a tag for this follower. Else anybody could make the follower ask
            // for one snapshot after the other.
            Maker::Unproven if self.is_proved(name, *incarnation) => self.inbox.note_forged(),
            Maker::Unproven => self.request_snapshot(name, *incarnation),
            Maker::Publisher | Maker::Repeated => {}
        }
        maker.is_publisher()
    }

    /// Returns true if a genuine message of this publisher came not long ago.
    fn is_proved(&self, name: &str, incarnation: i64) -> bool {
        self.site.node(name).is_some_and(|node| {
            let state = node.state();
            let is_recent = state.heard.is_some_and(|heard| heard.elapsed() < SILENCE);
            state.is_alive && state.incarnation == incarnation && is_recent
        })
    }

    /// Counts bytes that cannot be a batch. They count for the node that they name where messages need no proof.
    fn too_long(&mut self, name: &str, incarnation: i64) {
        let node = self.site.node(name).filter(|_| !self.plane.rules.demands());
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
                session.into_iter().for_each(|session| node.agree(incarnation, session));
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
        let rules = &self.plane.rules;
        let key = keys::of_publisher(&self.plane.site, "whole", name, incarnation) + "/*";
        let exchange = rules.identity().map(|_| Exchange::begin()).transpose()?;
        let nonce = exchange.as_ref().map(|exchange| exchange.public).unwrap_or_default();
        let sent = rules.ask_with(&key, &[], &nonce)?;
        let parts = Arc::new(SnapshotParts {
            inbox: self.inbox.clone(),
            rules: rules.clone(),
            node: name.to_owned(),
            incarnation,
            nonce: sent.nonce,
            exchange: Mutex::new(exchange),
            parts: Mutex::default(),
        });
        // The priority is not that of batches, because a link that waits for
        // room for a part must not delay them.
        let request = self.plane.ask_all(key).attachment(sent.proof);
        let request = request.timeout(SNAPSHOT_TIMEOUT).priority(Priority::DataLow);
        let request = request.callback(move |reply| {
            if let Ok(sample) = reply.result() {
                parts.add(sample);
            }
        });
        request.wait().map_err(|e| Error::plane(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PlaneConfig;
    use crate::interest::Interest;
    use crate::site::Node;
    use crate::trust;

    /// An intake that looks for silent publishers at chosen times, with two nodes that are silent from now on.
    fn two_silent() -> (Intake<()>, Receiver<Queued>, [Arc<Node>; 2]) {
        let plane = Plane::open(&PlaneConfig::alone("test")).expect("a session");
        let site = Site::new(Interest::default());
        let (inbox, messages) = Inbox::new(site.shared.clone(), true);
        let mut intake = Intake::new(site.clone(), plane, inbox, ());
        let heard = Instant::now();
        let nodes = ["n01", "n02"].map(|name| {
            intake.appeared(name, 1);
            let node = site.node(name).expect("a node");
            node.state().heard = Some(heard);
            node
        });
        (intake, messages, nodes)
    }

    /// Looks for silent publishers for so long, as often as a queue that is never empty allows, and returns which of the
    /// nodes are alive then. The time passes in the test alone.
    fn alive_after(intake: &mut Intake<()>, time: Duration, nodes: &[Arc<Node>; 2]) -> [bool; 2] {
        let begun = nodes[0].state().heard.expect("it appeared");
        intake.look_at = begun;
        // A look that is due may be put off for one step.
        let steps = time.as_millis().div_ceil(LOOK_AT_LATEST.as_millis()) as u32 + 1;
        (0..=steps).for_each(|n| intake.look_around(begun + n * LOOK_AT_LATEST, false));
        [0, 1].map(|n| nodes[n].state().is_alive)
    }

    #[test]
    fn a_queue_that_is_never_empty_does_not_hide_a_silent_publisher() {
        let (mut intake, _messages, nodes) = two_silent();
        nodes[0].queued_bytes().fetch_add(1, Ordering::Relaxed);
        let alive = alive_after(&mut intake, 2 * SILENCE, &nodes);
        assert_eq!(alive, [true, false], "a message of the first is in the queue");
        let alive = alive_after(&mut intake, LONG_SILENCE, &nodes);
        assert_eq!(alive, [false; 2], "the message is old");
    }

    /// Puts a batch without a proof into the queue.
    fn put_unproven(inbox: &Inbox, node: &str) -> bool {
        let message = trust::Message { key: String::new(), payload: Vec::new(), proof: None };
        let (node, maker, received_at) = (node.to_owned(), Maker::Unproven, wall());
        let arrived = Arrived { node, incarnation: 1, message, maker, received_at };
        inbox.put(Message::Batch(arrived))
    }

    #[test]
    fn messages_that_anybody_can_have_sent_do_not_hide_a_death() {
        let (mut intake, _messages, nodes) = two_silent();
        assert!(put_unproven(&intake.inbox, "n01"));
        assert_eq!(alive_after(&mut intake, 2 * SILENCE, &nodes), [false; 2]);
    }
}
