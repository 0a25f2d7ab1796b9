//! Following a site: what comes from the session is taken in by one thread.
//!
//! Callbacks of the session only put messages into a bounded queue: one that waited would hold up the
//! session, and with it everybody. A batch for which there is no room is lost, counted, and made up for by
//! a snapshot; who came and went is not lost.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skopos_model::{Timestamp, Topic, unpoisoned};
use zenoh::Wait as _;
use zenoh::qos::Priority;
use zenoh::sample::{Sample, SampleKind};

use crate::clock::wall;
use crate::plane::{Plane, aside};
use crate::site::{Shared, Site, State};
use crate::watch::{Interest, Watcher};
use crate::{Batch, Error};

/// Messages that wait to be taken in: one each of a thousand nodes, some times over. What does not
/// fit is lost, counted and asked for again.
const MAX_WAITING: usize = 8192;

/// Comings and goings that wait to be looked at: all nodes of a large site, and some again.
const MAX_NOTED: usize = 200_000;

/// How long a snapshot may take before it is asked for again: so long that a thousand nodes that come at
/// once are not asked twice, because what is late would then be later.
const PATIENCE: Duration = Duration::from_secs(10);

/// Messages of one snapshot: as many vertices as a mirror keeps, with long topics, fit twice.
const MAX_PARTS: usize = 1024;

/// What comes from the session.
#[derive(Debug)]
enum Message {
    Live {
        node: String,
        incarnation: i64,
        bytes: Vec<u8>,
        came_at: Timestamp,
    },
    /// Somebody came or went: look who.
    Presence,
    Whole {
        node: String,
        incarnation: i64,
        parts: Vec<Vec<u8>>,
    },
    Fresh {
        node: String,
        batch: Batch,
        done: SyncSender<bool>,
    },
    Stop,
}

/// Follows a site until it is dropped.
#[derive(Debug)]
pub struct Follower {
    site: Site,
    plane: Plane,
    queue: SyncSender<Message>,
    presence: Presence,
    thread: Option<JoinHandle<()>>,
    /// They end when they are dropped.
    _subscribers: Vec<zenoh::pubsub::Subscriber<()>>,
    _known: Option<zenoh::query::Queryable<()>>,
}

impl Follower {
    /// Follows every node of the plane's site.
    ///
    /// # Errors
    /// The session is broken; no thread can be started.
    pub fn start(plane: &Plane) -> Result<Self, Error> {
        Self::start_with(plane, Interest::default(), ())
    }

    /// Follows the nodes that can have what is of interest, and tells `watcher` what becomes of them.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        plane: &Plane,
        interest: Interest,
        watcher: impl Watcher + 'static,
    ) -> Result<Self, Error> {
        let nodes = interest.nodes();
        let site = Site::new(interest);
        let (queue, came) = sync_channel(MAX_WAITING);
        let presence = Presence::default();
        let thread = {
            let (site, plane, queue) = (site.clone(), plane.clone(), queue.clone());
            let presence = presence.clone();
            let run = move || TakeIn { site, plane, queue, presence, watcher }.run(&came);
            std::thread::Builder::new().name("live-plane".to_owned()).spawn(run)
        };
        let thread = Some(thread.map_err(Error::Thread)?);
        let plane = plane.clone();
        let mut follower =
            Self { site, plane, queue, presence, thread, _subscribers: Vec::new(), _known: None };
        for node in nodes {
            follower.subscribe(node.as_str()).map_err(|e| Error::plane(&e))?;
        }
        follower.tell_who_is_known().map_err(|e| Error::plane(&e))?;
        Ok(follower)
    }

    /// Answers those who want to be a node which one of that name there is.
    fn tell_who_is_known(&mut self) -> Result<(), zenoh::Error> {
        let (site, busy) = (self.site.clone(), Arc::default());
        let known = self.plane.session.declare_queryable(self.plane.known_key());
        let known = known.callback(move |query| {
            let key = query.key_expr().clone();
            let name = key.as_str().rsplit('/').next().unwrap_or_default();
            let Some(node) = site.node(name) else { return };
            let known =
                { Some(node.state()).filter(|state| state.is_alive).map(|s| s.incarnation) };
            if let Some(known) = known {
                aside(&busy, move || drop(query.reply(key, known.to_string()).wait()));
            }
        });
        self._known = Some(known.wait()?);
        Ok(())
    }

    /// Follows nodes whose names match a part of a key.
    fn subscribe(&mut self, node: &str) -> Result<(), zenoh::Error> {
        let key = |what: &str| format!("skopos/{}/{what}/{node}/*", self.plane.site);
        let (queue, shared) = (self.queue.clone(), self.site.shared.clone());
        let live = self
            .plane
            .session
            .declare_subscriber(key("live"))
            .callback(move |sample| put(&queue, &shared, &sample));
        let (queue, shared) = (self.queue.clone(), self.site.shared.clone());
        let presence = self.presence.clone();
        let alive = self
            .plane
            .session
            .liveliness()
            .declare_subscriber(key("alive"))
            .history(true)
            .callback(move |sample| note(&queue, &presence, &shared, &sample));
        self._subscribers.extend([live.wait()?, alive.wait()?]);
        Ok(())
    }

    /// What it follows it through.
    pub fn plane(&self) -> &Plane {
        &self.plane
    }

    /// The site as it stands.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// What has single topics measured anew. Cheap to clone, and of no use once this is dropped.
    pub fn refresher(&self) -> Refresher {
        Refresher { plane: self.plane.clone(), queue: self.queue.clone() }
    }
}

/// Has topics of nodes that are followed measured now.
#[derive(Clone, Debug)]
pub struct Refresher {
    plane: Plane,
    queue: SyncSender<Message>,
}

impl Refresher {
    /// Has a topic measured by its node, and waits until the answer is in the mirror.
    ///
    /// # Errors
    /// As [`Plane::refresh`]; [`Error::Unfollowed`] if it is not in the mirror.
    pub fn refresh(&self, topic: &Topic, deadline: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        let batch = self.plane.refresh(topic, deadline)?;
        let late = || Error::NoAnswer { node: topic.node().to_owned(), within: deadline };
        let (done, taken) = sync_channel(1);
        let message = Message::Fresh { node: topic.node().to_owned(), batch, done };
        self.queue.try_send(message).map_err(|_| late())?;
        match taken.recv_timeout(deadline.saturating_sub(begun.elapsed())) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Unfollowed(topic.clone())),
            Err(_) => Err(late()),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.queue.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Who came and who went, and was not looked at yet: by name and incarnation. Nobody would say it again,
/// so it does not wait in the queue, where there may be no room.
type Presence = Arc<Mutex<HashMap<(String, i64), bool>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// Puts a message into the queue; what cannot be is counted.
fn put(queue: &SyncSender<Message>, shared: &Shared, sample: &Sample) {
    let Some((node, incarnation)) = of_key(sample.key_expr().as_str()) else {
        shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
        return;
    };
    if shared.interest.is_own(&node) {
        return;
    }
    let bytes = sample.payload().to_bytes().into_owned();
    let message = Message::Live { node, incarnation, bytes, came_at: wall() };
    if queue.try_send(message).is_err() {
        shared.counts.overflowed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Notes that somebody came or went.
fn note(queue: &SyncSender<Message>, presence: &Presence, shared: &Shared, sample: &Sample) {
    let Some((node, incarnation)) = of_key(sample.key_expr().as_str()) else {
        shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
        return;
    };
    if shared.interest.is_own(&node) {
        return;
    }
    let mut noted = lock(presence);
    let key = (node, incarnation);
    if noted.len() >= MAX_NOTED && !noted.contains_key(&key) {
        shared.counts.overflowed.fetch_add(1, Ordering::Relaxed);
        return;
    }
    noted.insert(key, sample.kind() == SampleKind::Put);
    drop(noted);
    // If there is no room the thread has messages to take in, and looks after each.
    let _ = queue.try_send(Message::Presence);
}

/// The last two parts of a key.
pub(crate) fn of_key(key: &str) -> Option<(String, i64)> {
    let mut parts = key.rsplit('/');
    let incarnation = parts.next()?.parse().ok()?;
    Some((parts.next()?.to_owned(), incarnation))
}

/// The thread that takes in what comes.
struct TakeIn<W> {
    site: Site,
    plane: Plane,
    queue: SyncSender<Message>,
    presence: Presence,
    watcher: W,
}

impl<W: Watcher> TakeIn<W> {
    fn run(mut self, came: &Receiver<Message>) {
        while let Ok(message) = came.recv() {
            match message {
                Message::Stop => return,
                Message::Presence => {}
                Message::Live { node, incarnation, bytes, came_at } => {
                    self.told(&node, incarnation, &bytes, came_at);
                }
                Message::Whole { node, incarnation, parts } => {
                    self.whole(&node, incarnation, &parts);
                }
                Message::Fresh { node, batch, done } => {
                    let is_in = self
                        .site
                        .node(&node)
                        .is_some_and(|node| node.state().mirror.freshen(batch, &mut self.watcher));
                    // Who asked may have given up.
                    let _ = done.try_send(is_in);
                }
            }
            self.look_who_is_there();
        }
    }

    fn look_who_is_there(&mut self) {
        let noted = std::mem::take(&mut *lock(&self.presence));
        for ((node, incarnation), is_there) in noted {
            match is_there {
                true => self.is_there(&node, incarnation),
                false => self.is_gone(&node, incarnation),
            }
        }
    }

    fn is_there(&mut self, name: &str, incarnation: i64) {
        let Some(node) = self.site.meet(name, incarnation) else { return };
        let mut state = node.state();
        state.heard_at = state.heard_at.max(wall());
        if state.came(incarnation, &mut self.watcher) {
            self.ask(name, &mut state);
            self.watcher.heard(name, &state);
        }
    }

    fn is_gone(&mut self, name: &str, incarnation: i64) {
        let Some(node) = self.site.node(name) else { return };
        let mut state = node.state();
        if state.went(incarnation, &mut self.watcher) {
            if state.is_alive {
                self.ask(name, &mut state);
            }
            self.watcher.heard(name, &state);
        }
    }

    fn told(&mut self, name: &str, incarnation: i64, bytes: &[u8], came_at: Timestamp) {
        let Some(node) = self.site.meet(name, incarnation) else { return };
        let mut state = node.state();
        if state.incarnation != incarnation {
            return;
        }
        let Ok(batch) = Batch::decode(bytes) else {
            self.is_malformed(name, &mut state);
            return;
        };
        state.hear(batch.sent_at, came_at);
        state.mirror.take(batch, &mut self.watcher);
        // Asked once, it may have come too late or not at all: it is asked for until nothing is missing.
        if !state.mirror.is_whole() {
            self.ask(name, &mut state);
        }
        self.watcher.heard(name, &state);
    }

    fn is_malformed(&mut self, name: &str, state: &mut State) {
        state.malformed += 1;
        self.site.shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
        self.watcher.heard(name, state);
    }

    fn whole(&mut self, name: &str, incarnation: i64, parts: &[Vec<u8>]) {
        let Some(node) = self.site.node(name) else { return };
        let mut state = node.state();
        if state.incarnation != incarnation {
            return;
        }
        state.asked_at = None;
        let batches: Result<Vec<Batch>, Error> =
            parts.iter().map(|part| Batch::decode(part)).collect();
        match batches {
            Ok(batches) => {
                let came_at = wall();
                batches.iter().for_each(|batch| state.hear(batch.sent_at, came_at));
                state.mirror.reset(batches, &mut self.watcher);
                self.watcher.heard(name, &state);
            }
            Err(_) => self.is_malformed(name, &mut state),
        }
    }

    /// Asks a node for all that it has, unless that is under way.
    fn ask(&self, name: &str, state: &mut State) {
        if state.asked_at.is_some_and(|at| at.elapsed() < PATIENCE) {
            return;
        }
        state.asked_at = Some(Instant::now());
        let (node, incarnation) = (name.to_owned(), state.incarnation);
        let key = format!("{}/*", self.plane.key("whole", &node, incarnation));
        let parts = Arc::new(Whole {
            queue: self.queue.clone(),
            node,
            incarnation,
            parts: Mutex::default(),
        });
        // When the last answer has come the callback goes, and with it `parts`, which sends them on.
        // Not the priority of batches: what is waited for there must not hold these up.
        let asked = self.plane.session.get(&key).timeout(PATIENCE).priority(Priority::DataLow);
        let asked = asked.callback(move |reply| {
            if let Ok(sample) = reply.result() {
                let part = Part::of(sample.key_expr().as_str());
                lock(&parts.parts)
                    .extend(part.map(|p| (p, sample.payload().to_bytes().into_owned())));
            }
        });
        if asked.wait().is_err() {
            state.asked_at = None;
        }
    }
}

/// Which part of a snapshot a message is: the end of its key, `0of3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    at: usize,
    of: usize,
}

impl Part {
    fn of(key: &str) -> Option<Self> {
        let (at, of) = key.rsplit('/').next()?.split_once("of")?;
        let part = Self { at: at.parse().ok()?, of: of.parse().ok()? };
        (part.at < part.of && part.of <= MAX_PARTS).then_some(part)
    }
}

/// A snapshot that comes in parts.
struct Whole {
    queue: SyncSender<Message>,
    node: String,
    incarnation: i64,
    parts: Mutex<Vec<(Part, Vec<u8>)>>,
}

/// The parts in their order, if all are there: half a snapshot would say that the rest is gone.
fn assemble(mut parts: Vec<(Part, Vec<u8>)>) -> Option<Vec<Vec<u8>>> {
    parts.sort_by_key(|(part, _)| *part);
    let of = parts.first()?.0.of;
    let is_next = |(at, (part, _)): (usize, &(Part, _))| part.at == at && part.of == of;
    let is_whole = parts.len() == of && parts.iter().enumerate().all(is_next);
    is_whole.then(|| parts.into_iter().map(|(_, bytes)| bytes).collect())
}

impl Drop for Whole {
    fn drop(&mut self) {
        let parts = std::mem::take(&mut *lock(&self.parts));
        let node = std::mem::take(&mut self.node);
        let Some(parts) = assemble(parts) else { return };
        // If there is no room it is asked for again, as after one that did not come.
        let _ = self.queue.try_send(Message::Whole { node, incarnation: self.incarnation, parts });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_snapshot_is_none() {
        let part = |key: &str| Part::of(key).map(|part| (part, key.as_bytes().to_vec()));
        let all = |keys: &[&str]| {
            let parts = keys.iter().filter_map(|key| part(key)).collect();
            assemble(parts).map(|parts| parts.concat())
        };
        assert_eq!(all(&["k/1of2", "k/0of2"]), Some(b"k/0of2k/1of2".to_vec()));
        for keys in [
            &["k/0of2"][..],
            &["k/1of2"],
            &["k/0of3", "k/2of3"],
            &["k/0of2", "k/0of2"],
            &["k/0of1", "k/0of2"],
            &["k/0"],
            &["k/1of1"],
            &["k/0of4096"],
            &[],
        ] {
            assert_eq!(all(keys), None, "{keys:?}");
        }
    }
}
