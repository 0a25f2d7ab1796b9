//! The receiver of anomaly reports of other nodes: the families `anomaly_report` and `self_anomaly_receiver`.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value as Json, json};
use skopos_model::schema::{Family, Metric, anomaly_report, self_anomaly_receiver};
use skopos_model::{Structured, Timestamp, escape_segment};
use skopos_net::anomaly::{Finding, REFRESH, Receiver, Report, Severity, SiteKey};
use skopos_net::collector::{FactSink as _, kernel_drops};
use skopos_sense::{Sensor, Skip, Tick};

use super::facts::FactTable;
use super::worker::{Work, Worker};

/// The most datagrams of one turn, so that a flood does not keep the lock for ever.
const MAX_DATAGRAMS: usize = 1024;

/// Bytes of a datagram. A longer one is cut off, and so malformed; a report has at most 1100.
const DATAGRAM_BYTES: usize = 2048;

/// The most nodes that are shown: each has a list of 20 KiB.
const MAX_NODES: usize = 256;

/// The most findings that are kept of a node: as many unusual metrics at once say that the whole node is unusual.
const MAX_FINDINGS: usize = 1024;

/// The most findings in a list, if they fit into it.
const MAX_LISTED: usize = 32;

/// A finding that is not refreshed for this time has ended: three refreshes were lost, or its metric left.
const FORGET: Duration = Duration::from_secs(3 * REFRESH.as_secs());

/// A node that sends nothing for this time makes room for another.
const SILENT: Duration = Duration::from_secs(900);

/// The receiver as a sensor.
pub(super) struct Heard {
    state: Arc<Mutex<State>>,
    facts: FactTable,
    /// Stops before the state goes.
    _worker: Worker,
}

struct State {
    socket: UdpSocket,
    receiver: Receiver,
    /// Shown nodes, by their ids.
    nodes: BTreeMap<u64, Node>,
    /// Instances of nodes that are gone, until the next poll.
    gone: Vec<String>,
    /// Reports of nodes, and findings, for which there was no room since the last poll.
    left_out: u64,
    failure: Option<String>,
}

/// A node that reports.
struct Node {
    /// Its name as a segment of a topic.
    instance: String,
    session: u64,
    reports: u64,
    lost: u64,
    /// The time of its latest report by its clock, and by that of this machine.
    at: Timestamp,
    heard_at: Timestamp,
    /// Unusual metrics by their ids, with the time at which each was heard.
    findings: BTreeMap<u32, (Finding, Timestamp)>,
}

impl Heard {
    /// Listens, and starts the thread that receives.
    ///
    /// # Errors
    /// The address is in use or is not of this machine.
    pub(super) fn open(listen: SocketAddr, site: SiteKey) -> Result<Self, Skip> {
        let skip = |doing: &str, e: io::Error| {
            Skip::new(anomaly_report::FAMILY.name, format!("{doing} {listen}: {e}"))
        };
        let socket = UdpSocket::bind(listen).map_err(|e| skip("it cannot listen at", e))?;
        socket.set_nonblocking(true).map_err(|e| skip("it cannot receive at", e))?;
        let own = socket.try_clone().map_err(|e| skip("it cannot receive at", e))?;
        let state = Arc::new(Mutex::new(State {
            socket,
            receiver: Receiver::new(site),
            nodes: BTreeMap::new(),
            gone: Vec::new(),
            left_out: 0,
            failure: None,
        }));
        let shared = Arc::clone(&state);
        let mut buffer = vec![0; DATAGRAM_BYTES];
        let work =
            move || shared.lock().map_or(Work::Failed, |mut state| state.receive(&mut buffer));
        let worker = Worker::serve(&own, work).map_err(|e| skip("it cannot receive at", e))?;
        Ok(Self { state, facts: FactTable::default(), _worker: worker })
    }
}

impl State {
    /// Takes the datagrams that wait.
    fn receive(&mut self, buffer: &mut [u8]) -> Work {
        let (mut count, mut taken) = (0, 0);
        while count < MAX_DATAGRAMS {
            match self.socket.recv_from(buffer) {
                Ok((bytes, from)) => {
                    count += 1;
                    let now = skopos_shm::now();
                    if let Ok(report) = self.receiver.take(from, &buffer[..bytes], now) {
                        taken += 1;
                        self.note(report, now);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    self.failure = Some(format!("receive anomaly reports: {e}"));
                    return Work::Failed;
                }
            }
        }
        if taken * 2 < count { Work::Refused } else { Work::Useful }
    }

    /// Notes a report of a node.
    fn note(&mut self, report: Report, now: Timestamp) {
        let Report { node_id, node, session, at, lost, findings, .. } = report;
        if !self.nodes.contains_key(&node_id) {
            let Some(name) = node.filter(|_| self.has_room(now)) else {
                self.left_out += 1;
                return;
            };
            let mut instance = String::new();
            escape_segment(name.as_bytes(), &mut instance);
            let (reports, findings) = (0, BTreeMap::new());
            let new = Node { instance, session, reports, lost, at, heard_at: now, findings };
            self.nodes.insert(node_id, new);
        }
        let Some(node) = self.nodes.get_mut(&node_id) else { return };
        if node.session != session {
            node.findings.clear();
        }
        (node.session, node.lost, node.at, node.heard_at) = (session, lost, at, now);
        node.reports += 1;
        for finding in findings {
            if finding.severity == Severity::Usual {
                node.findings.remove(&finding.id);
            } else if node.findings.len() < MAX_FINDINGS || node.findings.contains_key(&finding.id)
            {
                node.findings.insert(finding.id, (finding, now));
            } else {
                self.left_out += 1;
            }
        }
    }

    /// Makes room for a node, if there is none. Returns false if all nodes were heard lately.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if self.nodes.len() < MAX_NODES {
            return true;
        }
        let oldest = self.nodes.iter().min_by_key(|(_, node)| node.heard_at);
        let silent = oldest.filter(|(_, node)| passed(node.heard_at, now, SILENT));
        let Some(id) = silent.map(|(id, _)| *id) else { return false };
        self.gone.extend(self.nodes.remove(&id).map(|node| node.instance));
        true
    }

    /// Returns the counts of the receiver.
    fn counts(&self) -> [(&'static Metric, u64); 11] {
        let refusals = self.receiver.refusals();
        [
            (&self_anomaly_receiver::NODES, self.receiver.nodes() as u64),
            (&self_anomaly_receiver::TAKEN_TOTAL, refusals.taken),
            (&self_anomaly_receiver::MALFORMED_TOTAL, refusals.malformed),
            (&self_anomaly_receiver::FORGED_TOTAL, refusals.forged),
            (&self_anomaly_receiver::BUSY_TOTAL, refusals.busy),
            (&self_anomaly_receiver::STALE_TOTAL, refusals.stale),
            (&self_anomaly_receiver::REPLAYED_TOTAL, refusals.replayed),
            (&self_anomaly_receiver::NODES_REFUSED_TOTAL, refusals.too_many_nodes),
            (&self_anomaly_receiver::NAMES_REFUSED_TOTAL, refusals.names_refused),
            (&self_anomaly_receiver::UNNAMED_TOTAL, refusals.unnamed),
            (&self_anomaly_receiver::KERNEL_DROPS_TOTAL, kernel_drops(&self.socket).unwrap_or(0)),
        ]
    }
}

impl Sensor for Heard {
    fn family(&self) -> &'static Family {
        &anomaly_report::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let mut state = self.state.lock().map_err(|_| io::Error::other("its thread panicked"))?;
        let now = skopos_shm::now();
        let mut sink = self.facts.at(tick.sink);
        for instance in state.gone.split_off(0) {
            sink.remove(&anomaly_report::FAMILY, &instance);
        }
        for node in state.nodes.values_mut() {
            node.findings.retain(|_, (_, heard_at)| !passed(*heard_at, now, FORGET));
            let Node { instance, reports, lost, at, findings, .. } = &*node;
            let worst = findings.values().map(|(finding, _)| finding.severity as u64).max();
            sink.set(&anomaly_report::REPORTS_TOTAL, instance, (*reports).into());
            sink.set(&anomaly_report::LOST_TOTAL, instance, (*lost).into());
            sink.set(&anomaly_report::UNUSUAL, instance, (findings.len() as u64).into());
            sink.set(&anomaly_report::SEVERITY_MAX, instance, worst.unwrap_or(0).into());
            let at_seconds = at.as_nanos() as f64 / 1e9;
            sink.set(&anomaly_report::REPORTED_AT_SECONDS, instance, at_seconds.into());
            if let Some(list) = listed(findings.values().map(|(finding, _)| finding)) {
                sink.set_structured(&anomaly_report::FINDINGS, instance, &list);
            }
        }
        for (metric, value) in state.counts() {
            sink.set(metric, "", value.into());
        }
        let left_out = sink.left_out() + std::mem::take(&mut state.left_out);
        sink.set(&self_anomaly_receiver::LEFT_OUT, "", left_out.into());
        state.failure.take().map_or(Ok(()), |failure| Err(io::Error::other(failure)))
    }
}

/// Returns the list of the most severe findings: as many as fit into a value.
fn listed<'a>(findings: impl Iterator<Item = &'a Finding>) -> Option<Structured> {
    let mut findings: Vec<&Finding> = findings.collect();
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.id.cmp(&b.id)));
    findings.truncate(MAX_LISTED);
    loop {
        let records: Json = findings.iter().map(|finding| record(finding)).collect();
        match Structured::new(records) {
            Ok(list) => return Some(list),
            // Names of metrics may be long.
            Err(_) => {
                findings.pop()?;
            }
        }
    }
}

fn record(finding: &Finding) -> Json {
    // JSON has no infinity.
    let number = |value: f64| if value.is_finite() { json!(value) } else { Json::Null };
    json!({
        "metric": finding.name.as_deref(),
        "severity": finding.severity.name(),
        "seen": number(finding.seen),
        "low": finding.expected.map(|(low, _)| number(low)),
        "high": finding.expected.map(|(_, high)| number(high)),
        "since_seconds": finding.since.as_nanos() as f64 / 1e9,
    })
}

/// Returns true if `time` has passed since `from`; not if the clock was set back.
fn passed(from: Timestamp, now: Timestamp, time: Duration) -> bool {
    now > from && now.since(from) >= time
}

#[cfg(test)]
mod tests {
    use skopos_model::{Kind, Unit};
    use skopos_net::anomaly::Reporter;

    use super::*;
    use crate::telemetry::facts::tests::Recorded;

    fn finding(id: u32, severity: Severity, name: &str) -> Finding {
        let at = Timestamp::from_nanos(5_000_000_000);
        let expected = Some((0.0, f64::INFINITY));
        Finding { id, name: Some(name.into()), severity, seen: 60.0, expected, since: at }
    }

    #[test]
    fn a_list_has_the_most_severe_findings_that_fit() {
        let long = "x".repeat(255);
        let mut all: Vec<Finding> =
            (1..100).map(|id| finding(id, Severity::Notable, &long)).collect();
        all.push(finding(200, Severity::Extreme, "block/vda/queue_depth_mean"));
        let list = listed(all.iter()).expect("some fit");
        let records = list.as_json().as_array().expect("a list");
        assert!(records.len() >= 10, "as many as fit: {}", records.len());
        assert_eq!(records[0]["metric"], "block/vda/queue_depth_mean");
        assert_eq!(records[0]["severity"], "extreme");
        assert_eq!((&records[0]["low"], &records[0]["high"]), (&json!(0.0), &Json::Null));
        assert_eq!(records[0]["since_seconds"], 5.0);
        assert_eq!(listed([].into_iter()).expect("empty").as_json(), &json!([]));
    }

    #[test]
    fn a_report_becomes_facts_of_its_node_and_a_forged_one_is_counted() {
        let site = SiteKey::new(b"0123456789abcdef").expect("long enough");
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut sensor = Heard::open(any_port, site.clone()).expect("it listens");
        let listen = sensor.state.lock().expect("it lives").socket.local_addr().expect("bound");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let end = skopos_shm::now().as_nanos();
        let send = |secret: &[u8; 32], node: &str| {
            let at = |second: i64| Timestamp::from_nanos(end - (300 - second) * 1_000_000_000);
            let mut reporter = Reporter::new(secret, node, at(0)).expect("a name");
            let depth = reporter.join("block/vda/queue_depth_mean", Kind::Gauge, Unit::NONE);
            let depth = depth.expect("room");
            for second in 1..=300 {
                let value = if second < 290 { 1.0 } else { 60.0 };
                if let Some(packet) = reporter.tick(at(second), &[(depth, value)]) {
                    socket.send_to(packet, listen).expect("sent");
                }
            }
            assert!(reporter.counts().packets > 0);
        };
        send(&site.node_secret("n01"), "n01");
        send(&site.node_secret("n02"), "n03");
        socket.send_to(b"hello", listen).expect("sent");
        let mut facts = Recorded::default();
        facts.poll_until(&mut sensor, |facts| {
            let count = |name| facts.get(&format!("self/anomaly_receiver/{name}")).unwrap_or(0);
            count("taken_total") > 0 && count("forged_total") > 0 && count("malformed_total") > 0
        });
        assert_eq!(facts.get("anomaly_report/n01/unusual"), Some(1));
        assert!(facts.get("anomaly_report/n01/severity_max") > Some(0));
        assert!(facts.get("anomaly_report/n01/findings").is_some());
        assert_eq!(facts.get("anomaly_report/n03/unusual"), None);
    }
}
