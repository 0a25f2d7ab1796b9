//! Insights without an agent around them: who owns what, and what there is no room for.

use std::collections::BTreeSet;

use skopos_shm::Publisher;

use super::predictions::MAX_PREDICTED;
use super::*;
use crate::control::{Answer, MAX_ANSWER_BYTES};

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

    fn follow(&mut self, topic: &str) -> Option<Followed> {
        self.insights.follow(topic_of(topic), Unit::NONE, Kind::Gauge, &self.publisher)
    }
}

fn topic_of(text: &str) -> Topic {
    text.parse().expect("a topic")
}

/// The answer, and its length as it is sent.
fn length(answer: &Answer) -> usize {
    serde_json::to_string(answer).expect("JSON").len()
}

#[test]
fn what_a_user_has_at_the_topic_of_a_built_in_insight_stays_when_that_one_goes() {
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
fn a_fact_that_the_graph_refuses_is_counted_and_nobody_looks_at_it() {
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
fn what_there_is_no_room_to_predict_is_counted() {
    let mut all = Fixture::new("[prediction]\ntopics = [\"a/*\", \"b/taken\"]");
    let taken = VertexSpec::new(topic_of("n01/predicted/b/taken"), ValueType::F64);
    all.publisher.register(taken).expect("room");
    assert!(all.follow("n01/b/taken").expect("room").predicted.is_none());
    assert_eq!(all.insights.counts().predictions_refused, 1, "no place in the segment");
    assert!(all.follow("n01/c/other").expect("room").predicted.is_none());
    assert_eq!(all.insights.counts().predictions_refused, 1, "nobody wants that one predicted");
    for index in 0..MAX_PREDICTED + 2 {
        let fact = all.follow(&format!("n01/a/{index}")).expect("room");
        assert_eq!(fact.predicted.is_some(), index < MAX_PREDICTED, "{index}");
    }
    assert_eq!(all.insights.counts().predictions_refused, 3);
}

#[test]
fn findings_come_page_by_page_and_none_is_lost() {
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
fn a_device_of_the_tiers_file_that_there_is_not_is_told() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = "[[device]]\nname = \"nosuch\"\nreplication = 2\n[[device]]\nname = \"vda\"\n\
                replication = 2\n";
    std::fs::write(file.path(), text).expect("writable");
    let mut all = Fixture::new(&format!("tiers = {:?}", file.path()));
    let told = |all: &Fixture| match all.insights.definitions() {
        Answer::Definitions { refused, refused_total, .. } => {
            assert_eq!(refused.len(), refused_total);
            refused.iter().map(|r| r.topic.clone()).collect::<Vec<_>>()
        }
        answer => panic!("{answer:?}"),
    };
    assert!(told(&all).is_empty(), "no device is known yet");
    let changes = all.insights.built_in.fact(&topic_of("n01/device/vda/kind"), Some("virtio"));
    all.insights.apply(changes, &all.publisher);
    assert_eq!(told(&all), ["[[device]] name = \"nosuch\""]);
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
