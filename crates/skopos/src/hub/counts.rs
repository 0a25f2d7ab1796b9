//! What was asked through each door, counted, and published as facts `NODE/self/door/DOOR/…` where an
//! agent gives this machine a node's name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use skopos_model::schema::{self, Metric};
use skopos_shm::{Host, Publisher, VertexSpec, VertexWriter};

use crate::agent::SEGMENT_NAME as AGENT;

/// How often the counts are published.
const EVERY: Duration = Duration::from_secs(1);

/// The segment's name, beside that of the agent.
const SEGMENT: &str = "hub";

/// Of one door.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: AtomicU64,
    refused: AtomicU64,
    cancelled: AtomicU64,
    running: AtomicU64,
    connections: AtomicU64,
}

/// One connection, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Connected(Arc<Counts>);

/// One question that is being answered, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Running {
    counts: Arc<Counts>,
    is_done: bool,
}

impl Counts {
    /// A request came.
    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody is not let in, which counts as a request that is refused.
    pub(crate) fn turn_away(&self) {
        self.request();
        self.refuse();
    }

    /// It was refused.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A question is being answered until [`Running::done`]; if that is never said it was given up.
    pub(crate) fn run(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running { counts: self.clone(), is_done: false }
    }

    /// A question stands. To go away is how it ends, so it is never given up.
    pub(crate) fn stand(self: &Arc<Self>) -> Running {
        let mut standing = self.run();
        standing.is_done = true;
        standing
    }

    /// A connection is open; `None` if there are `most` already.
    pub(crate) fn connect(self: &Arc<Self>, most: u64) -> Option<Connected> {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let connected = Connected(self.clone());
        (before < most).then_some(connected)
    }

    /// Each metric with its number now.
    pub(crate) fn all(&self) -> [(&'static Metric, u64); 5] {
        use schema::self_door as of;
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            (&of::REQUESTS_TOTAL, now(&self.requests)),
            (&of::REQUESTS_REFUSED_TOTAL, now(&self.refused)),
            (&of::REQUESTS_CANCELLED_TOTAL, now(&self.cancelled)),
            (&of::REQUESTS_RUNNING, now(&self.running)),
            (&of::CONNECTIONS, now(&self.connections)),
        ]
    }
}

impl Running {
    /// The question was answered.
    pub(crate) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.counts.running.fetch_sub(1, Ordering::Relaxed);
        if !self.is_done {
            self.counts.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The counts of all doors, by name.
pub(crate) type Doors = Vec<(&'static str, Arc<Counts>)>;

/// Publishes counts until it is dropped.
pub(super) struct Publishing(Arc<AtomicBool>);

impl Publishing {
    /// Of `doors`, in the runtime directory `dir`.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(dir: &Path, doors: Doors) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let run = {
            let (stop, dir) = (stop.clone(), dir.to_path_buf());
            move || run(&dir, &doors, &stop)
        };
        std::thread::Builder::new().name("hub-facts".to_owned()).spawn(run)?;
        Ok(Self(stop))
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run(dir: &Path, doors: &Doors, stop: &AtomicBool) {
    let mut facts = None;
    while !stop.load(Ordering::Relaxed) {
        if facts.is_none() {
            // Where nothing can be published the counts are at /metrics all the same.
            facts = node(dir).and_then(|node| Facts::new(dir, &node, doors).ok());
        }
        if let Some(facts) = &facts {
            facts.publish(doors);
        }
        std::thread::sleep(EVERY);
    }
}

/// The node's name, as the agent of this directory has it.
pub(super) fn node(dir: &Path) -> Option<String> {
    let host = Host::open_dirs(vec![PathBuf::from(dir)]).ok()?;
    let agent = host.segments().iter().find(|segment| segment.name() == AGENT);
    agent.map(|agent| agent.node().to_owned())
}

struct Facts {
    publisher: Publisher,
    writers: Vec<VertexWriter>,
}

impl Facts {
    fn new(dir: &Path, node: &str, doors: &Doors) -> Result<Self, skopos_shm::Error> {
        let publisher = Publisher::builder(SEGMENT).dir(dir).node(node).create()?;
        let mut writers = Vec::new();
        for (door, counts) in doors {
            for (metric, _) in counts.all() {
                let topic = metric.topic(node, door)?;
                let spec = VertexSpec::new(topic, metric.value_type);
                writers.push(publisher.register(spec.kind(metric.kind).unit(metric.unit))?);
            }
        }
        Ok(Self { publisher, writers })
    }

    fn publish(&self, doors: &Doors) {
        let numbers = doors.iter().flat_map(|(_, counts)| counts.all());
        for (writer, (_, number)) in self.writers.iter().zip(numbers) {
            // A clock that stepped back is waited out.
            let _ = writer.publish(number);
        }
        self.publisher.heartbeat();
    }
}
