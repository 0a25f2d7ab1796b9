//! Publishes a hub's counts as facts: counts of its listeners under `NODE/self/listener/`, of remote write under
//! `NODE/self/remote_write/`, of messages that were dropped under `NODE/self/live/hub/`,
//! of stored jobs under `NODE/self/jobs/`, of rules under `NODE/self/rule/`.
//!
//! The node is that of the agent in the hub's runtime directory, whose uplink sends the facts to other hubs too. A
//! hub without an agent uses the name of its host. If a node of that name publishes such facts itself, the hub
//! publishes none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use skopos_model::schema::{Metric, self_listener::REQUESTS_TOTAL};
use skopos_shm::{Host, Publisher, VertexSpec, VertexWriter};
use skopos_wire::{DropCounter, Site};

use crate::counts::ListenerCounts;
use crate::jobs::JobsPlace;
use crate::remote_write::Queue;
use crate::rules::RulesPlace;
use skopos_agent::{HUB_FACTS_NAME, SEGMENT_NAME as AGENT, host_name};

/// Time between two publishes.
const EVERY: Duration = Duration::from_secs(1);

/// Publishes counts until it is dropped; then it removes its segment.
pub(crate) struct FactsPublisher {
    /// Closed to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// All counters of a hub.
pub(crate) struct Counters {
    /// Requests of each listener.
    pub listeners: ListenerCounts,
    /// The queue of remote write, if it is configured.
    pub remote_write: Option<Arc<Queue>>,
    /// The jobs of the site.
    pub jobs: Arc<JobsPlace>,
    /// The rules that it evaluates.
    pub rules: RulesPlace,
    /// The counts of its session of the live plane, and the site, if it follows one.
    pub live: Option<(DropCounter, Site)>,
}

/// The instance of the facts about the live plane; an agent has facts of the same names.
const ROLE: &str = "hub";

impl FactsPublisher {
    /// Publishes `counters` in the runtime directory `dir` of a hub that follows `site`.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(crate) fn start(
        dir: &Path,
        site: Option<Site>,
        counters: Counters,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let mut task = Task { dir: dir.to_owned(), host: None, site, counters, facts: None };
        let run = move || {
            loop {
                task.publish();
                if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("hub-facts".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for FactsPublisher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the publishing thread.
struct Task {
    dir: PathBuf,
    /// Segments in the directory; opened at the first publish.
    host: Option<Host>,
    site: Option<Site>,
    counters: Counters,
    facts: Option<Facts>,
}

impl Task {
    fn publish(&mut self) {
        let node = self.node();
        if self.facts.as_ref().map(|facts| &facts.node) != node.as_ref() {
            // Only one segment can have the name, so the old one is removed first.
            self.facts = None;
            // If publishing fails, the counts are still at /metrics.
            self.facts = node.and_then(|node| Facts::new(&self.dir, node, &self.counters).ok());
        }
        if let Some(facts) = &self.facts {
            facts.publish(&self.counters);
        }
    }

    /// Returns the node of the facts; `None` if another node of that name publishes them.
    fn node(&mut self) -> Option<String> {
        match &mut self.host {
            // After a failure the list stays unchanged until the next publish.
            Some(host) => drop(host.refresh()),
            closed => *closed = Host::open_dirs(vec![self.dir.clone()]).ok(),
        }
        let mut segments = self.host.iter().flat_map(Host::segments);
        if let Some(agent) = segments.find(|segment| segment.name() == AGENT) {
            return Some(agent.node().to_owned());
        }
        let name = host_name();
        let topic = REQUESTS_TOTAL.topic(&name, "unix").ok()?;
        let other = self.site.as_ref().and_then(|site| site.node(&name));
        let is_published = other.is_some_and(|node| node.state().mirror.find(&topic).is_some());
        (!is_published).then_some(name)
    }
}

impl Counters {
    /// Returns each number with its metric and instance, always in the same order.
    fn numbers(&self) -> impl Iterator<Item = (&str, &'static Metric, u64)> {
        let of_listeners = self.listeners.iter().flat_map(|(listener, counts)| {
            counts.all().into_iter().map(|(metric, number)| (*listener, metric, number))
        });
        let sent = self.remote_write.iter().flat_map(|queue| queue.all());
        let live = self.live.iter().flat_map(|(drops, site)| {
            drops.numbers().into_iter().chain(site.failed_messages().numbers())
        });
        let rules = self.rules.rules().iter().flat_map(|rule| {
            rule.counts
                .all()
                .into_iter()
                .map(|(metric, number)| (&*rule.config.name, metric, number))
        });
        of_listeners
            .chain(rules)
            .chain(sent.map(|(metric, number)| ("", metric, number)))
            .chain(live.map(|(metric, number)| (ROLE, metric, number)))
            .chain(self.jobs.numbers().map(|(metric, number)| ("", metric, number)))
    }
}

struct Facts {
    node: String,
    publisher: Publisher,
    writers: Vec<VertexWriter>,
}

impl Facts {
    fn new(dir: &Path, node: String, counters: &Counters) -> Result<Self, skopos_shm::Error> {
        let publisher = Publisher::builder(HUB_FACTS_NAME).dir(dir).node(&node).create()?;
        let mut writers = Vec::new();
        for (instance, metric, _) in counters.numbers() {
            let spec = VertexSpec::new(metric.topic(&node, instance)?, metric.value_type);
            writers.push(publisher.register(spec.kind(metric.kind).unit(metric.unit))?);
        }
        Ok(Self { node, publisher, writers })
    }

    fn publish(&self, counters: &Counters) {
        for (writer, (_, _, number)) in self.writers.iter().zip(counters.numbers()) {
            // While the clock is behind the last publish, publishing fails.
            let _ = writer.publish(number);
        }
        self.publisher.heartbeat();
    }
}
