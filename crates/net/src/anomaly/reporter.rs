//! The sending side: judges the metrics of a node, and makes packets.

use skopos_model::{Kind, Timestamp, Unit};
use skopos_score::anomaly::Counts;

use super::key::{NodeKey, node_id};
use super::least::least_change;
use super::limits::{MAX_ID, MAX_METRICS, MAX_NAME_BYTES, MAX_PACKET_BYTES};
use super::metric::{Metric, Naming};
use super::packet::{Header, Name, Packet, Severity};
use crate::Error;

/// Judges the metrics of one node and makes its reports. See the [module](super) for an example.
pub struct Reporter {
    key: NodeKey,
    node: Box<str>,
    node_id: u64,
    naming: Naming,
    session: u64,
    sequence: u32,
    /// By the index of a handle; `None` once the metric has left.
    metrics: Vec<Slot>,
    free: Vec<u32>,
    /// The id of the next metric. Ids are not used again within a session, so that a name that was lost on the way cannot
    /// be taken for another.
    next_id: u32,
    /// Indices of metrics that are due, kept for its memory.
    due: Vec<u32>,
    packet: Vec<u8>,
    counts: ReporterCounts,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    metric: Option<Metric>,
}

/// A handle to a metric, valid in the reporter that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    index: u32,
    /// The generation of the index, so that an old handle does not feed a new metric.
    generation: u32,
}

/// The number of samples, metrics and packets since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReporterCounts {
    /// Samples that could not be judged, by their reason.
    pub samples: Counts,
    /// Metrics that were refused because [`MAX_METRICS`] are judged, or their name is too long.
    pub refused: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes of packets, without headers of UDP and IP.
    pub bytes: u64,
    /// Findings that waited for a later packet because one was full.
    pub held: u64,
}

impl Reporter {
    /// Creates the reporter of `node` with its [secret](super::SiteKey::node_secret). `now` becomes the session, and must
    /// be later than the starts of earlier reporters of the node.
    ///
    /// # Errors
    /// The name of the node is empty or longer than 255 bytes.
    pub fn new(secret: &[u8; 32], node: &str, now: Timestamp) -> Result<Self, Error> {
        if node.is_empty() || node.len() > MAX_NAME_BYTES {
            let why = format!("it has {} bytes; 1 to {MAX_NAME_BYTES} are allowed", node.len());
            return Err(Error::malformed("the name of a node", why));
        }
        Ok(Self {
            key: NodeKey::new(secret),
            node: node.into(),
            node_id: node_id(node),
            naming: Naming::default(),
            session: session_of(now),
            sequence: 0,
            metrics: Vec::new(),
            free: Vec::new(),
            next_id: 1,
            due: Vec::new(),
            packet: Vec::with_capacity(MAX_PACKET_BYTES),
            counts: ReporterCounts::default(),
        })
    }

    /// Adds a metric by its topic without the node. `None`, and counted, if there is no room or the name is too long.
    pub fn join(&mut self, name: &str, kind: Kind, unit: Unit) -> Option<Handle> {
        let present = self.metrics.len() - self.free.len();
        if name.is_empty() || name.len() > MAX_NAME_BYTES || present >= MAX_METRICS {
            self.counts.refused += 1;
            return None;
        }
        if self.next_id > MAX_ID {
            self.renumber();
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.metrics.push(Slot::default());
            self.metrics.len() as u32 - 1
        });
        let slot = &mut self.metrics[index as usize];
        slot.metric = Some(Metric::new(name, self.next_id, kind, least_change(kind, unit)));
        self.next_id += 1;
        Some(Handle { index, generation: slot.generation })
    }

    /// Removes a metric. Its anomaly, if it has one, ends at the receiver when it is not refreshed.
    pub fn leave(&mut self, handle: Handle) {
        let slot = self.metrics.get_mut(handle.index as usize);
        let Some(slot) = slot.filter(|s| s.generation == handle.generation) else { return };
        if slot.metric.take().is_some() {
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(handle.index);
        }
    }

    /// Starts a session with new ids from 1, when all ids were used.
    fn renumber(&mut self) {
        self.session += 1;
        (self.sequence, self.next_id, self.naming) = (0, 1, Naming::default());
        for metric in self.metrics.iter_mut().filter_map(|slot| slot.metric.as_mut()) {
            metric.renumber(self.next_id);
            self.next_id += 1;
        }
    }

    /// Takes the values that were polled at `now`, and returns a packet if there is something to report. Without one it
    /// allocates nothing.
    pub fn tick(&mut self, now: Timestamp, samples: &[(Handle, f64)]) -> Option<&[u8]> {
        self.observe(now, samples);
        self.report(now)
    }

    /// Takes the values that were polled at `at`: the rate of a counter is that since the poll before. Allocates nothing.
    pub fn observe(&mut self, at: Timestamp, samples: &[(Handle, f64)]) {
        for (handle, value) in samples {
            let slot = self.metrics.get_mut(handle.index as usize);
            let slot = slot.filter(|slot| slot.generation == handle.generation);
            if let Some(metric) = slot.and_then(|slot| slot.metric.as_mut()) {
                metric.observe(at, *value, &mut self.counts.samples);
            }
        }
    }

    /// Returns a packet if there is something to report at `now`. Without one it allocates nothing.
    pub fn report(&mut self, now: Timestamp) -> Option<&[u8]> {
        let Self { metrics, due, .. } = self;
        due.clear();
        due.extend((0_u32..).zip(metrics.iter()).filter_map(|(index, slot)| {
            slot.metric.as_ref().is_some_and(|metric| metric.is_due(now)).then_some(index)
        }));
        if due.is_empty() { None } else { Some(self.write(now)) }
    }

    /// Returns the counts.
    pub fn counts(&self) -> ReporterCounts {
        self.counts
    }

    /// Returns the number of metrics that are unusual by their latest samples.
    pub fn unusual(&self) -> usize {
        let present = self.metrics.iter().filter_map(|slot| slot.metric.as_ref());
        present.filter(|metric| metric.severity() != Severity::Usual).count()
    }

    fn metric(&self, index: u32) -> Option<&Metric> {
        self.metrics.get(index as usize).and_then(|slot| slot.metric.as_ref())
    }

    /// Writes the packet of the metrics that are due, without those that do not fit.
    fn write(&mut self, now: Timestamp) -> &[u8] {
        let mut due = std::mem::take(&mut self.due);
        due.sort_by_key(|index| {
            std::cmp::Reverse(self.metric(*index).map_or(Severity::Usual, Metric::severity))
        });
        self.sequence = self.sequence.saturating_add(1);
        let mut taken = due.len();
        loop {
            let packet = self.packet_of(now, &due[..taken], (due.len() - taken) as u64);
            packet.encode(&self.key, &mut self.packet);
            // One entry always fits: it has at most 560 bytes with its name and that of the node.
            if self.packet.len() <= MAX_PACKET_BYTES || taken <= 1 {
                break;
            }
            taken -= (taken / 8).max(1);
        }
        if self.naming.is_due(now) {
            self.naming.sent(now);
        }
        for index in &due[..taken] {
            let slot = self.metrics.get_mut(*index as usize);
            if let Some(metric) = slot.and_then(|slot| slot.metric.as_mut()) {
                metric.sent(now, metric.needs_name(now));
            }
        }
        self.counts.packets += 1;
        self.counts.bytes += self.packet.len() as u64;
        self.counts.held += (due.len() - taken) as u64;
        self.due = due;
        &self.packet
    }

    fn packet_of(&self, now: Timestamp, indices: &[u32], held: u64) -> Packet {
        let mut metrics: Vec<&Metric> = indices.iter().filter_map(|i| self.metric(*i)).collect();
        metrics.sort_by_key(|metric| metric.id);
        let node = self.naming.is_due(now).then(|| Name { id: 0, name: self.node.to_string() });
        let named = metrics.iter().filter(|metric| metric.needs_name(now));
        let named = named.map(|metric| Name { id: metric.id, name: metric.name.to_string() });
        Packet {
            header: Header {
                node: self.node_id,
                session: self.session,
                sequence: self.sequence,
                at: now,
            },
            held,
            names: node.into_iter().chain(named).collect(),
            entries: metrics.iter().map(|metric| metric.entry(now)).collect(),
        }
    }
}

/// Returns the session of a reporter that starts at `now`; 0 for a clock before 1970.
fn session_of(now: Timestamp) -> u64 {
    u64::try_from(now.as_nanos()).unwrap_or(0)
}
