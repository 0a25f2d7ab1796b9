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
use crate::beat::nearest_beat;
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
            // On a beat, as polls are: a wake that comes earlier after its beat than the one before has its report, too.
            self.due = nearest_beat(now + self.interval, self.interval);
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

#[cfg(test)]
mod tests {
    use skopos_model::schema::tcp::{ESTABLISHED_RESETS_TOTAL, FAMILY};
    use skopos_net::anomaly::Packet;
    use skopos_sense::FactId;
    use skopos_shm::Publisher;

    use super::*;
    use crate::probe::Probe;

    /// The time between two polls, which is not that between two reports.
    const POLL_EVERY: Duration = Duration::from_millis(750);

    /// The time at which the rate changes: after a detector has learned.
    const CHANGE: Duration = Duration::from_secs(742);

    /// A counter that grows by 4 a second before [`CHANGE`], and by 100 a second after that.
    struct Resets {
        fact: Option<FactId>,
        total: u64,
    }

    impl Sensor for Resets {
        fn family(&self) -> &'static Family {
            &FAMILY
        }

        fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
            let sink = &mut *tick.sink;
            let fact =
                *self.fact.get_or_insert_with(|| sink.register(&ESTABLISHED_RESETS_TOTAL, ""));
            self.total += if tick.monotonic < CHANGE { 3 } else { 75 };
            tick.set(fact, self.total);
            Ok(())
        }
    }

    /// Returns a sender, and the socket to which it sends.
    fn opened() -> (AnomalyReports, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let to = receiver.local_addr().expect("bound");
        let opened = AnomalyReports::open(to, &[7; 32], "n01", None);
        let (reports, _) = opened.map_err(|skip| skip.reason).expect("a route");
        (reports, receiver)
    }

    /// Returns a time of the day.
    fn at(now: Duration) -> Timestamp {
        Timestamp::from_nanos(1_800_000_000_000_000_000).saturating_add(now)
    }

    #[test]
    fn polls_between_two_reports_are_judged_at_their_own_times() {
        let folder = tempfile::tempdir().expect("a folder");
        let publisher = Publisher::builder("reports").dir(folder.path()).create();
        let publisher = publisher.expect("a segment");
        let sensor = Box::new(Resets { fact: None, total: 1000 });
        let mut probe = Probe::new(&publisher, &"n01".into(), sensor).expect("room");
        let (mut reports, receiver) = opened();
        for poll in 1..=1000 {
            let now = POLL_EVERY * poll;
            let outcome = probe.poll((at(now), now));
            reports.take(0, (probe.yielded(), probe.facts()), outcome.time);
            reports.run(at(now), now);
        }
        let counts = reports.reporter.counts();
        assert_eq!((counts.packets, counts.samples.backwards), (1, 0), "{counts:?}");
        let mut buffer = [0; 2048];
        let bytes = receiver.recv(&mut buffer).expect("a packet");
        let packet = Packet::decode_unverified(&buffer[..bytes]).expect("ours");
        let seen: Vec<f64> = packet.entries.iter().map(|entry| entry.seen).collect();
        assert_eq!(seen, [100.0], "the rate between two polls");
        assert_eq!(packet.names[1].name, "tcp/established_resets_total");
    }

    #[test]
    fn a_wake_that_comes_earlier_after_its_beat_has_its_report() {
        let (mut reports, _receiver) = opened();
        for (wake, due) in [(10_000_300, 11), (11_000_100, 12), (12_000_200, 13)] {
            let now = Duration::from_micros(wake);
            assert!(reports.due <= now, "{:?} after {now:?}", reports.due);
            reports.run(at(now), now);
            assert_eq!(reports.due, Duration::from_secs(due));
        }
    }
}
