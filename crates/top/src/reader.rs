//! Reads what is published on this machine into [`Data`].
//!
//! Handles of vertices are kept, and a segment's directory is read again only when its version
//! changes. A segment whose publisher dies stays, marked as gone, until one of the same name takes
//! its place: the last values before a crash are what a user wants to see.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use skopos_model::{Kind, Origin, Sample, Timestamp, Topic, Value, schema};
use skopos_shm::{Host, Segment, SegmentVersions, Vertex};

use super::data::{self, Data, Fact, History, Publisher};
use super::findings::{Finding, Findings};
use super::rate::Growth;
use super::told::Asker;

/// Rates are over one interval of the sensor, and at least over this: a glance.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Segments of dead publishers that are kept. More is a crash loop, not a last look.
const MAX_GONE: usize = 16;

/// All samples that are in memory.
const EVERYTHING: RangeInclusive<Timestamp> =
    Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);

pub(crate) struct Reader {
    host: Host,
    versions: SegmentVersions,
    sources: Vec<Source>,
    /// Beside [`Data::facts`].
    vertices: Vec<Vertex>,
    data: Data,
    asker: Asker,
    events: HashMap<Topic, Events>,
}

/// The events of one rule, as of a number of them that were ever stored.
struct Events {
    count: u64,
    findings: Vec<Finding>,
    unreadable: usize,
}

/// A segment that is or was there.
struct Source {
    segment: Segment,
    gone_at: Option<Timestamp>,
}

impl Reader {
    pub(crate) fn new(host: Host, asker: Asker) -> Self {
        let (sources, vertices) = (Vec::new(), Vec::new());
        let (data, events) = (Data::default(), HashMap::new());
        let versions = SegmentVersions::default();
        let mut reader = Self { host, versions, sources, vertices, data, asker, events };
        reader.refresh();
        reader
    }

    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    /// Looks at everything again.
    pub(crate) fn refresh(&mut self) {
        let now = skopos_shm::now();
        let trouble = match self.host.refresh() {
            Err(e) => Some(e.to_string()),
            Ok(()) => self.host.refused().first().map(ToString::to_string),
        };
        if self.follow_segments(now) {
            self.read_directories();
        }
        self.data.trouble = trouble;
        self.data.now = now;
        for (publisher, source) in self.data.publishers.iter_mut().zip(&self.sources) {
            publisher.gone_at = source.gone_at;
            publisher.silent_for = source.segment.silent_for();
        }
        self.read_values();
        self.read_findings();
        self.data.judge();
    }

    /// Takes what the agent answered, and asks it again if that is `wanted` and due.
    pub(crate) fn ask(&mut self, wanted: bool) {
        if let Some(told) = self.asker.look(wanted) {
            // The last answers stay if there is no new one.
            match told.trouble {
                Some(_) => self.data.told.trouble = told.trouble,
                None => self.data.told = told,
            }
        }
        if !wanted {
            // Reasons last, what is unusual may not: nobody asks for it any more.
            self.data.told.raised.clear();
        }
    }

    /// Brings `sources` in line with the live segments; true if a directory must be read again.
    fn follow_segments(&mut self, now: Timestamp) -> bool {
        let Some(versions) = self.host.changes(&self.versions) else { return false };
        self.versions = versions;
        for source in &mut self.sources {
            let alive = self.host.segments().iter().any(|s| same(s, &source.segment));
            if !alive && source.gone_at.is_none() {
                source.gone_at = Some(now);
            }
        }
        for segment in self.host.segments() {
            if self.sources.iter().any(|s| same(&s.segment, segment)) {
                continue;
            }
            self.sources.retain(|s| s.gone_at.is_none() || s.segment.name() != segment.name());
            self.sources.push(Source { segment: segment.clone(), gone_at: None });
        }
        let gone = self.sources.iter().filter(|s| s.gone_at.is_some()).count();
        if let Some(oldest) = self.sources.iter().position(|s| s.gone_at.is_some())
            && gone > MAX_GONE
        {
            self.sources.remove(oldest);
        }
        true
    }

    /// Makes the list of facts anew. Of a topic that several have, the living and the oldest wins.
    fn read_directories(&mut self) {
        self.sources.sort_by_key(|s| (s.gone_at.is_some(), s.segment.created_at()));
        let mut seen: HashSet<Topic> = HashSet::new();
        let mut found: Vec<(Vertex, usize)> = Vec::new();
        for (publisher, source) in self.sources.iter().enumerate() {
            for vertex in source.segment.vertices() {
                if seen.insert(vertex.topic().clone()) {
                    found.push((vertex, publisher));
                }
            }
        }
        found.sort_by(|a, b| a.0.topic().cmp(b.0.topic()));
        let facts: Vec<Fact> = found.iter().map(|(v, publisher)| blank(v, *publisher)).collect();
        let publishers: Vec<Publisher> = self.sources.iter().map(Source::publisher).collect();
        self.vertices = found.into_iter().map(|(vertex, _)| vertex).collect();
        let told = std::mem::take(&mut self.data.told);
        self.data = Data::new(publishers, facts);
        self.data.told = told;
        // Vertices may be others of the same names.
        self.events.clear();
    }

    fn read_values(&mut self) {
        for (fact, vertex) in self.data.facts.iter_mut().zip(&self.vertices) {
            // Who looks at a screen wants to see things move.
            vertex.follow();
            // No sample yet, or unregistered a moment ago: the directory says so at the next look.
            let Ok(reading) = vertex.latest() else { continue };
            let Sample { time, value, origin } = reading.sample;
            fact.since = time;
            fact.checked_at = reading.checked_at;
            (fact.value, fact.bound, fact.unknown) = match origin {
                Origin::Measured => (Some(value), None, None),
                Origin::Predicted { bound } => (Some(value), Some(bound), None),
                Origin::Unknown => (None, None, Some(reason(&value))),
            };
        }
        // Intervals are facts too: rates come once all values are there.
        let intervals: HashMap<&str, Duration> = schema::FAMILIES
            .iter()
            .filter_map(|family| Some((family.name, self.data.interval(family.name)?)))
            .collect();
        let facts = self.data.facts.iter_mut().zip(&self.vertices);
        for (fact, vertex) in facts.filter(|(f, _)| f.kind == Kind::Counter && f.value.is_some()) {
            let interval = fact.known.and_then(|(family, _)| intervals.get(family.name));
            fact.rate = rate(fact, vertex, interval.copied());
        }
    }

    /// Reads the events of rules that have new ones.
    fn read_findings(&mut self) {
        let facts = self.data.facts.iter().zip(&self.vertices);
        for (_, vertex) in facts.filter(|(fact, _)| fact.is_below(data::FINDINGS)) {
            let count = vertex.count();
            let known = self.events.get(vertex.topic());
            if known.is_none_or(|known| known.count != count)
                && let Ok(range) = vertex.range(EVERYTHING)
            {
                let events = Events::new(count, &range.samples);
                self.events.insert(vertex.topic().clone(), events);
            }
        }
        let events = self.events.values().flat_map(|of| of.findings.iter().cloned()).collect();
        let is_there = |topic: &str| topic.parse().is_ok_and(|t| self.data.fact(&t).is_some());
        let mut findings = Findings::new(events, &self.data.told.raised, is_there);
        findings.unreadable = self.events.values().map(|of| of.unreadable).sum();
        self.data.findings = findings;
    }

    /// Reads the samples of `topics` that are in memory, and forgets others'.
    pub(crate) fn load_histories(&mut self, topics: &[Topic]) {
        self.data.histories.clear();
        for topic in topics {
            let found = self.data.facts.binary_search_by(|f| f.topic.cmp(topic));
            let Some(vertex) = found.ok().and_then(|index| self.vertices.get(index)) else {
                continue;
            };
            let Ok(range) = vertex.range(EVERYTHING) else { continue };
            let samples = range.samples.iter().filter_map(point_or_gap).collect();
            self.data.histories.insert(topic.clone(), History { samples });
        }
    }
}

impl Source {
    fn publisher(&self) -> Publisher {
        Publisher {
            name: self.segment.name().to_owned(),
            node: self.segment.node().to_owned(),
            pid: self.segment.pid(),
            gone_at: self.gone_at,
            silent_for: Duration::ZERO,
        }
    }
}

/// The same segment, and not one that took the place of another.
fn same(a: &Segment, b: &Segment) -> bool {
    a.path() == b.path() && a.created_at() == b.created_at() && a.pid() == b.pid()
}

fn blank(vertex: &Vertex, publisher: usize) -> Fact {
    let info = vertex.info();
    Fact {
        topic: info.topic.clone(),
        unit: info.unit,
        kind: info.kind,
        known: schema::lookup_in_family(&info.topic),
        value: None,
        bound: None,
        unknown: None,
        since: Timestamp::default(),
        checked_at: Timestamp::default(),
        rate: None,
        publisher,
        stale: false,
    }
}

impl Events {
    fn new(count: u64, samples: &[Sample]) -> Self {
        let events = samples.iter().map(|sample| match &sample.value {
            Value::Structured(record) => Finding::parse(record.as_json()),
            _ => None,
        });
        let (mut findings, mut unreadable) = (Vec::new(), 0);
        for event in events {
            match event {
                Some(event) => findings.push(event),
                None => unreadable += 1,
            }
        }
        Self { count, findings, unreadable }
    }
}

/// What a sample without a value says about why; nothing if its type has no room for that.
fn reason(value: &Value) -> String {
    match value {
        Value::Structured(text) => text.as_json().as_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// The number of a sample, not a number where there is none: a gap in the history.
fn point_or_gap(sample: &Sample) -> Option<(i64, f64)> {
    match sample.origin {
        Origin::Unknown => Some((sample.time.as_nanos(), f64::NAN)),
        _ => point(sample),
    }
}

fn point(sample: &Sample) -> Option<(i64, f64)> {
    if sample.origin == Origin::Unknown {
        return None;
    }
    Some((sample.time.as_nanos(), sample.value.as_f64()?))
}

/// The growth per second over the last window that ends with the last look at the source.
fn rate(fact: &Fact, vertex: &Vertex, interval: Option<Duration>) -> Option<f64> {
    let window = interval.unwrap_or_default().max(RATE_WINDOW);
    let to = fact.checked_at;
    // Polls come early and late: the look before the last one may lie a little further back.
    let from = to.saturating_sub(window + window / 4);
    if fact.since < from {
        return Some(0.0);
    }
    // The sample before the window, unless the ring does not reach back so far: then what it has.
    let mut samples: Vec<(i64, f64)> =
        vertex.as_of(from).ok().flatten().iter().filter_map(point).collect();
    let after = Timestamp::from_nanos(from.as_nanos().saturating_add(1));
    samples.extend(vertex.range(after..=to).ok()?.samples.iter().filter_map(point));
    Growth::new(&samples, to.as_nanos(), interval).lately(window)
}
