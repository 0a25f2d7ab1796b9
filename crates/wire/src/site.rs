//! The nodes of a site, as they tell it: who is there, and a mirror of each.
//!
//! One thread takes in what comes. Callbacks of the session only put messages into a bounded queue:
//! one that waited would hold up the session, and with it everybody.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zenoh::Wait as _;
use zenoh::sample::{Sample, SampleKind};

use crate::mirror::Mirror;
use crate::plane::Plane;
use crate::{Batch, Error};

/// Messages that wait to be taken in: one each of a thousand nodes, some times over. What does not
/// fit is lost, counted and asked for again.
const MAX_WAITING: usize = 8192;

/// How long a snapshot may take before it is asked for again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Nodes that are remembered after they went. Bounds what names that come and go can fill.
const MAX_NODES: usize = 100_000;

/// Publishers of one name that are remembered. There are two for a moment when a node starts again.
const MAX_OF_ONE_NAME: usize = 16;

/// The nodes of a site. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Site {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    nodes: RwLock<HashMap<String, Arc<Node>>>,
    counts: Counts,
}

/// What went wrong.
#[derive(Debug, Default)]
struct Counts {
    /// Messages for which there was no room.
    overflowed: AtomicU64,
    /// Messages that were none.
    malformed: AtomicU64,
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
    /// Publishers of this name that are there. The first one is the node; others give way to it.
    there: BTreeSet<i64>,
    /// When a snapshot was asked for that has not come yet.
    asked_at: Option<Instant>,
}

impl State {
    fn new(incarnation: i64) -> Self {
        let (mirror, there) = (Mirror::default(), BTreeSet::new());
        Self { incarnation, is_alive: false, mirror, there, asked_at: None }
    }
}

impl Node {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is known of it, for as long as the guard is held: not long.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What comes from the session.
enum Message {
    Live { node: String, incarnation: i64, bytes: Vec<u8> },
    Alive { node: String, incarnation: i64 },
    Gone { node: String, incarnation: i64 },
    Whole { node: String, incarnation: i64, parts: Vec<Vec<u8>> },
    Stop,
}

/// Follows a site until it is dropped.
#[derive(Debug)]
pub struct Follower {
    site: Site,
    queue: SyncSender<Message>,
    thread: Option<JoinHandle<()>>,
    /// Both end when they are dropped.
    _subscribers: [zenoh::pubsub::Subscriber<()>; 2],
}

impl Follower {
    /// Follows every node of the plane's site.
    ///
    /// # Errors
    /// The session is broken; no thread can be started.
    pub fn start(plane: &Plane) -> Result<Self, Error> {
        let broken = |e: zenoh::Error| Error::plane(&e);
        let site = Site { shared: Arc::default() };
        let (queue, came) = sync_channel(MAX_WAITING);
        let put = |queue: SyncSender<Message>, shared: Arc<Shared>| {
            move |message: Option<Message>| {
                let Some(message) = message else {
                    shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
                    return;
                };
                if queue.try_send(message).is_err() {
                    shared.counts.overflowed.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let thread = {
            let (site, plane, queue) = (site.clone(), plane.clone(), queue.clone());
            let run = move || TakeIn { site, plane, queue }.run(&came);
            std::thread::Builder::new().name("live-plane".to_owned()).spawn(run)
        };
        let thread = thread.map_err(Error::Thread)?;
        let live = put(queue.clone(), site.shared.clone());
        let live = plane
            .session
            .declare_subscriber(format!("skopos/{}/live/*/*", plane.site))
            .callback(move |sample| live(live_message(&sample)))
            .wait()
            .map_err(broken)?;
        let alive = put(queue.clone(), site.shared.clone());
        let alive = plane
            .session
            .liveliness()
            .declare_subscriber(format!("skopos/{}/alive/*/*", plane.site))
            .history(true)
            .callback(move |sample| alive(alive_message(&sample)))
            .wait()
            .map_err(broken)?;
        Ok(Self { site, queue, thread: Some(thread), _subscribers: [live, alive] })
    }

    /// The site as it stands.
    pub fn site(&self) -> &Site {
        &self.site
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

/// The last two parts of a key.
pub(crate) fn of_key(key: &str) -> Option<(String, i64)> {
    let mut parts = key.rsplit('/');
    let incarnation = parts.next()?.parse().ok()?;
    Some((parts.next()?.to_owned(), incarnation))
}

fn live_message(sample: &Sample) -> Option<Message> {
    let (node, incarnation) = of_key(sample.key_expr().as_str())?;
    Some(Message::Live { node, incarnation, bytes: sample.payload().to_bytes().into_owned() })
}

fn alive_message(sample: &Sample) -> Option<Message> {
    let (node, incarnation) = of_key(sample.key_expr().as_str())?;
    Some(match sample.kind() {
        SampleKind::Put => Message::Alive { node, incarnation },
        SampleKind::Delete => Message::Gone { node, incarnation },
    })
}

impl Site {
    /// Every node that was ever there, in no order.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        let nodes = self.shared.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.values().cloned().collect()
    }

    /// One node.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.shared.nodes.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Messages that did not fit or were none.
    pub fn failed_messages(&self) -> (u64, u64) {
        let Counts { overflowed, malformed } = &self.shared.counts;
        (overflowed.load(Ordering::Relaxed), malformed.load(Ordering::Relaxed))
    }

    /// The node, known from now on unless there are too many.
    fn meet(&self, name: &str, incarnation: i64) -> Option<Arc<Node>> {
        if let Some(node) = self.node(name) {
            return Some(node);
        }
        let mut nodes = self.shared.nodes.write().unwrap_or_else(PoisonError::into_inner);
        if nodes.len() >= MAX_NODES {
            return None;
        }
        let state = Mutex::new(State::new(incarnation));
        let node = Arc::new(Node { name: name.to_owned(), state });
        nodes.insert(name.to_owned(), node.clone());
        Some(node)
    }
}

/// The thread that takes in what comes.
struct TakeIn {
    site: Site,
    plane: Plane,
    queue: SyncSender<Message>,
}

impl TakeIn {
    fn run(&self, came: &Receiver<Message>) {
        while let Ok(message) = came.recv() {
            match message {
                Message::Stop => return,
                Message::Alive { node, incarnation } => self.is_there(&node, incarnation),
                Message::Gone { node, incarnation } => self.is_gone(&node, incarnation),
                Message::Live { node, incarnation, bytes } => self.told(&node, incarnation, &bytes),
                Message::Whole { node, incarnation, parts } => {
                    self.whole(&node, incarnation, &parts)
                }
            }
        }
    }

    fn is_there(&self, name: &str, incarnation: i64) {
        let Some(node) = self.site.meet(name, incarnation) else { return };
        let mut state = node.state();
        if state.there.len() < MAX_OF_ONE_NAME {
            state.there.insert(incarnation);
        }
        self.choose(name, &mut state);
    }

    fn is_gone(&self, name: &str, incarnation: i64) {
        let Some(node) = self.site.node(name) else { return };
        let mut state = node.state();
        state.there.remove(&incarnation);
        self.choose(name, &mut state);
    }

    /// Follows the first of a node's publishers, if there is one.
    fn choose(&self, name: &str, state: &mut State) {
        let first = state.there.first().copied();
        if state.is_alive && first == Some(state.incarnation) {
            return;
        }
        let Some(first) = first else {
            state.is_alive = false;
            state.asked_at = None;
            return;
        };
        if state.incarnation != first {
            let there = std::mem::take(&mut state.there);
            *state = State { there, ..State::new(first) };
        }
        state.is_alive = true;
        self.ask(name, state);
    }

    fn told(&self, name: &str, incarnation: i64, bytes: &[u8]) {
        let Some(node) = self.site.meet(name, incarnation) else { return };
        let mut state = node.state();
        if state.incarnation != incarnation {
            return;
        }
        let Ok(batch) = Batch::decode(bytes) else {
            self.site.shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        state.mirror.take(batch);
        // Asked once, it may have come too late or not at all: it is asked for until nothing is missing.
        if !state.mirror.is_whole() {
            self.ask(name, &mut state);
        }
    }

    fn whole(&self, name: &str, incarnation: i64, parts: &[Vec<u8>]) {
        let Some(node) = self.site.node(name) else { return };
        let mut state = node.state();
        if state.incarnation != incarnation {
            return;
        }
        state.asked_at = None;
        let batches: Result<Vec<Batch>, Error> =
            parts.iter().map(|part| Batch::decode(part)).collect();
        match batches {
            Ok(batches) => state.mirror.reset(batches),
            Err(_) => {
                self.site.shared.counts.malformed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Asks a node for all that it has, unless that is under way.
    fn ask(&self, name: &str, state: &mut State) {
        if state.asked_at.is_some_and(|at| at.elapsed() < PATIENCE) {
            return;
        }
        state.asked_at = Some(Instant::now());
        let (node, incarnation) = (name.to_owned(), state.incarnation);
        let key = format!("skopos/{}/whole/{node}/{incarnation}/*", self.plane.site);
        let parts = Arc::new(Whole {
            queue: self.queue.clone(),
            node,
            incarnation,
            parts: Mutex::default(),
        });
        // When the last answer has come the callback goes, and with it `parts`, which sends them on.
        let asked = self.plane.session.get(&key).timeout(PATIENCE).callback(move |reply| {
            if let Ok(sample) = reply.result() {
                let bytes = sample.payload().to_bytes().into_owned();
                parts.parts.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
            }
        });
        if asked.wait().is_err() {
            state.asked_at = None;
        }
    }
}

/// A snapshot that comes in parts.
struct Whole {
    queue: SyncSender<Message>,
    node: String,
    incarnation: i64,
    parts: Mutex<Vec<Vec<u8>>>,
}

impl Drop for Whole {
    fn drop(&mut self) {
        let parts = std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        let node = std::mem::take(&mut self.node);
        // If there is no room it is asked for again at the next gap.
        let _ = self.queue.try_send(Message::Whole { node, incarnation: self.incarnation, parts });
    }
}
