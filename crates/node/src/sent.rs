//! The vertices of this machine whose samples a node sends, and the batch that gathers their changes.
//!
//! Vertices lie side by side in a list, and a feed of each segment finds those with news. The place of a vertex in the
//! list is its key in the feed. A removed vertex leaves its place to a later one; its index in batches is never used again.

use std::collections::{BTreeMap, HashMap};

use skopos_agent::SEGMENT_NAME;
use skopos_model::{Sample, Timestamp, Topic};
use skopos_shm::{Delivery, Feed, FeedEvent, Host, Segment, SegmentVersions, Vertex, now};
use skopos_wire::{Batch, Checked, Content, Description, IndexedSample};

/// The vertices of this machine whose samples are sent.
pub(crate) struct SentVertices {
    node: String,
    /// By key.
    vertices: Vec<Option<SentVertex>>,
    /// Places of removed vertices.
    free: Vec<u32>,
    /// A feed of each segment.
    feeds: Vec<Feed>,
    /// The versions of the segments at the latest lookup of their vertices.
    versions: SegmentVersions,
    next_index: u32,
    sequence: u64,
    /// The batch that was not sent yet.
    pub(crate) pending: Batch,
}

struct SentVertex {
    vertex: Vertex,
    description: Description,
    latest: Option<Sample>,
}

/// The news that vertices have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum News {
    /// There is no sample.
    Absent,
    /// The agent has published samples, and publishes more in the same moment: those of its other sensors.
    OfAgent,
    /// Another program has published samples.
    OfProgram,
}

impl SentVertices {
    pub(crate) fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            vertices: Vec::new(),
            free: Vec::new(),
            feeds: Vec::new(),
            versions: SegmentVersions::default(),
            next_index: 0,
            sequence: 0,
            pending: Batch::default(),
        }
    }

    /// Finds vertices that were added or removed.
    pub(crate) fn look(&mut self, host: &Host) {
        let Some(versions) = host.changes(&self.versions) else { return };
        self.versions = versions;
        let all: Vec<Vertex> = host.segments().iter().flat_map(Segment::vertices).collect();
        // Of two segments with one topic, the older one has it.
        let mut there: HashMap<&Topic, &Vertex> = HashMap::new();
        for vertex in &all {
            there.entry(vertex.topic()).or_insert(vertex);
        }
        let key = |v: &Vertex| (v.segment().path().to_path_buf(), v.info().registered_at);
        let mut gone = Vec::new();
        for (at, known) in (0..).zip(&self.vertices) {
            let Some(SentVertex { vertex: known, .. }) = known else { continue };
            match there.get(known.topic()) {
                Some(vertex) if key(vertex) == key(known) => drop(there.remove(known.topic())),
                _ => gone.push(at),
            }
        }
        // The feed of a segment that ended goes as a whole; the other feeds are searched once for all keys.
        self.feeds.retain(|feed| host.segments().iter().any(|segment| is_of(feed, segment)));
        if !gone.is_empty() {
            self.feeds.iter_mut().for_each(|feed| feed.remove_all(&gone));
        }
        gone.into_iter().for_each(|key| self.remove(key));
        for vertex in &all {
            if there.remove(vertex.topic()).is_some() {
                self.add(vertex);
            }
        }
    }

    fn add(&mut self, vertex: &Vertex) {
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
        let key = self.free.pop().unwrap_or_else(|| {
            self.vertices.push(None);
            // A segment has at most 32 bits of entries, and a runtime directory a few segments.
            (self.vertices.len() - 1) as u32
        });
        let sent = SentVertex { vertex: vertex.clone(), description, latest: None };
        self.vertices[key as usize] = Some(sent);
        let at = self.feeds.iter().position(|feed| is_of(feed, vertex.segment()));
        let at = at.unwrap_or_else(|| {
            self.feeds.push(Feed::new(vertex.segment()));
            self.feeds.len() - 1
        });
        self.feeds[at].add(vertex, key);
    }

    /// Removes a vertex that no feed has any more.
    fn remove(&mut self, key: u32) {
        let place = self.vertices.get_mut(key as usize);
        if let Some(sent) = place.and_then(Option::take) {
            self.pending.gone.push(sent.description.index);
            self.free.push(key);
        }
    }

    /// Returns the most urgent news of all vertices.
    pub(crate) fn news(&self) -> News {
        let of = |feed: &Feed| match feed.has_news() {
            false => News::Absent,
            true if feed.segment().name() == SEGMENT_NAME => News::OfAgent,
            true => News::OfProgram,
        };
        self.feeds.iter().map(of).max().unwrap_or(News::Absent)
    }

    /// Reads the new samples.
    pub(crate) fn collect(&mut self) {
        let mut gone = Vec::new();
        let Self { feeds, vertices, pending, .. } = self;
        for feed in feeds {
            feed.take(&mut |key, event| {
                let Some(Some(sent)) = vertices.get_mut(key as usize) else { return };
                let index = sent.description.index;
                match event {
                    FeedEvent::Delivered(Delivery::Sample(sample)) => {
                        pending.samples.push(indexed(index, &sample));
                        sent.latest = Some(sample);
                    }
                    FeedEvent::Delivered(Delivery::Lost(_)) => {
                        // Overwritten samples are at most in the history on disk. A new description tells followers
                        // that there is a gap before the next sample.
                        pending.samples.retain(|sample| sample.index != index);
                        pending.described.push(sent.description.clone());
                    }
                    FeedEvent::Gone => gone.push(key),
                }
            });
        }
        // Their feed has removed them already.
        gone.into_iter().for_each(|key| self.remove(key));
    }

    /// Takes the pending batch, split to the largest size of a message; with poll times if `with_checked`.
    pub(crate) fn batches(&mut self, with_checked: bool) -> Vec<Batch> {
        if with_checked {
            self.pending.checked = self.checked();
        }
        let pending = std::mem::take(&mut self.pending);
        // Once a second a batch is sent, even if it is empty, so that followers notice a lost batch.
        if pending == Batch::default() && !with_checked {
            return Vec::new();
        }
        let mut parts = Batch { sent_at: now(), ..pending }.split_for_followers();
        for part in &mut parts {
            self.sequence += 1;
            part.sequence = self.sequence;
        }
        parts
    }

    /// Returns the poll times that are newer than those sent before, with their vertices.
    fn checked(&mut self) -> Vec<Checked> {
        let Self { feeds, vertices, .. } = self;
        let mut times: BTreeMap<Timestamp, Vec<u32>> = BTreeMap::new();
        for feed in feeds {
            feed.take_checks(&mut |key, at| {
                if let Some(Some(sent)) = vertices.get(key as usize) {
                    times.entry(at).or_default().push(sent.description.index);
                }
            });
        }
        times.into_iter().map(|(at, indices)| Checked { at, runs: runs(indices) }).collect()
    }

    /// Returns a snapshot of all vertices, as of the last batch that was sent.
    pub(crate) fn whole(&self) -> Vec<Batch> {
        let mut all = Batch::default();
        for SentVertex { description, latest, .. } in self.vertices.iter().flatten() {
            all.described.push(description.clone());
            let sample = latest.as_ref().map(|sample| indexed(description.index, sample));
            all.samples.extend(sample);
        }
        Batch { sequence: self.sequence, sent_at: now(), ..all }.split()
    }

    /// Returns the current value of a topic.
    pub(crate) fn fresh(&self, topic: &Topic) -> Option<Batch> {
        let all = self.vertices.iter().flatten();
        let sent = all.into_iter().find(|sent| sent.description.topic == *topic)?;
        let reading = sent.vertex.peek().ok()?;
        let index = sent.description.index;
        Some(Batch {
            sent_at: now(),
            described: vec![sent.description.clone()],
            samples: vec![indexed(index, &reading.sample)],
            checked: vec![Checked { at: reading.checked_at, runs: vec![(index, 1)] }],
            ..Batch::default()
        })
    }
}

fn is_of(feed: &Feed, segment: &Segment) -> bool {
    let of = feed.segment();
    of.path() == segment.path() && of.created_at() == segment.created_at()
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
    use skopos_wire::{BatchOutcome, Mirror, Vertex as Mirrored};

    use super::*;

    /// A publisher of a temporary directory, and the vertices that its node sends.
    struct Sending {
        publisher: Publisher,
        host: Host,
        sent: SentVertices,
        _dir: tempfile::TempDir,
    }

    impl Sending {
        fn start() -> Self {
            let dir = tempfile::tempdir().expect("a folder");
            let publisher = Publisher::builder("app").dir(dir.path()).node("n01").create();
            let publisher = publisher.expect("a segment");
            let host = Host::open_dirs(vec![dir.path().to_path_buf()]).expect("a host");
            Self { publisher, host, sent: SentVertices::new("n01"), _dir: dir }
        }

        fn spec(topic: &str) -> VertexSpec {
            VertexSpec::new(Topic::new(topic).expect("a topic"), ValueType::U64).slots(8)
        }

        /// Looks for vertices, reads their samples and returns the batches.
        fn turn(&mut self) -> Vec<Batch> {
            self.sent.look(&self.host);
            self.sent.collect();
            self.sent.batches(false)
        }

        /// Reads the samples, and applies the batches to a mirror.
        fn send(&mut self, mirror: &mut Mirror) {
            self.sent.collect();
            for batch in self.sent.batches(false) {
                assert_eq!(mirror.take(batch, &mut ()), BatchOutcome::Applied);
            }
        }
    }

    #[test]
    fn a_follower_notices_samples_that_were_overwritten_before_they_were_sent() {
        let mut sending = Sending::start();
        let topic = Topic::new("n01/app/depth").expect("a topic");
        let writer = sending.publisher.register(Sending::spec("n01/app/depth")).expect("a vertex");
        let at = Timestamp::from_nanos;
        let publish = |times: std::ops::RangeInclusive<i64>| {
            for n in times {
                writer.publish_at(at(n), n as u64).expect("published");
            }
        };
        publish(1..=1);
        let _ = sending.turn();
        let mut mirror = Mirror::default();
        mirror.reset(sending.sent.whole(), &mut ());
        let since = |mirror: &Mirror| mirror.find(&topic).and_then(Mirrored::complete_since);
        publish(2..=5);
        sending.send(&mut mirror);
        assert_eq!(since(&mirror), Some(at(1)));
        publish(6..=50);
        sending.send(&mut mirror);
        let vertex = mirror.find(&topic).expect("it is there");
        let times: Vec<_> = vertex.recent.iter().map(|sample| sample.time.as_nanos()).collect();
        assert!(times.starts_with(&[1, 2, 3, 4, 5]) && times.ends_with(&[49, 50]), "{times:?}");
        assert_eq!(since(&mirror), Some(at(times[5])));
        assert!(mirror.is_complete() && times[5] > 6);
    }

    #[test]
    fn a_vertex_that_is_gone_has_news_once() {
        let mut sending = Sending::start();
        let writer = sending.publisher.register(Sending::spec("n01/app/depth")).expect("a vertex");
        writer.publish(1u64).expect("published");
        let described = sending.turn()[0].described[0].index;
        assert_eq!(sending.sent.news(), News::Absent);
        sending.publisher.unregister(&writer);
        assert_eq!(sending.sent.news(), News::OfProgram);
        // Before the next look for vertices, which is up to a second away.
        sending.sent.collect();
        assert_eq!(sending.sent.batches(false)[0].gone, [described]);
        assert_eq!(sending.sent.news(), News::Absent, "the loop would not sleep");
        // The topic comes back, with another index.
        let again = sending.publisher.register(Sending::spec("n01/app/depth")).expect("a vertex");
        again.publish(2u64).expect("published");
        let batches = sending.turn();
        assert_eq!((batches[0].described.len(), batches[0].samples.len()), (1, 1));
        assert_ne!(batches[0].described[0].index, described);
        assert!(batches[0].gone.is_empty(), "it was sent before");
    }

    #[test]
    fn poll_times_of_unchanged_values_are_sent_once() {
        let mut sending = Sending::start();
        let mut group = sending.publisher.group("load").expect("a group");
        let specs = ["n01/load/a", "n01/load/b"].map(Sending::spec);
        let writers = specs.map(|spec| group.register(spec).expect("a vertex"));
        let alone = sending.publisher.register(Sending::spec("n01/app/depth")).expect("a vertex");
        let at = Timestamp::from_nanos;
        let mut tick = |time: i64, values: [u64; 2]| {
            let mut tick = group.tick(at(time));
            for (writer, value) in writers.iter().zip(values) {
                tick.publish(writer, value).expect("published");
            }
            tick.commit();
        };
        tick(1, [1, 1]);
        let first = sending.turn();
        assert_eq!((first[0].described.len(), first[0].samples.len()), (3, 2));
        assert!(sending.sent.batches(true)[0].checked.is_empty());
        tick(2, [1, 2]);
        alone.publish_at(at(3), 5u64).expect("published");
        alone.check_at(at(4)).expect("checked");
        assert_eq!(sending.sent.news(), News::OfProgram);
        sending.sent.collect();
        let batch = sending.sent.batches(true).remove(0);
        let values: Vec<_> = batch.samples.iter().map(|sample| sample.time.as_nanos()).collect();
        assert_eq!(values, [3, 2]);
        let checked: Vec<_> = batch.checked.iter().map(|c| (c.at, c.runs.clone())).collect();
        assert_eq!(checked, [(at(2), vec![(0, 1)]), (at(4), vec![(2, 1)])]);
        assert_eq!(sending.sent.news(), News::Absent);
        assert!(sending.sent.batches(true)[0].checked.is_empty(), "once");
    }

    #[test]
    fn a_vertex_without_a_complete_tick_is_sent_with_the_tick() {
        let mut sending = Sending::start();
        let mut group = sending.publisher.group("load").expect("a group");
        let writer = group.register(Sending::spec("n01/load/a")).expect("a vertex");
        let _ = sending.turn();
        let mut tick = group.tick(Timestamp::from_nanos(1));
        tick.publish(&writer, 1u64).expect("published");
        assert_eq!(sending.sent.news(), News::Absent);
        tick.commit();
        assert_eq!(sending.sent.news(), News::OfProgram);
        assert_eq!(sending.turn()[0].samples.len(), 1);
    }

    #[test]
    fn a_publisher_that_ends_takes_its_vertices_with_it_and_others_keep_theirs() {
        const VERTICES: u32 = 500;
        let mut sending = Sending::start();
        let large = Publisher::builder("large").dir(sending._dir.path()).node("n01").create();
        let large = large.expect("a segment");
        let register = |at| large.register(Sending::spec(&format!("n01/large/v{at}")));
        let writers: Vec<_> = (0..VERTICES).map(|at| register(at).expect("a vertex")).collect();
        for writer in &writers {
            writer.publish(1u64).expect("published");
        }
        let writer = sending.publisher.register(Sending::spec("n01/app/depth")).expect("a vertex");
        sending.host.refresh().expect("it can be read");
        let described = sending.turn().iter().map(|batch| batch.described.len()).sum::<usize>();
        assert_eq!(described, VERTICES as usize + 1);
        drop((writers, large));
        writer.publish(2u64).expect("published");
        sending.host.refresh().expect("it can be read");
        let batch = sending.turn().remove(0);
        assert_eq!((batch.gone.len(), batch.samples.len()), (VERTICES as usize, 1));
        assert_eq!(sending.sent.news(), News::Absent);
        // A later vertex has the place of one that is gone.
        let again = sending.publisher.register(Sending::spec("n01/app/late")).expect("a vertex");
        again.publish(3u64).expect("published");
        let batch = sending.turn().remove(0);
        let described: Vec<_> = batch.described.iter().map(|d| d.topic.as_str()).collect();
        assert_eq!((described, batch.samples.len()), (vec!["n01/app/late"], 1));
        assert_eq!(sending.sent.vertices.len(), VERTICES as usize + 1);
    }
}
