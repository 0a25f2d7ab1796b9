//! Facts that other processes of this user publish in segments of their own. They are inputs of insights like
//! the agent's own facts, and are read once a second.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use skopos_model::{Origin, Sample, Timestamp, Topic, Value};
use skopos_score::Unknown;
use skopos_shm::{Error, Host, Publisher, Reading, Segment, SegmentVersions, Vertex};

use crate::insights::{Insights, TrackedFact};
use crate::names::SEGMENT_NAME;

/// Largest number of facts of other processes that insights can use. Reading a fact costs some tens of
/// nanoseconds, once a second.
const MAX_FOREIGN: usize = 4096;

/// Time between two searches for new publishers.
const SEARCH_EVERY: Duration = Duration::from_secs(5);

/// The other segments of the agent's runtime directory.
pub(crate) struct Foreign {
    host: Option<Host>,
    /// The versions of the segments at the latest lookup of their vertices.
    versions: SegmentVersions,
    facts: HashMap<Topic, Fact>,
    search_at: Duration,
    /// Number of facts for which there was no room at the latest lookup.
    left_out: u64,
}

struct Fact {
    vertex: Vertex,
    /// `None` if the agent itself has a vertex of this topic.
    followed: Option<TrackedFact>,
    /// The reading that insights have. Its times may stand still after a step back of the clock, while values change.
    last: Option<Reading>,
}

impl Foreign {
    /// Opens the segments of this directory. A directory that cannot be trusted counts as empty; other verbs
    /// report it.
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            host: Host::open_dirs(vec![dir.into()]).ok().map(|host| host.without(SEGMENT_NAME)),
            versions: SegmentVersions::default(),
            facts: HashMap::new(),
            search_at: Duration::ZERO,
            left_out: 0,
        }
    }

    /// Returns the number of facts for which there is no room.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Passes every value that was published or checked since the last call to the insights.
    pub(crate) fn look(&mut self, insights: &mut Insights, publisher: &Publisher, now: Duration) {
        let Some(host) = &mut self.host else { return };
        // A publisher that died is noticed at once, not at the next search.
        if self.search_at <= now || !host.segments().iter().all(Segment::is_alive) {
            self.search_at = now + SEARCH_EVERY;
            let _ = host.refresh();
        }
        if let Some(versions) = host.changes(&self.versions) {
            let vertices = host.segments().iter().flat_map(Segment::vertices).collect();
            self.versions = versions;
            self.meet(vertices, insights, publisher);
        }
        for fact in self.facts.values_mut() {
            let Some(followed) = &fact.followed else { continue };
            let Ok(reading) = fact.vertex.latest() else { continue };
            if fact.last.as_ref() == Some(&reading) {
                continue;
            }
            let (time, sample) = (polled_at(&reading), &reading.sample);
            match sample.origin {
                Origin::Measured => insights.set(followed, time, &sample.value),
                Origin::Unknown => insights.set_unknown(followed, time, why_unknown(sample)),
                // Insights are not computed from predictions.
                Origin::Predicted { .. } => continue,
            }
            fact.last = Some(reading);
        }
    }

    /// Adds new vertices to the graph, and removes those that are gone.
    fn meet(&mut self, vertices: Vec<Vertex>, insights: &mut Insights, publisher: &Publisher) {
        let is_there = |fact: &Fact| {
            let segment = fact.vertex.segment();
            segment.is_alive() && !matches!(fact.vertex.latest(), Err(Error::Gone(_)))
        };
        let gone = self.facts.iter().filter(|(_, fact)| !is_there(fact));
        let gone: Vec<Topic> = gone.map(|(topic, _)| topic.clone()).collect();
        for topic in gone {
            if let Some(followed) = self.facts.remove(&topic).and_then(|fact| fact.followed) {
                insights.unfollow(followed, publisher);
            }
        }
        self.left_out = 0;
        for vertex in vertices {
            let topic = vertex.topic().clone();
            if self.facts.contains_key(&topic) {
                continue;
            }
            if self.facts.len() == MAX_FOREIGN {
                self.left_out += 1;
                continue;
            }
            let info = vertex.info();
            let followed = insights.follow(topic.clone(), info.unit, info.kind, publisher);
            self.facts.insert(topic, Fact { vertex, followed, last: None });
        }
    }
}

/// Returns the time of the last poll by the present clock. A time that has not come yet is one of before the clock was set
/// back: a value with it would look fresh until the clock has caught up.
fn polled_at(reading: &Reading) -> Timestamp {
    let now = skopos_shm::now();
    match reading.checked_at > now {
        true => now.saturating_sub(reading.age()),
        false => reading.checked_at,
    }
}

/// Returns the reason of an unknown sample. Only structured samples carry it.
fn why_unknown(sample: &Sample) -> Unknown {
    let reason = match &sample.value {
        Value::Structured(reason) => reason.as_json().as_str(),
        _ => None,
    };
    Unknown::new(reason.unwrap_or("its publisher does not know it"))
}
