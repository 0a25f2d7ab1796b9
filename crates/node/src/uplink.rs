//! What the publishers of this machine have, as batches for the live plane.
//!
//! It reads shared memory like any program does, so the agent knows nothing of it. It is woken by a
//! publish, takes in all that is new, and sends it; what comes within the next moment goes with the
//! next batch. Once a second it also says what was looked at and had not changed.

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

/// Time between two batches: what a tick publishes in many steps goes in one or two of them.
const SHORTEST: Duration = Duration::from_millis(1);

/// How often to say what was looked at, and to look for publishers that came or went.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Sends until it is dropped.
pub(crate) struct Uplink {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Tells what was kept.
    _answering: HistoryResponder,
}

impl Uplink {
    /// Announces `node` and begins to send.
    ///
    /// # Errors
    /// There is a node of that name; the directory cannot be read; no thread can be started.
    pub(crate) fn start(plane: &Plane, node: &str, dir: PathBuf) -> Result<Self, Failure> {
        let host = published_here(Host::open_dirs(vec![dir.clone()])?);
        let followed = Arc::new(Mutex::new(Followed::new(node)));
        // What others are told exists before they are told of it.
        lock(&followed).look(&host);
        lock(&followed).collect();
        // A snapshot says it, and nobody follows before they had one.
        lock(&followed).pending = Batch::default();
        let answers = OfNode { followed: followed.clone(), dir: dir.clone() };
        let incarnation = now().as_nanos();
        let outlet = plane.announce(node, incarnation, answers).map_err(|e| {
            let failure = Failure::new(format!("the node `{node}` cannot join")).because(&e);
            failure.hint("give this one another name with --node")
        })?;
        let answering = past::answer(plane, node, incarnation, dir)?;
        let stop = Arc::new(AtomicBool::new(false));
        let run = {
            let stop = stop.clone();
            move || run(host, &followed, outlet, &stop)
        };
        let thread = std::thread::Builder::new().name("uplink".to_owned()).spawn(run);
        let thread = thread.map_err(|e| Failure::new("no thread can be started").because(&e))?;
        Ok(Self { stop, thread: Some(thread), _answering: answering })
    }
}

impl Uplink {
    /// Whether it has ended, because another node had this name before.
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

/// What others may ask this node for.
struct OfNode {
    followed: Arc<Mutex<Followed>>,
    /// Of the agent that measures.
    dir: PathBuf,
}

impl Responder for OfNode {
    fn snapshot(&self) -> Vec<Batch> {
        lock(&self.followed).whole()
    }

    fn refresh(&self, topic: &Topic) -> Result<Batch, String> {
        let request = Request::Refresh { topic: topic.to_string() };
        control::ask(&self.dir, &request).map_err(|e| e.message().to_owned())?;
        lock(&self.followed).fresh(topic).ok_or_else(|| format!("`{topic}` has no value yet"))
    }
}

fn lock(followed: &Mutex<Followed>) -> MutexGuard<'_, Followed> {
    unpoisoned(followed.lock())
}

fn run(mut host: Host, followed: &Mutex<Followed>, outlet: Outlet, stop: &AtomicBool) {
    let mut look_at = Instant::now() + LOOK_EVERY;
    let mut names = Seldom::new();
    while !stop.load(Ordering::Relaxed) {
        let left = look_at.saturating_duration_since(Instant::now());
        // Not longer than a tenth of a second, to be stopped soon.
        let left = left.min(Duration::from_millis(100));
        let has_news = host.wait(left, || lock(followed).has_news());
        if outlet.is_second() {
            break;
        }
        let is_look_due = look_at <= Instant::now();
        if !has_news && !is_look_due {
            continue;
        }
        let batches = {
            let mut followed = lock(followed);
            if is_look_due {
                look_at = Instant::now() + LOOK_EVERY;
                let _ = host.refresh();
                followed.look(&host);
            }
            followed.collect();
            followed.batches(is_look_due)
        };
        if names.is_due() {
            // A closed session is nobody's second.
            let _ = outlet.look_for_first();
        }
        for batch in &batches {
            // A closed session is found out by whoever follows.
            let _ = outlet.send(batch);
        }
        std::thread::sleep(SHORTEST);
    }
    outlet.close();
}

/// What is due soon at first, and then ever more seldom.
struct Seldom {
    next: Instant,
    wait: Duration,
}

impl Seldom {
    /// Two nodes of one name that came together find out within seconds; a network that was cut and
    /// heals, within a minute.
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

/// The vertices of this machine that are sent.
struct Followed {
    node: String,
    vertices: HashMap<u32, One>,
    /// Of the segments when their vertices were looked up.
    versions: SegmentVersions,
    next_index: u32,
    sequence: u64,
    /// What was not sent yet.
    pending: Batch,
}

struct One {
    subscription: Subscription,
    description: Description,
    latest: Option<Sample>,
    checked_at: Timestamp,
}

impl Followed {
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

    /// Learns what came and what went.
    fn look(&mut self, host: &Host) {
        let Some(versions) = host.changes(&self.versions) else { return };
        self.versions = versions;
        let key = |v: &Vertex| (v.segment().path().to_path_buf(), v.info().registered_at);
        let mut there: HashMap<Topic, Vertex> = HashMap::new();
        for vertex in host.segments().iter().flat_map(Segment::vertices) {
            there.entry(vertex.topic().clone()).or_insert(vertex);
        }
        let mut gone = Vec::new();
        for (index, one) in &self.vertices {
            let known = one.subscription.vertex();
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
        // What a program calls otherwise is of this node all the same.
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
        self.vertices.insert(index, One { subscription, description, latest, checked_at });
    }

    fn has_news(&self) -> bool {
        self.vertices.values().any(|one| one.subscription.has_next())
    }

    /// Takes in what is new.
    fn collect(&mut self) {
        for (index, one) in &mut self.vertices {
            while let Ok(Some(delivery)) = one.subscription.try_next() {
                let Delivery::Sample(sample) = delivery else {
                    // What was overwritten is in the history on disk, if anywhere. Described again, those
                    // who follow it know that what comes does not follow on what came.
                    self.pending.samples.retain(|told| told.index != *index);
                    self.pending.described.push(one.description.clone());
                    continue;
                };
                self.pending.samples.push(told(*index, &sample));
                one.checked_at = sample.time;
                one.latest = Some(sample);
            }
        }
    }

    /// What was not sent yet, in messages that are not too long; with what was looked at, if wanted.
    fn batches(&mut self, with_checked: bool) -> Vec<Batch> {
        if with_checked {
            self.pending.checked = self.checked();
        }
        let pending = std::mem::take(&mut self.pending);
        // Once a second something is sent, if only to say so: who missed the batch before finds out.
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

    /// Which vertices were looked at since it was last said.
    fn checked(&mut self) -> Vec<Checked> {
        let mut times: BTreeMap<Timestamp, Vec<u32>> = BTreeMap::new();
        for (index, one) in &mut self.vertices {
            let checked_at = one.subscription.checked_at();
            if let Some(checked_at) = checked_at.filter(|time| *time > one.checked_at) {
                one.checked_at = checked_at;
                times.entry(checked_at).or_default().push(*index);
            }
        }
        times.into_iter().map(|(at, indices)| Checked { at, runs: runs(indices) }).collect()
    }

    /// All that there is, as of the last batch that was sent.
    fn whole(&self) -> Vec<Batch> {
        let mut all = Batch::default();
        for (index, one) in &self.vertices {
            all.described.push(one.description.clone());
            all.samples.extend(one.latest.as_ref().map(|sample| told(*index, sample)));
        }
        Batch { sequence: self.sequence, sent_at: now(), ..all }.split()
    }

    /// One topic as it is now.
    fn fresh(&self, topic: &Topic) -> Option<Batch> {
        let (index, one) = self.vertices.iter().find(|(_, one)| one.description.topic == *topic)?;
        let reading = one.subscription.vertex().peek().ok()?;
        Some(Batch {
            sent_at: now(),
            described: vec![one.description.clone()],
            samples: vec![told(*index, &reading.sample)],
            checked: vec![Checked { at: reading.checked_at, runs: vec![(*index, 1)] }],
            ..Batch::default()
        })
    }
}

fn told(index: u32, sample: &Sample) -> IndexedSample {
    let (time, origin) = (sample.time, sample.origin);
    IndexedSample { index, time, origin, value: Content::from(&sample.value) }
}

/// Indices as runs of neighbours.
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
    fn who_follows_knows_what_was_overwritten_before_it_was_sent() {
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
        let mut followed = Followed::new("n01");
        publish(1..=1);
        followed.look(&host);
        followed.collect();
        let _ = followed.batches(false);
        let mut mirror = Mirror::default();
        mirror.reset(followed.whole(), &mut ());
        let mut send = |mirror: &mut Mirror| {
            followed.collect();
            for batch in followed.batches(false) {
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
