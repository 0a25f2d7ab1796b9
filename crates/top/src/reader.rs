//! Reads the facts of this machine from shared memory into [`Data`].
//!
//! Handles of vertices are kept, and a segment's directory is read again only when its version
//! changes. A segment whose publisher dies stays, marked as gone, until another of the same name
//! takes its place: a user wants to see the last values before a crash.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use skopos_model::{Kind, Origin, Sample, Timestamp, Topic, Value, core_list, schema};
use skopos_shm::{Host, Segment, SegmentVersions, Vertex};

use crate::answers::AgentClient;
use crate::data::{self, Data, Fact, History, Publisher};
use crate::findings::{Finding, Findings};
use crate::members;
use crate::proc_scan::ProcScan;
use crate::processes::Processes;
use crate::window::Window;

/// The most segments of dead publishers that are kept. More of them come from a crash loop.
const MAX_GONE: usize = 16;

/// A range that holds all samples in memory.
const EVERYTHING: RangeInclusive<Timestamp> =
    Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);

pub(crate) struct Reader {
    host: Host,
    versions: SegmentVersions,
    sources: Vec<Source>,
    /// The vertex of each of [`Data::facts`].
    vertices: Vec<Vertex>,
    data: Data,
    agent: AgentClient,
    proc_scan: ProcScan,
    /// True if processes were scanned since the last refresh.
    is_scanned: bool,
    events: HashMap<Topic, Events>,
}

/// The events of a rule, and the number of events ever stored at the time of reading.
struct Events {
    count: u64,
    findings: Vec<Finding>,
    unreadable: usize,
}

/// A segment of a living or dead publisher.
struct Source {
    segment: Segment,
    gone_at: Option<Timestamp>,
}

impl Reader {
    pub(crate) fn new(host: Host, agent: AgentClient) -> Self {
        let (sources, vertices) = (Vec::new(), Vec::new());
        let (data, events) = (Data::default(), HashMap::new());
        let versions = SegmentVersions::default();
        let (proc_scan, is_scanned) = (ProcScan::new(), false);
        let mut reader =
            Self { host, versions, sources, vertices, data, agent, proc_scan, is_scanned, events };
        reader.refresh();
        reader
    }

    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    /// Reads all values again.
    pub(crate) fn refresh(&mut self) {
        self.is_scanned = false;
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
        self.data.mark_stale();
    }

    /// Takes the agent's answers, and sends another request if that is `wanted` and due.
    pub(crate) fn ask(&mut self, wanted: bool) {
        if let Some(answers) = self.agent.poll(wanted) {
            // The last answers stay if the request failed.
            match answers.trouble {
                Some(_) => self.data.answers.trouble = answers.trouble,
                None => self.data.answers = answers,
            }
        }
        if !wanted {
            // Reasons stay valid; unusual values change, and are not requested any more.
            self.data.answers.raised.clear();
        }
    }

    /// Scans the processes if that is `wanted`, once after each refresh; else drops them.
    pub(crate) fn scan_processes(&mut self, wanted: bool) {
        if !wanted {
            // An old scan would give the use over all of the time since.
            self.data.processes = Processes::default();
        } else if !self.is_scanned {
            self.proc_scan.scan(&mut self.data.processes);
            self.is_scanned = true;
        }
    }

    /// Updates `sources` to the live segments; true if a directory must be read again.
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

    /// Makes the list of facts. Of several publishers of a topic, the oldest living one is taken.
    fn read_directories(&mut self) {
        self.sources.sort_by_key(|s| (s.gone_at.is_some(), s.segment.created_at()));
        let mut seen: HashSet<Topic> = HashSet::new();
        let mut listed: Vec<(Vertex, usize)> = Vec::new();
        for (publisher, source) in self.sources.iter().enumerate() {
            for vertex in source.segment.vertices() {
                if seen.insert(vertex.topic().clone()) {
                    listed.push((vertex, publisher));
                }
            }
        }
        listed.sort_by(|a, b| a.0.topic().cmp(b.0.topic()));
        let facts: Vec<Fact> = listed.iter().map(|(v, publisher)| blank(v, *publisher)).collect();
        let publishers: Vec<Publisher> = self.sources.iter().map(Source::publisher).collect();
        self.vertices = listed.into_iter().map(|(vertex, _)| vertex).collect();
        let answers = std::mem::take(&mut self.data.answers);
        let processes = std::mem::take(&mut self.data.processes);
        self.data = Data::new(publishers, facts);
        (self.data.answers, self.data.processes) = (answers, processes);
        // Other vertices may have taken the same names.
        self.events.clear();
    }

    fn read_values(&mut self) {
        for (fact, vertex) in self.data.facts.iter_mut().zip(&self.vertices) {
            // A person at a screen wants to see each change: poll at the shortest interval.
            vertex.follow();
            // No sample yet, or just unregistered: the directory shows that at the next refresh.
            let Ok(reading) = vertex.latest() else { continue };
            fact.age = reading.age();
            let Sample { time, value, origin } = reading.sample;
            fact.since = time;
            fact.checked_at = reading.checked_at;
            (fact.value, fact.bound, fact.unknown) = match origin {
                Origin::Measured => (Some(value), None, None),
                Origin::Predicted { bound } => (Some(value), Some(bound), None),
                Origin::Unknown => (None, None, Some(reason(&value))),
            };
        }
        // Intervals are facts too, so rates are computed after all values are read.
        let intervals: HashMap<&str, Duration> = schema::FAMILIES
            .iter()
            .filter_map(|family| Some((family.name, self.data.interval(family.name)?)))
            .collect();
        let time_between_reads = |fact: &Fact| {
            let (family, metric) = fact.known?;
            intervals.get(family.name).map(|interval| metric.read_every().max(*interval))
        };
        let facts = self.data.facts.iter_mut().zip(&self.vertices);
        for (fact, vertex) in facts.filter(|(f, _)| f.kind == Kind::Counter && f.value.is_some()) {
            fact.rate = rate(fact, vertex, time_between_reads(fact));
        }
        let facts = self.data.facts.iter().zip(&self.vertices);
        let lists = facts.filter_map(|(fact, vertex)| {
            let window = Window::of(fact, time_between_reads(fact));
            members::of_list(fact, || window.samples(vertex), &window)
        });
        let members = lists.flatten().collect();
        self.data.set_members(members);
    }

    /// Reads the events of the rules that have new events.
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
        let mut findings = Findings::new(events, &self.data.answers.raised, is_there);
        findings.unreadable = self.events.values().map(|of| of.unreadable).sum();
        self.data.findings = findings;
    }

    /// Reads the samples of `topics` in memory, and drops the samples of other topics.
    pub(crate) fn load_histories(&mut self, topics: &[Topic]) {
        self.data.histories.clear();
        for topic in topics {
            let find = |topic: &Topic| {
                let found = self.data.facts.binary_search_by(|f| f.topic.cmp(topic));
                found.ok().and_then(|index| self.vertices.get(index))
            };
            let list = core_list::list_of(topic);
            let (vertex, place) = match (find(topic), list) {
                (Some(vertex), _) => (vertex, None),
                (None, Some((list, place))) => match find(&list) {
                    Some(vertex) => (vertex, Some(place)),
                    None => continue,
                },
                (None, None) => continue,
            };
            let Ok(range) = vertex.range(EVERYTHING) else { continue };
            let samples = range.samples.iter().filter_map(|sample| match place {
                Some(place) => members::point(sample, place),
                None => point_or_gap(sample),
            });
            self.data.histories.insert(topic.clone(), History { samples: samples.collect() });
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

/// True for the same segment; false for a segment that took the place of another.
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
        age: Duration::MAX,
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

/// The reason in a sample without a value; empty if its type does not have room for a reason.
fn reason(value: &Value) -> String {
    match value {
        Value::Structured(text) => text.as_json().as_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// Time and number of a sample; NaN for an unknown value, which is a gap in the history.
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

/// The growth per second over the window that ends with the last poll of the source.
fn rate(fact: &Fact, vertex: &Vertex, interval: Option<Duration>) -> Option<f64> {
    let window = Window::of(fact, interval);
    if window.is_quiet {
        return Some(0.0);
    }
    let samples: Vec<(i64, f64)> = window.samples(vertex)?.iter().filter_map(point).collect();
    window.rate(&samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the first vertex of a segment one that was polled ten seconds ago, by a clock that was an hour ahead then.
    fn step(publisher: &skopos_shm::Publisher) {
        use std::os::unix::fs::FileExt as _;
        const HOUR: i64 = 3_600_000_000_000;
        const CHECKED_AT: u64 = 16;
        const CHECKED_BOOTTIME: u64 = 48;
        let bytes = std::fs::read(publisher.path()).expect("readable");
        let heap = u64::from_le_bytes(bytes[56..64].try_into().expect("eight bytes"));
        let file = std::fs::OpenOptions::new().write(true).open(publisher.path()).expect("ours");
        let write = |at: u64, value: i64| {
            file.write_all_at(&value.to_le_bytes(), heap + at).expect("written");
        };
        write(CHECKED_AT, skopos_shm::now().as_nanos() + HOUR);
        write(CHECKED_BOOTTIME, skopos_shm::boottime().cast_signed() - 10_000_000_000);
    }

    #[test]
    fn a_dead_source_does_not_look_fresh_after_the_clock_was_set_back() {
        let dir = std::env::temp_dir().join(format!("skopos-top-{}", std::process::id()));
        let publisher = skopos_shm::Publisher::builder("stepped").dir(&dir).create();
        let publisher = publisher.expect("a segment");
        let mut writer = publisher.writer::<u64>("n01/a/b").expect("room");
        writer.publish(1).expect("registered");
        step(&publisher);
        let host = Host::open_dirs(vec![dir.clone()]).expect("readable");
        let reader = Reader::new(host, AgentClient::new(Some(dir.clone())));
        let age = reader.data().facts[0].age;
        drop((writer, publisher));
        let _ = std::fs::remove_dir(&dir);
        assert!(age >= Duration::from_secs(10), "{age:?}");
    }
}
