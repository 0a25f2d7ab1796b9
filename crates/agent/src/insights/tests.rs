//! Tests of insights without an agent: ownership of topics, and bounds.

use std::collections::BTreeSet;

use skopos_shm::{Publisher, Segment};

use super::predictions::MAX_PREDICTED;
use super::*;
use crate::control::{Answer, MAX_ANSWER_BYTES};
use crate::foreign::Foreign;

struct Fixture {
    insights: Insights,
    publisher: Publisher,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let publisher = Publisher::builder("test").dir(dir.path()).create().expect("a segment");
        let config: Config = toml::from_str(config).expect("a configuration");
        let insights = Insights::new(&"n01".into(), &config, &publisher);
        let insights = insights.unwrap_or_else(|e| panic!("{}", e.message()));
        Self { insights, publisher, _dir: dir }
    }

    fn follow(&mut self, topic: &str) -> Option<TrackedFact> {
        self.insights.follow(topic_of(topic), Unit::NONE, Kind::Gauge, &self.publisher)
    }
}

fn topic_of(text: &str) -> Topic {
    text.parse().expect("a topic")
}

/// Returns the length of the encoded answer.
fn length(answer: &Answer) -> usize {
    serde_json::to_string(answer).expect("JSON").len()
}

#[test]
fn a_users_fact_at_the_topic_of_a_built_in_insight_stays_when_the_insight_goes() {
    let mut all = Fixture::new("");
    let taken = "n01/insight/data/fs_performance";
    let own = all.follow(taken).expect("room");
    for round in 0..3 {
        let mount = all.follow("n01/fsinfo/data/type").expect("room");
        let refused: Vec<&str> = all.insights.refused.iter().map(|r| r.topic.as_str()).collect();
        assert_eq!(refused, [taken], "round {round}");
        all.insights.unfollow(mount, &all.publisher);
        assert!(all.insights.refused.is_empty(), "round {round}: it is forgotten");
        let there = all.insights.graph.find(taken);
        assert_eq!(there, Some(own.vertex), "round {round}: it is the user's");
    }
    all.insights.unfollow(own, &all.publisher);
    let mount = all.follow("n01/fsinfo/data/type").expect("room");
    assert!(all.insights.graph.find(taken).is_some(), "now it has its place");
    all.insights.unfollow(mount, &all.publisher);
    assert!(all.insights.graph.find(taken).is_none(), "and leaves it");
}

#[test]
fn a_fact_that_the_graph_refuses_is_counted_and_not_predicted() {
    let mut all = Fixture::new("[prediction]\ntopics = [\"**\"]");
    let fact = all.follow("n01/a/b").expect("room");
    for refused in 1..4 {
        assert!(all.follow("n01/a/b").is_none());
        assert_eq!(all.insights.counts().facts_refused, refused);
        assert_eq!(all.insights.counts().predictions_refused, 0);
    }
    assert!(fact.predicted.is_some());
}

#[test]
fn topics_without_room_for_predictions_are_counted() {
    let mut all = Fixture::new("[prediction]\ntopics = [\"a/*\", \"b/taken\"]");
    let taken = VertexSpec::new(topic_of("n01/predicted/b/taken"), ValueType::F64);
    all.publisher.register(taken).expect("room");
    assert!(all.follow("n01/b/taken").expect("room").predicted.is_none());
    assert_eq!(all.insights.counts().predictions_refused, 1, "no place in the segment");
    assert!(all.follow("n01/c/other").expect("room").predicted.is_none());
    assert_eq!(all.insights.counts().predictions_refused, 1, "no pattern matches");
    for index in 0..MAX_PREDICTED + 2 {
        let fact = all.follow(&format!("n01/a/{index}")).expect("room");
        assert_eq!(fact.predicted.is_some(), index < MAX_PREDICTED, "{index}");
    }
    assert_eq!(all.insights.counts().predictions_refused, 3);
}

#[test]
fn all_findings_come_page_by_page() {
    let mut all = Fixture::new(
        r#"
        [[anomaly]]
        name = "deep"
        topic = "n01/queue/*/depth"
        detector = "threshold"
        above = 100
        [[anomaly]]
        name = "very-deep"
        topic = "n01/queue/*/depth"
        detector = "threshold"
        above = 150
        "#,
    );
    const QUEUES: usize = 1750;
    for index in 0..QUEUES {
        let fact = all.follow(&format!("n01/queue/{index}/depth")).expect("room");
        all.insights.set(&fact, Timestamp::from_nanos(1), &Value::U64(200));
    }
    let (mut seen, mut after, mut pages) = (BTreeSet::new(), None, 0);
    loop {
        let answer = all.insights.raised(after.as_ref());
        assert!(length(&answer) < MAX_ANSWER_BYTES);
        let Answer::Findings { findings, total, more } = answer else { panic!("{answer:?}") };
        assert_eq!(total, 2 * QUEUES);
        pages += 1;
        for finding in &findings {
            let text = |name: &str| finding[name].as_str().expect("a text").to_owned();
            let key = (text("topic"), text("rule"));
            assert!(seen.insert(key.clone()), "{key:?} twice");
            after = Some(key);
        }
        if !more {
            break;
        }
    }
    assert_eq!(seen.len(), 2 * QUEUES);
    assert!(pages > 1);
}

#[test]
fn an_unknown_device_of_the_tiers_file_is_reported() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = "[[device]]\nname = \"nosuch\"\nreplication = 2\n[[device]]\nname = \"vda\"\n\
                replication = 2\n";
    std::fs::write(file.path(), text).expect("writable");
    let mut all = Fixture::new(&format!("tiers = {:?}", file.path()));
    let reported = |all: &Fixture| match all.insights.definitions() {
        Answer::Definitions { refused, refused_total, .. } => {
            assert_eq!(refused.len(), refused_total);
            refused.iter().map(|r| r.topic.clone()).collect::<Vec<_>>()
        }
        answer => panic!("{answer:?}"),
    };
    assert!(reported(&all).is_empty(), "no device is known yet");
    let changes = all.insights.built_in.fact(&topic_of("n01/device/vda/kind"), Some("virtio"));
    all.insights.apply(changes, &all.publisher);
    assert_eq!(reported(&all), ["[[device]] name = \"nosuch\""]);
}

#[test]
fn insights_without_room_are_listed_up_to_a_bound_and_counted() {
    let mut all = Fixture::new("");
    let name = |index: usize| format!("{index}{}", "y".repeat(60));
    for index in 0..100 {
        let _taken = all.follow(&format!("n01/insight/{}/fs_performance", name(index)));
        all.follow(&format!("n01/fsinfo/{}/type", name(index))).expect("room");
    }
    let answer = all.insights.definitions();
    assert!(length(&answer) < MAX_ANSWER_BYTES);
    let Answer::Definitions { definitions, refused, refused_total } = answer else {
        panic!("{answer:?}")
    };
    let of_it = definitions.iter().find(|d| d.name == "fs_performance").expect("it is built in");
    assert_eq!((of_it.vertices, of_it.refused), (0, 100));
    assert_eq!(of_it.why_none.as_deref(), Some(&*refused[0].reason));
    assert_eq!((refused.len(), refused_total), (64, 100));
}

#[test]
fn a_dead_source_does_not_look_fresh_in_the_graph_after_the_clock_was_set_back() {
    let mut all = Fixture::new("");
    let dead = all.follow("n01/a/dead").expect("room");
    let (now, hour) = (skopos_shm::now(), Duration::from_secs(3600));
    // The last poll was ten seconds ago, by a clock that was an hour ahead then.
    let polled_at = now.saturating_add(hour).saturating_sub(Duration::from_secs(10));
    all.insights.set(&dead, polled_at, &Value::F64(1.0));
    all.insights.clock_set_back(hour);
    let page = all.insights.page(&"n01/a/*".parse().expect("a pattern"), false, None, now);
    let Answer::Vertices { vertices, .. } = page else { panic!("vertices") };
    let age = now.since(Timestamp::from_nanos(vertices[0].checked_at_ns));
    assert_eq!(age, Duration::from_secs(10));
}

/// After the clock was set back, the samples of a program have one time until the clock has caught up.
#[test]
fn values_of_another_program_reach_insights_while_their_times_stand_still() {
    let mut all = Fixture::new("");
    let dir = tempfile::tempdir().expect("a directory");
    let other = Publisher::builder("other").dir(dir.path()).create().expect("a segment");
    let mut writer = other.writer::<f64>("n01/a/load").expect("room");
    let mut foreign = Foreign::new(dir.path());
    let mut look = |all: &mut Fixture| {
        foreign.look(&mut all.insights, &all.publisher, Duration::ZERO);
        let pattern = "n01/a/*".parse().expect("a pattern");
        let page = all.insights.page(&pattern, false, None, skopos_shm::now());
        let Answer::Vertices { vertices, .. } = page else { panic!("vertices") };
        (vertices[0].value.clone(), Timestamp::from_nanos(vertices[0].checked_at_ns))
    };
    let hour = Duration::from_secs(3600);
    writer.publish_at(skopos_shm::now().saturating_add(hour), 1.0).expect("registered");
    let (first, _) = look(&mut all);
    for value in [2.0, 3.0] {
        writer.publish(value).expect("registered");
        let (found, polled_at) = look(&mut all);
        assert_ne!(found, first);
        assert_eq!(found.as_f64(), Some(value));
        assert!(polled_at <= skopos_shm::now(), "{polled_at:?} has not come yet");
    }
}

/// An insight is as old as its oldest input, which may stay the same while others change.
#[test]
fn the_values_of_an_insight_have_different_times_and_its_age_is_that_of_its_oldest_input() {
    let mut all = Fixture::new(
        "[[insight]]\nname = \"sum\"\nsql = \"SELECT sum(value) FROM latest WHERE topic LIKE 'n01/a/%'\"\n",
    );
    let at = |ms: i64| Timestamp::from_nanos(ms.saturating_mul(1_000_000));
    let [slow, quick] = ["n01/a/slow", "n01/a/quick"].map(|t| all.follow(t).expect("room"));
    let mut counts = Counts::default();
    let mut run = |all: &mut Fixture, fact: &TrackedFact, time, value| {
        all.insights.set(fact, at(time), &Value::F64(value));
        let now = Clock { wall: at(10_000), monotonic: Duration::ZERO };
        all.insights.run(&all.publisher, now, &mut counts);
    };
    run(&mut all, &slow, 1_000, 100.0);
    for step in 1..=5 {
        run(&mut all, &quick, 1_000 * step, step as f64);
    }
    let segment = Segment::open(all.publisher.path()).expect("a segment");
    let insight = segment.find(&topic_of("n01/insight/sum")).expect("it is there");
    let kept = |from| {
        let range = insight.range(at(from)..=at(i64::MAX)).expect("it is there");
        let sample =
            |s: Sample| (s.time.as_nanos() / 1_000_000, s.value.as_f64().expect("a number"));
        range.samples.into_iter().map(sample).collect::<Vec<_>>()
    };
    assert_eq!(
        kept(0),
        [
            (1_000, 100.0),
            (1_001, 101.0),
            (1_002, 102.0),
            (1_003, 103.0),
            (1_004, 104.0),
            (1_005, 105.0)
        ]
    );
    let checked_at = || insight.latest().expect("it has values").checked_at;
    assert_eq!(checked_at(), at(1_005), "the time of its oldest input, plus milliseconds");
    run(&mut all, &slow, 6_000, 100.0);
    assert_eq!(checked_at(), at(5_000), "the other input is the oldest now");
    // A new input may be older than the published `checked_at`.
    let older = all.follow("n01/a/older").expect("room");
    run(&mut all, &older, 2_000, 7.0);
    run(&mut all, &quick, 7_000, 6.0);
    assert_eq!(kept(1_006), [(5_000, 112.0), (5_001, 113.0)]);
}
