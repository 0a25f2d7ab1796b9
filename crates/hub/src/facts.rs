//! What a hub counts, published as facts: `NODE/self/door/DOOR/…` of its doors, and
//! `NODE/self/remote_write/…` of what it sends to a store.
//!
//! The node is that of the agent in the hub's runtime directory, which tells other hubs of them too. A hub
//! without an agent gives them the name of its host; if a node of that name tells such facts itself, they
//! are that node's and it publishes none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use skopos_model::schema::{Metric, self_door::REQUESTS_TOTAL};
use skopos_shm::{Host, Publisher, VertexSpec, VertexWriter};
use skopos_wire::Site;

use crate::counts::Doors;
use crate::remote_write::Queue;
use skopos_agent::{HUB_FACTS_NAME, SEGMENT_NAME as AGENT, host_name};

/// How often the counts are published.
const EVERY: Duration = Duration::from_secs(1);

/// Publishes counts until it is dropped; then its segment is gone.
pub(crate) struct Publishing {
    /// Closed to say that it is to end.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// All that is counted.
pub(crate) struct Counted {
    pub doors: Doors,
    pub remote_write: Option<Arc<Queue>>,
}

impl Publishing {
    /// Of what is `counted`, in the runtime directory `dir` of a hub that follows `site`.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(dir: &Path, site: Option<Site>, counted: Counted) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let mut at_work = AtWork { dir: dir.to_owned(), host: None, site, counted, facts: None };
        let run = move || {
            loop {
                at_work.publish();
                if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("hub-facts".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct AtWork {
    dir: PathBuf,
    /// What is published in the directory: opened when it is first looked at.
    host: Option<Host>,
    site: Option<Site>,
    counted: Counted,
    facts: Option<Facts>,
}

impl AtWork {
    fn publish(&mut self) {
        let node = self.node();
        if self.facts.as_ref().map(|facts| &facts.node) != node.as_ref() {
            // One segment has the name: first the old one goes.
            self.facts = None;
            // Where nothing can be published the counts are at /metrics all the same.
            self.facts = node.and_then(|node| Facts::new(&self.dir, node, &self.counted).ok());
        }
        if let Some(facts) = &self.facts {
            facts.publish(&self.counted);
        }
    }

    /// Whose facts they are; `None` if they are another's.
    fn node(&mut self) -> Option<String> {
        match &mut self.host {
            // What cannot be listed now stays as it was.
            Some(host) => drop(host.refresh()),
            none => *none = Host::open_dirs(vec![self.dir.clone()]).ok(),
        }
        let mut segments = self.host.iter().flat_map(Host::segments);
        if let Some(agent) = segments.find(|segment| segment.name() == AGENT) {
            return Some(agent.node().to_owned());
        }
        let name = host_name();
        let told = REQUESTS_TOTAL.topic(&name, "unix").ok()?;
        let other = self.site.as_ref().and_then(|site| site.node(&name));
        let is_told = other.is_some_and(|node| node.state().mirror.find(&told).is_some());
        (!is_told).then_some(name)
    }
}

impl Counted {
    /// Each number with its metric and instance, always in this order.
    fn numbers(&self) -> impl Iterator<Item = (&'static str, &'static Metric, u64)> {
        let of_doors = self.doors.iter().flat_map(|(door, counts)| {
            counts.all().into_iter().map(|(metric, number)| (*door, metric, number))
        });
        let sent = self.remote_write.iter().flat_map(|queue| queue.all());
        of_doors.chain(sent.map(|(metric, number)| ("", metric, number)))
    }
}

struct Facts {
    node: String,
    publisher: Publisher,
    writers: Vec<VertexWriter>,
}

impl Facts {
    fn new(dir: &Path, node: String, counted: &Counted) -> Result<Self, skopos_shm::Error> {
        let publisher = Publisher::builder(HUB_FACTS_NAME).dir(dir).node(&node).create()?;
        let mut writers = Vec::new();
        for (instance, metric, _) in counted.numbers() {
            let spec = VertexSpec::new(metric.topic(&node, instance)?, metric.value_type);
            writers.push(publisher.register(spec.kind(metric.kind).unit(metric.unit))?);
        }
        Ok(Self { node, publisher, writers })
    }

    fn publish(&self, counted: &Counted) {
        for (writer, (_, _, number)) in self.writers.iter().zip(counted.numbers()) {
            // A clock that stepped back is waited out.
            let _ = writer.publish(number);
        }
        self.publisher.heartbeat();
    }
}
