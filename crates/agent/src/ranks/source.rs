//! The vertices behind the inputs of a ranking: they are found once, and read in each ranking.

use std::collections::HashMap;
use std::time::Duration;

use skopos_model::{Kind, Origin, Timestamp, Topic, TopicPattern};
use skopos_shm::{Segment, Vertex};
use skopos_steer::rank::{Better, Combine, Reading};

/// Most vertices of a metric of a candidate: the disks of a large node.
const MAX_VERTICES: usize = 64;

/// Families with the offset of another node's clock, the more exact first.
const OFFSETS: [&str; 2] = ["peer", "mirror"];

/// All vertices of a machine, to look topics up.
pub(super) struct Vertices<'a> {
    node: &'a str,
    /// In the order of topics, one for each.
    all: Vec<Vertex>,
    /// Places in `all` by the last segment of the topic.
    by_metric: HashMap<String, Vec<usize>>,
}

impl<'a> Vertices<'a> {
    /// Lists the vertices of segments; of two with one topic the first counts.
    pub(super) fn of(node: &'a str, segments: &[Segment]) -> Self {
        let mut all: Vec<Vertex> = segments.iter().flat_map(Segment::vertices).collect();
        // The sort is stable, so the vertex of the first segment comes first.
        all.sort_by(|a, b| a.topic().cmp(b.topic()));
        all.dedup_by(|later, first| later.topic() == first.topic());
        let mut by_metric: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, vertex) in all.iter().enumerate() {
            by_metric.entry(vertex.topic().metric().to_owned()).or_default().push(at);
        }
        Self { node, all, by_metric }
    }

    /// Returns the sources of a pattern whose topics `wanted` accepts, in the order of topics.
    pub(super) fn sources(
        &self,
        pattern: &TopicPattern,
        wanted: impl Fn(&Topic) -> bool,
    ) -> Vec<Source> {
        let fits = |vertex: &&Vertex| pattern.matches(vertex.topic()) && wanted(vertex.topic());
        let source = |vertex: &Vertex| self.source(vertex);
        if let Some(topic) = pattern.as_topic() {
            return self.find(&topic).filter(fits).map(source).into_iter().collect();
        }
        match pattern.as_str().rsplit('/').next() {
            Some(metric) if !metric.contains('*') => {
                let places = self.by_metric.get(metric).into_iter().flatten();
                let vertices = places.map(|at| &self.all[*at]);
                vertices.filter(fits).take(MAX_VERTICES).map(source).collect()
            }
            _ => self.all.iter().filter(fits).take(MAX_VERTICES).map(source).collect(),
        }
    }

    fn find(&self, topic: &Topic) -> Option<&Vertex> {
        let at = self.all.binary_search_by(|vertex| vertex.topic().cmp(topic)).ok()?;
        self.all.get(at)
    }

    fn source(&self, vertex: &Vertex) -> Source {
        let node = vertex.topic().node();
        let offset = |family: &&str| {
            let topic = format!("{}/{family}/{node}/clock_offset_seconds", self.node);
            self.find(&Topic::new(&topic).ok()?).cloned()
        };
        let clock = match node == self.node {
            true => Clock::Own,
            false => Clock::Other(OFFSETS.iter().filter_map(offset).collect()),
        };
        let is_counter = vertex.info().kind == Kind::Counter;
        Source { vertex: vertex.clone(), clock, rate: is_counter.then(Rate::default) }
    }
}

/// The clock of the times of a vertex.
enum Clock {
    /// The clock of this node.
    Own,
    /// The clock of another node, with the facts that may have its offset.
    Other(Vec<Vertex>),
}

/// A counter between two rankings.
#[derive(Default)]
struct Rate {
    before: Option<(Timestamp, f64)>,
    per_second: Option<f64>,
}

impl Rate {
    /// Returns the rate up to a value of this time: the last rate, if the source was not polled since.
    fn take(&mut self, at: Timestamp, value: f64) -> Option<f64> {
        match self.before {
            Some((before, _)) if at <= before => return self.per_second,
            Some((before, last)) if value >= last => {
                self.per_second = Some((value - last) / at.since(before).as_secs_f64());
            }
            // The first value, or a counter that began again.
            _ => self.per_second = None,
        }
        self.before = Some((at, value));
        self.per_second
    }
}

/// A vertex with a value of a metric.
pub(super) struct Source {
    vertex: Vertex,
    clock: Clock,
    rate: Option<Rate>,
}

impl Source {
    /// Takes the state of the counter over from an earlier source of the same topic, if there is one.
    pub(super) fn adopt(&mut self, before: &mut [Self]) {
        let topic = self.vertex.topic();
        let same = before.iter_mut().find(|source| source.vertex.topic() == topic);
        if let (Some(rate), Some(kept)) = (&mut self.rate, same.and_then(|s| s.rate.take())) {
            *rate = kept;
        }
    }

    /// Returns the node that publishes it.
    pub(super) fn node(&self) -> &str {
        self.vertex.topic().node()
    }

    /// Reads the value, and its time by the clock of this node; `None` if there is no measured number. With `mark`, the
    /// publisher learns that the fact is read.
    pub(super) fn read(&mut self, now: Timestamp, mark: bool) -> Option<Reading> {
        let reading = if mark { self.vertex.latest() } else { self.vertex.peek() }.ok()?;
        if reading.sample.origin != Origin::Measured {
            return None;
        }
        let at = match &self.clock {
            // A time that has not come yet is one of before the clock was set back.
            Clock::Own if reading.checked_at > now => now.saturating_sub(reading.age()),
            Clock::Own => reading.checked_at,
            Clock::Other(offsets) => by_own_clock(reading.checked_at, offsets),
        };
        let value = reading.as_f64()?;
        let value = match &mut self.rate {
            Some(rate) => rate.take(reading.checked_at, value)?,
            None => value,
        };
        let samples = u32::try_from(self.vertex.count()).unwrap_or(u32::MAX);
        Some(Reading { value, at, samples })
    }
}

/// Converts a time of another node by the first offset that is known.
fn by_own_clock(time: Timestamp, offsets: &[Vertex]) -> Timestamp {
    let offset = offsets.iter().find_map(|vertex| {
        let reading = vertex.peek().ok()?;
        reading.as_f64().filter(|offset| offset.is_finite())
    });
    let Some(offset) = offset else { return time };
    let by = Duration::try_from_secs_f64(offset.abs()).unwrap_or(Duration::MAX);
    if offset > 0.0 { time.saturating_sub(by) } else { time.saturating_add(by) }
}

/// Reads all sources of a metric as one value. It is as old as the oldest of them.
pub(super) fn combined(
    sources: &mut [Source],
    (combine, better): (Combine, Better),
    now: Timestamp,
    mark: bool,
) -> Option<Reading> {
    let mut all: Option<Reading> = None;
    let mut count = 0.0;
    for reading in sources.iter_mut().filter_map(|source| source.read(now, mark)) {
        count += 1.0;
        let Some(sum) = &mut all else {
            all = Some(reading);
            continue;
        };
        let (a, b) = (sum.value, reading.value);
        sum.value = match (combine, better) {
            // A value that is not a number stays one, so that the ranking sees the fault.
            _ if a.is_nan() || b.is_nan() => f64::NAN,
            (Combine::Worst, Better::Lower) | (Combine::Best, Better::Higher) => a.max(b),
            (Combine::Worst, Better::Higher) | (Combine::Best, Better::Lower) => a.min(b),
            (Combine::Mean | Combine::Sum, _) => a + b,
        };
        sum.at = sum.at.min(reading.at);
        sum.samples = sum.samples.min(reading.samples);
    }
    if combine == Combine::Mean {
        all = all.map(|sum| Reading { value: sum.value / count, ..sum });
    }
    all
}
