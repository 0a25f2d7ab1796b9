//! Sends the samples of this machine's publishers as batches to the live plane.
//!
//! The uplink reads shared memory like any other program, so the agent does not know of it. A publish wakes it; it
//! reads all new samples and sends them. Samples of the next moment go into the next batch. Once a second it also
//! sends the poll times of unchanged values.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skopos_model::{Sample, Timestamp, Topic, unpoisoned};
use skopos_shm::{Delivery, Host, Segment, SegmentVersions, Subscription, Vertex, now};
use skopos_wire::{
    Batch, Checked, Content, Description, HistoryResponder, IndexedSample, Outlet, Plane, Responder,
};

use crate::past;
use crate::published::published_here;
use skopos_agent::control::{self, Request};
use skopos_term::Failure;

/// Shortest time between two batches: the many publications of a tick fit into one or two batches.
const SHORTEST: Duration = Duration::from_millis(1);

/// Time between two batches with poll times, and between two searches for publishers.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A running uplink. It stops when it is dropped.
pub(crate) struct Uplink {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Answers questions about the past.
    _answering: HistoryResponder,
}

impl Uplink {
    /// Announces `node` and begins to send.
    ///
    /// # Errors
    /// Another node has that name; the directory cannot be read; a thread cannot be started.
    pub(crate) fn start(plane: &Plane, node: &str, dir: PathBuf) -> Result<Self, Failure> {
        let host = published_here(Host::open_dirs(vec![dir.clone()])?);
        let sent = Arc::new(Mutex::new(SentVertices::new(node)));
        // The facts are read before the node is announced.
        lock(&sent).look(&host);
        lock(&sent).collect();
        // A follower begins with a snapshot, which contains the pending samples.
        lock(&sent).pending = Batch::default();
        let answers = NodeResponder { sent: sent.clone(), dir: dir.clone() };
        let incarnation = now().as_nanos();
        let outlet = plane.announce(node, incarnation, answers).map_err(|e| {
            let failure = Failure::new(format!("the node `{node}` cannot join")).because(&e);
            failure.hint("give this node another name with --node")
        })?;
        let answering = past::answer(plane, node, incarnation, dir)?;
        let stop = Arc::new(AtomicBool::new(false));
        let run = {
            let stop = stop.clone();
            move || run(host, &sent, outlet, &stop)
        };
        let thread = std::thread::Builder::new().name("uplink".to_owned()).spawn(run);
        let thread = thread.map_err(|e| Failure::new("a thread cannot be started").because(&e))?;
        Ok(Self { stop, thread: Some(thread), _answering: answering })
    }

    /// Returns true if the uplink has ended because another node had this name before.
    pub(crate) fn is_refused(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers the requests of other nodes.
struct NodeResponder {
    sent: Arc<Mutex<SentVertices>>,
    /// The runtime directory of the agent that measures.
    dir: PathBuf,
}

impl Responder for NodeResponder {
    fn snapshot(&self) -> Vec<Batch> {
        lock(&self.sent).whole()
    }

    fn refresh(&self, topic: &Topic) -> Result<Batch, String> {
        let request = Request::Refresh { topic: topic.to_string() };
        control::ask(&self.dir, &request).map_err(|e| e.message().to_owned())?;
        lock(&self.sent).fresh(topic).ok_or_else(|| format!("`{topic}` has no value yet"))
    }
}

fn lock(sent: &Mutex<SentVertices>) -> MutexGuard<'_, SentVertices> {
    unpoisoned(sent.lock())
}

fn run(mut host: Host, sent: &Mutex<SentVertices>, outlet: Outlet, stop: &AtomicBool) {
    let mut look_at = Instant::now() + LOOK_EVERY;
    let mut names = Backoff::new();
    while !stop.load(Ordering::Relaxed) {
        let left = look_at.saturating_duration_since(Instant::now());
        // At most a tenth of a second, so that `stop` is seen soon.
        let left = left.min(Duration::from_millis(100));
        let has_news = host.wait(left, || lock(sent).has_news());
        if outlet.is_second() {
            break;
        }
        let is_look_due = look_at <= Instant::now();
        if !has_news && !is_look_due {
            continue;
        }
        let batches = {
            let mut sent = lock(sent);
            if is_look_due {
                look_at = Instant::now() + LOOK_EVERY;
                let _ = host.refresh();
                sent.look(&host);
            }
            sent.collect();
            sent.batches(is_look_due)
        };
        if names.is_due() {
            // Fails only if the session is closed.
            let _ = outlet.look_for_first();
        }
        for batch in &batches {
            // Followers notice a closed session by themselves.
            let _ = outlet.send(batch);
        }
        std::thread::sleep(SHORTEST);
    }
    outlet.close();
}

/// A timer whose wait doubles up to a limit.
struct Backoff {
    next: Instant,
    wait: Duration,
}

impl Backoff {
    /// The longest wait. Two nodes with the same name that start together notice it within seconds; after a
    /// network partition heals, within a minute.
    const LONGEST: Duration = Duration::from_secs(60);

    fn new() -> Self {
        Self { next: Instant::now() + LOOK_EVERY, wait: LOOK_EVERY }
    }

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.wait = (self.wait * 2).min(Self::LONGEST);
        self.next = now + self.wait;
        true
    }
}

/// The vertices of this machine whose samples are sent.
struct SentVertices {
    node: String,
    vertices: HashMap<u32, SentVertex>,
    /// The versions of the segments at the latest lookup of their vertices.
    versions: SegmentVersions,
    next_index: u32,
    sequence: u64,
    /// The batch that was not sent yet.
    pending: Batch,
}

struct SentVertex {
    subscription: Subscription,
    description: Description,
    latest: Option<Sample>,
    checked_at: Timestamp,
}

impl SentVertices {
    fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            vertices: HashMap::new(),
            versions: SegmentVersions::default(),
            next_index: 0,
            sequence: 0,
            pending: Batch::default(),
        }
    }

    /// Finds vertices that were added or removed.
    fn look(&mut self, host: &Host) {
        let Some(versions) = host.changes(&self.versions) else { return };
        self.versions = versions;
        let key = |v: &Vertex| (v.segment().path().to_path_buf(), v.info().registered_at);
        let mut there: HashMap<Topic, Vertex> = HashMap::new();
        for vertex in host.segments().iter().flat_map(Segment::vertices) {
            there.entry(vertex.topic().clone()).or_insert(vertex);
        }
        let mut gone = Vec::new();
        for (index, vertex) in &self.vertices {
            let known = vertex.subscription.vertex();
            match there.get(known.topic()) {
                Some(vertex) if key(vertex) == key(known) => drop(there.remove(known.topic())),
                _ => gone.push(*index),
            }
        }
        for index in gone {
            self.vertices.remove(&index);
            self.pending.gone.push(index);
        }
        for vertex in there.into_values() {
            self.add(vertex);
        }
    }

    fn add(&mut self, vertex: Vertex) {
        let info = vertex.info();
        // A topic without this node in front belongs to this node too.
        let topic = match info.topic.node() == self.node {
            true => info.topic.clone(),
            false => match Topic::new(&format!("{}/{}", self.node, info.topic)) {
                Ok(topic) => topic,
                Err(_) => return,
            },
        };
        let index = self.next_index;
        self.next_index += 1;
        let (unit, kind, value_type) = (info.unit, info.kind, info.value_type);
        let description = Description { index, topic, unit, kind, value_type };
        self.pending.described.push(description.clone());
        let subscription = vertex.subscribe_with_latest().quietly();
        let (latest, checked_at) = (None, Timestamp::default());
        self.vertices.insert(index, SentVertex { subscription, description, latest, checked_at });
    }

    fn has_news(&self) -> bool {
        self.vertices.values().any(|vertex| vertex.subscription.has_next())
    }

    /// Reads the new samples.
    fn collect(&mut self) {
        for (index, vertex) in &mut self.vertices {
            while let Ok(Some(delivery)) = vertex.subscription.try_next() {
                let Delivery::Sample(sample) = delivery else {
                    // Overwritten samples are at most in the history on disk. A new description tells followers
                    // that there is a gap before the next sample.
                    self.pending.samples.retain(|sample| sample.index != *index);
                    self.pending.described.push(vertex.description.clone());
                    continue;
                };
                self.pending.samples.push(indexed(*index, &sample));
                vertex.checked_at = sample.time;
                vertex.latest = Some(sample);
            }
        }
    }

    /// Takes the pending batch, split to the largest size of a message; with poll times if `with_checked`.
    fn batches(&mut self, with_checked: bool) -> Vec<Batch> {
        if with_checked {
            self.pending.checked = self.checked();
        }
        let pending = std::mem::take(&mut self.pending);
        // Once a second a batch is sent, even if it is empty, so that followers notice a lost batch.
        if pending == Batch::default() && !with_checked {
            return Vec::new();
        }
        let mut parts = Batch { sent_at: now(), ..pending }.split();
        for part in &mut parts {
            self.sequence += 1;
            part.sequence = self.sequence;
        }
        parts
    }

    /// Returns the poll times that are newer than those sent before, with their vertices.
    fn checked(&mut self) -> Vec<Checked> {
        let mut times: BTreeMap<Timestamp, Vec<u32>> = BTreeMap::new();
        for (index, vertex) in &mut self.vertices {
            let checked_at = vertex.subscription.checked_at();
            if let Some(checked_at) = checked_at.filter(|time| *time > vertex.checked_at) {
                vertex.checked_at = checked_at;
                times.entry(checked_at).or_default().push(*index);
            }
        }
        times.into_iter().map(|(at, indices)| Checked { at, runs: runs(indices) }).collect()
    }

    /// Returns a snapshot of all vertices, as of the last batch that was sent.
    fn whole(&self) -> Vec<Batch> {
        let mut all = Batch::default();
        for (index, vertex) in &self.vertices {
            all.described.push(vertex.description.clone());
            all.samples.extend(vertex.latest.as_ref().map(|sample| indexed(*index, sample)));
        }
        Batch { sequence: self.sequence, sent_at: now(), ..all }.split()
    }

    /// Returns the current value of a topic.
    fn fresh(&self, topic: &Topic) -> Option<Batch> {
        let (index, vertex) =
            self.vertices.iter().find(|(_, vertex)| vertex.description.topic == *topic)?;
        let reading = vertex.subscription.vertex().peek().ok()?;
        Some(Batch {
            sent_at: now(),
            described: vec![vertex.description.clone()],
            samples: vec![indexed(*index, &reading.sample)],
            checked: vec![Checked { at: reading.checked_at, runs: vec![(*index, 1)] }],
            ..Batch::default()
        })
    }
}

fn indexed(index: u32, sample: &Sample) -> IndexedSample {
    let (time, origin) = (sample.time, sample.origin);
    IndexedSample { index, time, origin, value: Content::from(&sample.value) }
}

/// Packs indices into runs of neighbours.
fn runs(mut indices: Vec<u32>) -> Vec<(u32, u32)> {
    indices.sort_unstable();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for index in indices {
        match runs.last_mut() {
            Some((first, length)) if *first + *length == index => *length += 1,
            _ => runs.push((index, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use skopos_model::ValueType;
    use skopos_shm::{Publisher, VertexSpec};
    use skopos_wire::Mirror;

    use super::*;

    #[test]
    fn a_follower_notices_samples_that_were_overwritten_before_they_were_sent() {
        let dir = tempfile::tempdir().expect("a folder");
        let publisher = Publisher::builder("app").dir(dir.path()).node("n01").create();
        let publisher = publisher.expect("a segment");
        let topic = Topic::new("n01/app/depth").expect("a topic");
        let spec = VertexSpec::new(topic.clone(), ValueType::U64).slots(8);
        let writer = publisher.register(spec).expect("a vertex");
        let at = Timestamp::from_nanos;
        let publish = |times: std::ops::RangeInclusive<i64>| {
            for n in times {
                writer.publish_at(at(n), n as u64).expect("published");
            }
        };
        let host = Host::open_dirs(vec![dir.path().to_path_buf()]).expect("a host");
        let mut sent = SentVertices::new("n01");
        publish(1..=1);
        sent.look(&host);
        sent.collect();
        let _ = sent.batches(false);
        let mut mirror = Mirror::default();
        mirror.reset(sent.whole(), &mut ());
        let mut send = |mirror: &mut Mirror| {
            sent.collect();
            for batch in sent.batches(false) {
                assert_eq!(mirror.take(batch, &mut ()), skopos_wire::BatchOutcome::Applied);
            }
        };
        let since =
            |mirror: &Mirror| mirror.find(&topic).and_then(skopos_wire::Vertex::complete_since);
        publish(2..=5);
        send(&mut mirror);
        assert_eq!(since(&mirror), Some(at(1)));
        publish(6..=50);
        send(&mut mirror);
        let vertex = mirror.find(&topic).expect("it is there");
        let times: Vec<_> = vertex.recent.iter().map(|sample| sample.time.as_nanos()).collect();
        assert!(times.starts_with(&[1, 2, 3, 4, 5]) && times.ends_with(&[49, 50]), "{times:?}");
        assert_eq!(since(&mirror), Some(at(times[5])));
        assert!(mirror.is_complete() && times[5] > 6);
    }
}
