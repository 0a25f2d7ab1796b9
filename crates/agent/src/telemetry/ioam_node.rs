//! Probes with traces of IOAM, to other nodes and from them: the families `ioam_node` and `self_ioam`.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skopos_model::schema::{Family, Metric, ioam_node, self_ioam};
use skopos_net::Key;
use skopos_net::collector::FactSink as _;
use skopos_net::ioam::{ProbeSink, Prober, TraceRequest};
use skopos_sense::{Sensor, Skip, Tick};

use super::causes::with_causes;
use super::facts::FactTable;
use super::worker::{Work, Worker};
use crate::config::telemetry::IoamConfig;

/// The time between two probes of a peer, unless configured.
const INTERVAL: Duration = Duration::from_secs(1);

/// The most nodes that can write to a probe, unless configured: as many as fit.
const NODES: u8 = 10;

/// The probes as a sensor.
pub(super) struct Probes {
    prober: Option<Arc<Mutex<Prober>>>,
    sink: Option<Arc<Mutex<Taking>>>,
    facts: FactTable,
    /// The nodes that have a fact.
    nodes: BTreeSet<u32>,
    /// Stop before the others go.
    _workers: Vec<Worker>,
}

/// The sink, and the reason why its thread could not receive.
struct Taking {
    sink: ProbeSink,
    failure: Option<String>,
}

impl Probes {
    /// Opens the sockets, and starts a thread that sends and one that takes.
    ///
    /// # Errors
    /// The address is in use, or this process may not send traces.
    pub(super) fn open(config: &IoamConfig, domain: u16, key: &Key) -> Result<Self, Skip> {
        let skip = |reason: String| Skip::new(self_ioam::FAMILY.name, reason);
        let refused = |e: skopos_net::Error| skip(with_causes(&e));
        let no_thread = |e: io::Error| skip(format!("no thread: {e}"));
        let (facts, nodes) = (FactTable::default(), BTreeSet::new());
        let mut probes = Self { prober: None, sink: None, facts, nodes, _workers: Vec::new() };
        if !config.peers.is_empty() {
            let request =
                TraceRequest { namespace: config.namespace, nodes: config.nodes.unwrap_or(NODES) };
            let prober = Prober::open(&config.peers, request, key.clone());
            let prober = prober.map_err(|e| {
                skip(format!("probes need root or CAP_NET_RAW: {}", with_causes(&e)))
            })?;
            let prober = Arc::new(Mutex::new(prober));
            let own = Arc::clone(&prober);
            let work = move || {
                own.lock().map_or(Work::Failed, |mut prober| {
                    prober.send(now());
                    Work::Useful
                })
            };
            let worker = Worker::each(config.interval.unwrap_or(INTERVAL), work);
            probes._workers.push(worker.map_err(no_thread)?);
            probes.prober = Some(prober);
        }
        if let (Some(listen), Some(id), Some(to)) = (config.listen, config.id, config.collector) {
            let sink = ProbeSink::open(listen, (id, domain), to, key.clone());
            let sink = sink.map_err(refused)?.of_namespace(config.namespace);
            let taking = Arc::new(Mutex::new(Taking { sink, failure: None }));
            let own = Arc::clone(&taking);
            let work = move || own.lock().map_or(Work::Failed, |mut taking| taking.receive());
            let worker = match taking.lock() {
                Ok(taking) => Worker::serve(&taking.sink, work),
                Err(_) => Err(io::Error::other("the sink is broken")),
            };
            probes._workers.push(worker.map_err(no_thread)?);
            probes.sink = Some(taking);
        }
        Ok(probes)
    }
}

impl Taking {
    /// Takes the probes that wait.
    fn receive(&mut self) -> Work {
        let before = self.sink.counts().taken;
        match self.sink.receive(now()) {
            Ok(count) => {
                let taken = self.sink.counts().taken - before;
                if taken * 2 < count as u64 { Work::Refused } else { Work::Useful }
            }
            Err(e) => {
                self.failure = Some(with_causes(&e));
                Work::Failed
            }
        }
    }
}

/// Returns the time since 1970 in nanoseconds.
fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Sensor for Probes {
    fn family(&self) -> &'static Family {
        &self_ioam::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let panicked = || io::Error::other("its thread panicked");
        let mut sink = self.facts.at(tick.sink);
        if let Some(prober) = &self.prober {
            let (sent, failed) = prober.lock().map_err(|_| panicked())?.counts();
            sink.set(&self_ioam::SENT_TOTAL, "", sent.into());
            sink.set(&self_ioam::SEND_FAILED_TOTAL, "", failed.into());
        }
        let Some(taking) = &self.sink else { return Ok(()) };
        let mut taking = taking.lock().map_err(|_| panicked())?;
        let counts = taking.sink.counts();
        let all: [(&'static Metric, u64); 9] = [
            (&self_ioam::TAKEN_TOTAL, counts.taken),
            (&self_ioam::FORGED_TOTAL, counts.forged),
            (&self_ioam::STALE_TOTAL, counts.stale),
            (&self_ioam::REPLAYED_TOTAL, counts.replayed),
            (&self_ioam::MALFORMED_TOTAL, counts.malformed),
            (&self_ioam::WITHOUT_TRACE_TOTAL, counts.without_trace),
            (&self_ioam::CUT_SHORT_TOTAL, counts.cut_short),
            (&self_ioam::NODES_LEFT_OUT_TOTAL, counts.nodes_left_out),
            (&self_ioam::REPORTS_FAILED_TOTAL, counts.reports_failed),
        ];
        for (metric, value) in all {
            sink.set(metric, "", value.into());
        }
        let nodes = taking.sink.nodes(now());
        for (node, data) in &nodes {
            sink.set(&ioam_node::DATA, &node.to_string(), u64::from(*data).into());
        }
        for gone in self.nodes.difference(&nodes.keys().copied().collect()) {
            sink.remove(&ioam_node::FAMILY, &gone.to_string());
        }
        self.nodes = nodes.into_keys().collect();
        taking.failure.take().map_or(Ok(()), |failure| Err(io::Error::other(failure)))
    }
}
