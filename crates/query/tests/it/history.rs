//! Memory, disk and other nodes as one: each sample is shown once, wherever it is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use proptest::prelude::*;
use skopos_model::{Kind, Sample, Scalar, Structured, Timestamp, Topic, Unit, Value, ValueType};
use skopos_query::{
    Asked, Described, Elsewhere, Engine, Limits, Node, Row, Source, Wanted, When, kept,
};
use skopos_store::history::{Error, Part, Samples, Series};

use crate::world::rows;

/// Topics of three nodes.
const TOPICS: [&str; 5] = [
    "n1/mem/free_bytes",
    "n1/mem/total_bytes",
    "n2/cpu/total/busy_ratio",
    "n2/mem/free_bytes",
    "n3/a/b",
];

/// Where samples are.
#[derive(Debug, Default)]
struct Places {
    /// By topic, oldest first.
    memory: Vec<(Topic, Vec<Sample>)>,
    parts: Vec<Arc<Part>>,
    /// What a node answers, and who does not.
    answers: Option<(String, Arc<Part>)>,
    silent: Vec<String>,
    /// What nodes were asked for.
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
    Arc::new(Part::of_samples(all.iter().map(series).collect()).expect("a part"))
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
                visit(&Row { of, sample, checked_at: sample.time, ahead: 0 });
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
                visit(&Row { of, sample, checked_at: sample.time, ahead: 0 });
            }
        });
    }

    fn history(&self, _times: &RangeInclusive<Timestamp>) -> Result<Vec<Arc<Part>>, Error> {
        Ok(self.parts.clone())
    }

    fn has_history(&self) -> bool {
        !self.parts.is_empty()
    }

    fn elsewhere(&self, wanted: &Wanted, _: &When, _: Instant) -> Option<Asked> {
        self.asked.lock().expect("a lock").push(wanted.clone());
        let mut elsewhere = Elsewhere { missing: self.silent.clone(), ..Elsewhere::default() };
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
    let engine = Engine::new(places.clone(), BTreeMap::from([("old".to_owned(), topic)]));
    let engine = engine.expect("an engine");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    let answer = runtime.expect("a runtime").block_on(engine.query(sql, &Limits::default()));
    let answer = answer.unwrap_or_else(|e| panic!("{sql}: {e}"));
    (rows(&answer).1, answer.missing)
}

/// All samples of a topic, with times that rise.
type Story = Vec<(i64, f64)>;

/// Of a topic: its samples, how many of them are on disk, in how many parts, and from which on they are
/// in memory: never later than where the disk ends.
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

        let source: Arc<dyn Source> = Arc::new(places(&stories));
        let (mut count, during) = (0, Timestamp::from_nanos(from)..=Timestamp::from_nanos(to));
        let starts = Wanted::Starting(vec!["n1/".to_owned()]);
        kept(&source, &starts, &When::During(during), &mut |_, _, run| {
            count += run.rows;
            true
        })
        .expect("kept");
        let expected = all(&|topic, time| topic.starts_with("n1/") && (from..=to).contains(&time));
        prop_assert_eq!(count, expected.len());
    }
}

#[test]
fn who_answers_is_believed_and_who_does_not_is_named() {
    let memory = |topic: usize, times: &[i64]| {
        let samples = times.iter().map(|time| sample(&(*time, 1.0))).collect();
        (Topic::new(TOPICS[topic]).expect("a topic"), samples)
    };
    let places = || Places {
        memory: vec![memory(0, &[50]), memory(3, &[2, 50])],
        parts: vec![part(&[(0, vec![(10, 0.5)]), (3, vec![(10, 0.5)])])],
        // It has what is in memory here as well, but for what it has no room for any more.
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
fn what_only_the_disk_has_is_a_table_and_has_a_latest_tuple() {
    let places =
        Places { parts: vec![part(&[(4, vec![(10, 0.5), (20, 0.75)])])], ..Places::default() };
    let places = Arc::new(places);
    for table in ["\"n3/a/b\"", "n3_a_b", "old"] {
        let all = ask_of(&places, &format!("SELECT metric FROM {table} ORDER BY timestamp")).0;
        assert_eq!(all, ["0.5", "0.75"], "{table}");
        let latest = ask_of(&places, &format!("SELECT MAX(timestamp), metric FROM {table}")).0;
        assert_eq!(latest, ["1970-01-01T00:00:00.000000020Z | 0.75"], "{table}");
    }
    // Nor is one that only its own node has nothing.
    let elsewhere = Places {
        answers: Some(("n3".to_owned(), part(&[(4, vec![(30, 1.5)])]))),
        ..Places::default()
    };
    let latest = ask(elsewhere, "SELECT MAX(timestamp), metric FROM old").0;
    assert_eq!(latest, ["1970-01-01T00:00:00.000000030Z | 1.5"]);
}

/// An event of a rule at a time, as a detector tells it.
/// Several streams group what is in runs, and hand on more groups than they keep.
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
        // A group more that is always the same, of a column that does not come in runs.
        let by_row = format!("{by_run}, abs(value) < -1");
        let [one, other] = [&by_run, &by_row].map(|sql| sorted(ask_of(&places, sql).0));
        assert!(one.len() > 1 && one == other, "{by}: {} and {} rows", one.len(), other.len());
    }
}

fn event(rule: &str, time: i64) -> Sample {
    let event = serde_json::json!({"rule": rule, "topic": "n1/mem/free_bytes", "came": 1.5});
    let event = Structured::new(event).expect("an event");
    Sample::measured(Timestamp::from_nanos(time), Value::Structured(event))
}

fn events(node: &str, all: &[Sample]) -> (Series, Samples) {
    let mut samples = Samples::default();
    all.iter().for_each(|sample| samples.push(sample));
    let topic = Topic::new(&format!("{node}/anomaly/low")).expect("a topic");
    let (unit, kind, value_type) = (Unit::NONE, Kind::State, ValueType::Structured);
    (Series { topic, unit, kind, value_type, since: Timestamp::default() }, samples)
}

#[test]
fn events_are_found_where_samples_are() {
    let of_samples = |all| Arc::new(Part::of_samples(all).expect("a part"));
    let disk = events("n1", &[event("low", 10), event("low", 20), event("low", 30)]);
    let memory = Topic::new("n1/anomaly/low").expect("a topic");
    let places = Arc::new(Places {
        memory: vec![(memory, vec![event("low", 30), event("low", 40)])],
        // What is no event is not taken for one.
        parts: vec![of_samples(vec![disk]), part(&[(0, vec![(15, 2.0)])])],
        answers: Some(("n2".to_owned(), of_samples(vec![events("n2", &[event("high", 25)])]))),
        silent: vec!["n7".to_owned()],
        ..Places::default()
    });
    let select = "SELECT node, CAST(time AS BIGINT) AS t, rule, topic, came FROM anomalies";
    let (rows, missing) = ask_of(&places, select);
    let shown = |node: &str, time: i64, rule: &str| {
        format!("{node} | {time} | {rule} | n1/mem/free_bytes | 1.5")
    };
    let mut expected: Vec<String> = [10, 20, 30, 40].map(|t| shown("n1", t, "low")).to_vec();
    expected.push(shown("n2", 25, "high"));
    assert_eq!((rows, missing), (expected, vec!["n7".to_owned()]));
    let since =
        "WHERE time > to_timestamp_nanos(20) AND topic = 'n1/mem/free_bytes' AND node = 'n1'";
    let (rows, _) = ask_of(&places, &format!("{select} {since}"));
    assert_eq!(rows, [shown("n1", 30, "low"), shown("n1", 40, "low")]);
    assert_eq!(ask_of(&places, "SELECT count(*) FROM anomalies").0, ["5"]);
    // Nodes are not asked for all that they ever measured.
    let asked = std::mem::take(&mut *places.asked.lock().expect("a lock"));
    let starting =
        |starts: &[&str]| Wanted::Starting(starts.iter().map(|s| (*s).to_owned()).collect());
    let of_both = starting(&["n1/anomaly/", "n2/anomaly/"]);
    assert_eq!(asked, [of_both.clone(), starting(&["n1/anomaly/"]), of_both]);
}
