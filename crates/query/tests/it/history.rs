//! Samples in memory, on disk and on other nodes: the engine shows each of them once.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use proptest::prelude::*;
use skopos_access::Caller;
use skopos_model::{Kind, Sample, Scalar, Timestamp, Topic, Unit, ValueType};
use skopos_query::{
    BoxError, Column, Described, Engine, Fingerprint, Limits, Node, Registry, RemoteAnswer,
    RemoteSamples, Row, Rows, SampleReader, Scan, Source, Table, TopicFilter, Wanted, When,
};
use skopos_store::history::{Error, Found, Part, Samples, Series};

use crate::world::rows;

/// Topics of three nodes.
const TOPICS: [&str; 5] = [
    "n1/mem/free_bytes",
    "n1/mem/total_bytes",
    "n2/cpu/total/busy_ratio",
    "n2/mem/free_bytes",
    "n3/a/b",
];

/// Samples in memory, on disk and on other nodes.
#[derive(Debug, Default)]
struct Places {
    /// Samples of each topic, oldest first.
    memory: Vec<(Topic, Vec<Sample>)>,
    parts: Vec<Arc<Part>>,
    /// A node and its answer.
    answers: Option<(String, Arc<Part>)>,
    /// Nodes that do not answer.
    silent: Vec<String>,
    /// Requests to nodes.
    asked: Mutex<Vec<Wanted>>,
}

fn sample((time, value): &(i64, f64)) -> Sample {
    Sample::measured(Timestamp::from_nanos(*time), Scalar::F64(*value))
}

fn part(all: &[(usize, Vec<(i64, f64)>)]) -> Arc<Part> {
    let series = |(topic, samples): &(usize, Vec<(i64, f64)>)| {
        let mut column = Samples::default();
        samples.iter().for_each(|s| column.push(&sample(s)));
        let topic = Topic::new(TOPICS[*topic]).expect("a topic");
        let (unit, kind, since) = (Unit::NONE, Kind::Gauge, Timestamp::default());
        (Series { topic, unit, kind, value_type: ValueType::F64, since }, column)
    };
    Arc::new(Part::of_samples(all.iter().map(series).collect()))
}

impl Places {
    fn each(&self, wanted: &Wanted, visit: &mut dyn FnMut(Described<'_>, &[Sample])) {
        for (topic, samples) in &self.memory {
            if wanted.selects(topic.as_str()) {
                let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::F64);
                visit(Described { topic, unit, kind, value_type, publisher: "" }, samples);
            }
        }
    }
}

impl Source for Places {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(1_000_000)
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        self.each(wanted, &mut |of, samples| {
            if let Some(sample) = samples.last() {
                visit(&Row { of, sample, checked_at: sample.time, ahead: 0, age: None });
            }
        });
    }

    fn samples(
        &self,
        wanted: &Wanted,
        times: RangeInclusive<Timestamp>,
        visit: &mut dyn FnMut(&Row<'_>),
    ) {
        self.each(wanted, &mut |of, samples| {
            for sample in samples.iter().filter(|sample| times.contains(&sample.time)) {
                visit(&Row { of, sample, checked_at: sample.time, ahead: 0, age: None });
            }
        });
    }

    fn history(&self, _times: &RangeInclusive<Timestamp>) -> Result<Found, Error> {
        Ok(Found { parts: self.parts.clone(), damaged: Vec::new() })
    }

    fn has_history(&self) -> bool {
        !self.parts.is_empty()
    }

    fn remote_samples(&self, wanted: &Wanted, _: &When, _: Instant) -> Option<RemoteAnswer> {
        self.asked.lock().expect("a lock").push(wanted.clone());
        let mut elsewhere =
            RemoteSamples { missing: self.silent.clone(), ..RemoteSamples::default() };
        if let Some((node, part)) = &self.answers {
            elsewhere.answered = BTreeSet::from([node.clone()]);
            elsewhere.parts.push(part.clone());
        }
        Some(Box::pin(std::future::ready(elsewhere)))
    }

    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>)) {
        self.each(wanted, &mut |of, _| visit(&of));
    }

    fn nodes(&self) -> Vec<Node> {
        let node = |name: &str| Node {
            name: name.to_owned(),
            alive: true,
            topics: 1,
            seen_at: Timestamp::default(),
            lost_batches: 0,
            malformed_batches: 0,
            clock_offset: None,
        };
        ["n1", "n2"].map(node).to_vec()
    }
}

fn ask(places: Places, sql: &str) -> (Vec<String>, Vec<String>) {
    ask_of(&Arc::new(places), sql)
}

fn ask_of(places: &Arc<Places>, sql: &str) -> (Vec<String>, Vec<String>) {
    let topic = Topic::new(TOPICS[4]).expect("a topic");
    let mut registry = Registry::new(places.clone());
    registry.alias("old", topic).expect("an alias");
    let engine = Engine::new(registry).expect("an engine");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    let answer =
        runtime.expect("a runtime").block_on(engine.query(&Caller::Owner, sql, &Limits::default()));
    let answer = answer.unwrap_or_else(|e| panic!("{sql}: {e}"));
    (rows(&answer).1, answer.missing)
}

/// All samples of a topic, with times that rise.
type Story = Vec<(i64, f64)>;

/// Makes for a topic: its samples, the number of them on disk, the number of parts, and the first one in
/// memory, which is not later than the end of the disk.
fn story() -> impl Strategy<Value = (Story, usize, usize, usize)> {
    let steps = prop::collection::vec((1..40i64, -5..5i32), 0..60);
    (steps, any::<prop::sample::Index>(), 1..4usize, any::<prop::sample::Index>()).prop_map(
        |(steps, on_disk, parts, in_memory)| {
            let mut time = 0;
            let story: Story = steps
                .into_iter()
                .map(|(step, value)| {
                    time += step;
                    (time, f64::from(value))
                })
                .collect();
            let on_disk = on_disk.index(story.len() + 1);
            let in_memory = in_memory.index(on_disk + 1);
            (story, on_disk, parts, in_memory)
        },
    )
}

fn places(stories: &[(Story, usize, usize, usize)]) -> Places {
    let mut places = Places::default();
    for number in 0..4 {
        let of_this = stories.iter().enumerate().map(|(topic, (story, on_disk, parts, _))| {
            let disk = &story[..*on_disk];
            let size = disk.len().div_ceil(*parts).max(1);
            (topic, disk.chunks(size).nth(number).unwrap_or_default().to_vec())
        });
        places.parts.push(part(&of_this.collect::<Vec<_>>()));
    }
    for (topic, (story, _, _, in_memory)) in stories.iter().enumerate() {
        let samples = story[*in_memory..].iter().map(sample).collect();
        places.memory.push((Topic::new(TOPICS[topic]).expect("a topic"), samples));
    }
    places
}

fn sorted(mut all: Vec<String>) -> Vec<String> {
    all.sort();
    all
}

fn shown(topic: &str, (time, value): (i64, f64)) -> String {
    format!("{topic} | {time} | {value:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_sample_is_shown_once(
        stories in prop::collection::vec(story(), TOPICS.len()),
        (from, long, at) in (0..800i64, 0..800i64, 0..1200i64),
    ) {
        let select = "SELECT topic, CAST(time AS BIGINT) AS t, value FROM";
        let all = |wanted: &dyn Fn(&str, i64) -> bool| -> Vec<String> {
            let each = stories.iter().zip(TOPICS).flat_map(|((story, ..), topic)| {
                story.iter().filter(move |s| wanted(topic, s.0)).map(move |s| shown(topic, *s))
            });
            sorted(each.collect())
        };
        let to = from + long;
        for (condition, expected) in [
            ("true".to_owned(), all(&|_, _| true)),
            (
                format!("time BETWEEN to_timestamp_nanos({from}) AND to_timestamp_nanos({to})"),
                all(&|_, time| (from..=to).contains(&time)),
            ),
            ("node = 'n2' AND metric LIKE 'free%'".to_owned(), all(&|t, _| t == TOPICS[3])),
            (
                format!("topic LIKE 'n_/mem/%' AND time > to_timestamp_nanos({from})"),
                all(&|topic, time| topic.contains("/mem/") && time > from),
            ),
            (
                format!("topic IN ('{}', 'n9/a/b') OR family = 'cpu'", TOPICS[4]),
                all(&|topic, _| topic == TOPICS[4] || topic == TOPICS[2]),
            ),
        ] {
            let sql = format!("{select} samples WHERE {condition} ORDER BY topic, t");
            prop_assert_eq!(sorted(ask(places(&stories), &sql).0), expected, "{}", sql);
        }
        let count = ask(places(&stories), "SELECT count(*) FROM samples").0;
        prop_assert_eq!(count, [all(&|_, _| true).len().to_string()]);

        let sql = format!("{select} latest_at('1970-01-01T00:00:00.{at:09}Z') ORDER BY topic");
        let last = |(story, ..): &(Story, usize, usize, usize), topic| {
            story.iter().rfind(|s| s.0 <= at).map(|s| shown(topic, *s))
        };
        let expected: Vec<String> =
            stories.iter().zip(TOPICS).filter_map(|(story, topic)| last(story, topic)).collect();
        prop_assert_eq!(sorted(ask(places(&stories), &sql).0), sorted(expected), "{}", sql);
    }
}

#[test]
fn answers_of_nodes_count_and_silent_nodes_are_named() {
    let memory = |topic: usize, times: &[i64]| {
        let samples = times.iter().map(|time| sample(&(*time, 1.0))).collect();
        (Topic::new(TOPICS[topic]).expect("a topic"), samples)
    };
    let places = || Places {
        memory: vec![memory(0, &[50]), memory(3, &[2, 50])],
        parts: vec![part(&[(0, vec![(10, 0.5)]), (3, vec![(10, 0.5)])])],
        // It sends samples that are in memory here as well, and one that is on its disk alone.
        answers: Some(("n2".to_owned(), part(&[(3, vec![(5, 0.25), (10, 0.5), (50, 1.0)])]))),
        silent: vec!["n7".to_owned()],
        ..Places::default()
    };
    let (rows, missing) =
        ask(places(), "SELECT node, CAST(time AS BIGINT) AS t FROM samples ORDER BY node, t");
    assert_eq!(rows, ["n1 | 10", "n1 | 50", "n2 | 10", "n2 | 2", "n2 | 5", "n2 | 50"]);
    assert_eq!(missing, ["n7"]);
    let (rows, missing) = ask(
        places(),
        "SELECT node, CAST(time AS BIGINT) FROM latest_at('1970-01-01T00:00:00.000000020Z') ORDER BY node",
    );
    assert_eq!(
        (rows, missing),
        (vec!["n1 | 10".to_owned(), "n2 | 10".to_owned()], vec!["n7".to_owned()])
    );
    assert!(ask(places(), "SELECT 1 FROM latest").1.is_empty());
}

#[test]
fn a_topic_on_disk_alone_is_a_table_and_has_a_latest_tuple() {
    let places =
        Places { parts: vec![part(&[(4, vec![(10, 0.5), (20, 0.75)])])], ..Places::default() };
    let places = Arc::new(places);
    for table in ["\"n3/a/b\"", "n3_a_b", "old"] {
        let all = ask_of(&places, &format!("SELECT metric FROM {table} ORDER BY timestamp")).0;
        assert_eq!(all, ["0.5", "0.75"], "{table}");
        let latest = ask_of(&places, &format!("SELECT MAX(timestamp), metric FROM {table}")).0;
        assert_eq!(latest, ["1970-01-01T00:00:00.000000020Z | 0.75"], "{table}");
    }
    // A topic that only its own node has is a table, too.
    let elsewhere = Places {
        answers: Some(("n3".to_owned(), part(&[(4, vec![(30, 1.5)])]))),
        ..Places::default()
    };
    let latest = ask(elsewhere, "SELECT MAX(timestamp), metric FROM old").0;
    assert_eq!(latest, ["1970-01-01T00:00:00.000000030Z | 1.5"]);
}

/// Several streams aggregate runs, and pass on more groups than they hold.
#[test]
fn groups_of_several_parts_are_the_same_by_run_and_by_row() {
    let story = |from: i64, count: i64| (from..from + count).map(|n| (n * 1000, (n % 64) as f64));
    let one = |topic: usize, from, count| part(&[(topic, story(from, count).collect())]);
    let parts = vec![one(0, 0, 70_000), one(0, 70_000, 500), one(1, 0, 900), one(2, 30, 70_000)];
    let places = Arc::new(Places { parts, ..Places::default() });
    for by in ["node", "topic, time_bucket('1ms', time)", "time"] {
        let all = "count(*), sum(value), min(value), max(time), last(value, time)";
        let by_run = format!("SELECT {by}, {all} FROM samples GROUP BY {by}");
        let plan = ask_of(&places, &format!("EXPLAIN {by_run}")).0.join("\n");
        assert!(plan.contains("RunsAggregateExec: mode=Partial"), "{plan}");
        // One more key, which is always the same, of a column that does not come in runs.
        let by_row = format!("{by_run}, abs(value) < -1");
        let [one, other] = [&by_run, &by_row].map(|sql| sorted(ask_of(&places, sql).0));
        assert!(one.len() > 1 && one == other, "{by}: {} and {} rows", one.len(), other.len());
    }
}

/// A table that is made of the samples below one segment.
#[derive(Debug)]
struct Events {
    columns: Vec<Column>,
    samples: SampleReader,
}

impl Table for Events {
    fn name(&self) -> &str {
        "events"
    }

    fn help(&self) -> &str {
        "Samples below `event`"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let always = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
        let times = scan.times("time").cloned().unwrap_or(always);
        let topics = scan.nodes().map_or_else(TopicFilter::all, TopicFilter::of_nodes);
        let read =
            self.samples.read(&["node", "time", "value"], topics.below("event"), times, scan)?;
        let scan = scan.clone();
        Ok(read.map(move |batch| scan.select(batch.columns())))
    }

    fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        Fingerprint::Samples(scan.topics().clone().below("event"))
    }
}

#[test]
fn a_table_of_samples_reads_memory_disk_and_other_nodes() {
    let of_samples = |topic: &str, all: &[(i64, f64)]| {
        let mut column = Samples::default();
        all.iter().for_each(|s| column.push(&sample(s)));
        let topic = Topic::new(topic).expect("a topic");
        let (unit, kind, since) = (Unit::NONE, Kind::Gauge, Timestamp::default());
        let series = Series { topic, unit, kind, value_type: ValueType::F64, since };
        Arc::new(Part::of_samples(vec![(series, column)]))
    };
    let memory = [(30, 3.0), (40, 4.0)].iter().map(sample).collect();
    let places = Arc::new(Places {
        memory: vec![(Topic::new("n1/event/low").expect("a topic"), memory)],
        // Samples below another segment are left out.
        parts: vec![
            of_samples("n1/event/low", &[(10, 1.0), (20, 2.0), (30, 3.0)]),
            part(&[(0, vec![(15, 2.0)])]),
        ],
        answers: Some(("n2".to_owned(), of_samples("n2/event/high", &[(25, 2.5)]))),
        silent: vec!["n7".to_owned()],
        ..Places::default()
    });
    let columns = vec![
        Column::text("node", "Node"),
        Column::time("time", "Time"),
        Column::number("value", Unit::NONE, "Value"),
    ];
    let samples = SampleReader::new(places.clone());
    let mut registry = Registry::new(places.clone());
    registry.register(Events { columns, samples }).expect("registered");
    let engine = Engine::new(registry).expect("an engine");
    let ask = |sql: &str| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
        let answer = runtime.expect("a runtime").block_on(engine.query(
            &Caller::Owner,
            sql,
            &Limits::default(),
        ));
        let answer = answer.unwrap_or_else(|e| panic!("{sql}: {e}"));
        (rows(&answer).1, answer.missing)
    };
    let select = "SELECT node, CAST(time AS BIGINT) AS t, value FROM events";
    let (rows, missing) = ask(select);
    let expected = ["n1 | 10 | 1.0", "n1 | 20 | 2.0", "n1 | 30 | 3.0", "n1 | 40 | 4.0"];
    assert_eq!(rows, [&expected[..], &["n2 | 25 | 2.5"]].concat());
    assert_eq!(missing, ["n7"]);
    let since = format!("{select} WHERE time > to_timestamp_nanos(20) AND node = 'n1'");
    assert_eq!(ask(&since).0, ["n1 | 30 | 3.0", "n1 | 40 | 4.0"]);
    // Other nodes are asked for the samples below the segment alone.
    let asked = std::mem::take(&mut *places.asked.lock().expect("a lock"));
    let starting =
        |starts: &[&str]| Wanted::Starting(starts.iter().map(|s| (*s).to_owned()).collect());
    assert_eq!(asked, [starting(&["n1/event/", "n2/event/"]), starting(&["n1/event/"])]);
}
