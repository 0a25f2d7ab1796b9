//! Anomaly reports of this node: judges the numbers of all sensors, and sends a datagram when something is unusual. The
//! family `self_anomaly_reports`.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skopos_model::schema::{Family, Metric, self_anomaly_reports};
use skopos_model::{Kind, Timestamp};
use skopos_net::anomaly::{Handle, Reporter, ReporterCounts};
use skopos_net::collector::FactSink as _;
use skopos_sense::{Sensor, Skip, Tick};
use skopos_shm::VertexWriter;

use super::causes::with_causes;
use super::facts::FactTable;
use crate::sink::{Change, Yielded};

/// The time between two reports, unless configured.
const INTERVAL: Duration = Duration::from_secs(1);

/// Beginnings of topics that are not judged: the work of the agent itself, and what others report.
const NOT_JUDGED: [&str; 6] = ["self", "path", "port", "int_node", "telemetry", "anomaly_report"];

/// The sender.
pub(crate) struct AnomalyReports {
    reporter: Reporter,
    socket: UdpSocket,
    /// The judged metrics by the number of their sensor and their index in its table.
    handles: Vec<Vec<Option<Handle>>>,
    metrics: u64,
    /// The numbers of a poll, kept for its memory.
    samples: Vec<(Handle, f64)>,
    interval: Duration,
    due: Duration,
    shared: Arc<Mutex<Sent>>,
}

/// The numbers of the sender, for its facts.
#[derive(Clone, Copy, Default)]
struct Sent {
    counts: ReporterCounts,
    metrics: u64,
    unusual: u64,
    failed: u64,
}

/// The facts about the sender.
pub(super) struct SentFacts {
    shared: Arc<Mutex<Sent>>,
    facts: FactTable,
}

impl AnomalyReports {
    /// Opens a socket to the receiver.
    ///
    /// # Errors
    /// There is no route to it.
    pub(super) fn open(
        to: SocketAddr,
        secret: &[u8; 32],
        node: &str,
        interval: Option<Duration>,
    ) -> Result<(Self, SentFacts), Skip> {
        let skip = |reason: String| Skip::new(self_anomaly_reports::FAMILY.name, reason);
        let any: SocketAddr =
            if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(to)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let socket = socket.map_err(|e| skip(format!("no socket to {to}: {e}")))?;
        let reporter =
            Reporter::new(secret, node, skopos_shm::now()).map_err(|e| skip(with_causes(&e)))?;
        let shared = Arc::new(Mutex::new(Sent::default()));
        let facts = SentFacts { shared: Arc::clone(&shared), facts: FactTable::default() };
        let sender = Self {
            reporter,
            socket,
            handles: Vec::new(),
            metrics: 0,
            samples: Vec::new(),
            interval: interval.unwrap_or(INTERVAL),
            due: Duration::ZERO,
            shared,
        };
        Ok((sender, facts))
    }

    /// Judges the values of the latest poll, at `time`, of the sensor with this number.
    pub(crate) fn take(
        &mut self,
        number: usize,
        (yielded, writers): (&Yielded, &[Option<VertexWriter>]),
        time: Timestamp,
    ) {
        if self.handles.len() <= number {
            self.handles.resize_with(number + 1, Vec::new);
        }
        for change in &yielded.changes {
            match *change {
                Change::Added(index, metric) => {
                    let writer = writers.get(index as usize).and_then(Option::as_ref);
                    let handle = writer.and_then(|writer| self.join(writer, metric));
                    self.metrics += u64::from(handle.is_some());
                    let handles = &mut self.handles[number];
                    handles.resize(handles.len().max(index as usize + 1), None);
                    handles[index as usize] = handle;
                }
                Change::Removed(index) => {
                    let handle = self.handles[number].get_mut(index as usize);
                    if let Some(handle) = handle.and_then(Option::take) {
                        self.reporter.leave(handle);
                        self.metrics -= 1;
                    }
                }
            }
        }
        self.samples.clear();
        for &(index, value) in &yielded.numbers {
            if let Some(Some(handle)) = self.handles[number].get(index as usize) {
                self.samples.push((*handle, value.as_f64()));
            }
        }
        // At once: polls between two reports have times of their own, and rates are of these times.
        self.reporter.observe(time, &self.samples);
    }

    fn join(&mut self, writer: &VertexWriter, metric: &Metric) -> Option<Handle> {
        let (_, name) = writer.topic().as_str().split_once('/')?;
        let first = name.split('/').next()?;
        if metric.kind == Kind::State || NOT_JUDGED.contains(&first) {
            return None;
        }
        self.reporter.join(name, metric.kind, metric.unit)
    }

    /// Reports if a report is due and something is unusual.
    pub(crate) fn run(&mut self, time: Timestamp, now: Duration) {
        if self.due <= now {
            self.due = now + self.interval;
            self.report(time);
        }
    }

    fn report(&mut self, time: Timestamp) {
        let packet = self.reporter.report(time);
        let is_sent = packet.is_none_or(|packet| self.socket.send(packet).is_ok());
        if let Ok(mut shared) = self.shared.lock() {
            shared.counts = self.reporter.counts();
            shared.metrics = self.metrics;
            shared.unusual = self.reporter.unusual() as u64;
            shared.failed += u64::from(!is_sent);
        }
    }
}

impl Sensor for SentFacts {
    fn family(&self) -> &'static Family {
        &self_anomaly_reports::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let sent = *self.shared.lock().map_err(|_| io::Error::other("the sender panicked"))?;
        let mut sink = self.facts.at(tick.sink);
        for (metric, value) in [
            (&self_anomaly_reports::METRICS, sent.metrics),
            (&self_anomaly_reports::UNUSUAL, sent.unusual),
            (&self_anomaly_reports::METRICS_REFUSED_TOTAL, sent.counts.refused),
            (&self_anomaly_reports::PACKETS_TOTAL, sent.counts.packets),
            (&self_anomaly_reports::BYTES_TOTAL, sent.counts.bytes),
            (&self_anomaly_reports::FAILED_TOTAL, sent.failed),
            (&self_anomaly_reports::HELD_TOTAL, sent.counts.held),
        ] {
            sink.set(metric, "", value.into());
        }
        Ok(())
    }
}
