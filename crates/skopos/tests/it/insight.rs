//! Insights, findings and predictions of a running agent, as its users see them.

use std::path::PathBuf;

use serde_json::Value as Json;
use skopos_model::{Origin, Sample, ValueType};
use skopos_shm::{Publisher, VertexSpec};

use crate::support::{Ran, Running, eventually, run, runtime_dir};

/// A configuration in a directory of its own.
struct Configured {
    dir: tempfile::TempDir,
}

impl Configured {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("skopos.toml"), text).expect("writable");
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("skopos.toml")
    }

    fn agent(&self) -> Running {
        Running::start(&["--config", self.path().to_str().expect("UTF-8")])
    }

    /// Runs an agent that refuses this configuration, and returns its output.
    fn refused(&self) -> Ran {
        let dir = runtime_dir();
        let path = self.path();
        let config = path.to_str().expect("UTF-8");
        run(dir.path(), &["agent", "--for", "100ms", "--config", config])
    }
}

/// Returns the reading of one topic, or `None` if the topic has no reading.
fn reading(agent: &Running, topic: &str) -> Option<Json> {
    agent.run(&["get", topic, "--json"]).json()["readings"].get(0).cloned()
}

fn value(agent: &Running, topic: &str) -> Option<f64> {
    reading(agent, topic)?["value"].as_f64()
}

#[test]
fn a_pattern_that_no_insight_matches_is_an_error() {
    let agent = Running::start(&[]);
    let ran = agent.run(&["insight", "ls", "blok*"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
    assert!(ran.stderr.contains("no insight matches `blok*`"), "{ran:?}");
}

#[test]
fn all_insights_are_shown_each_with_a_value_or_a_reason() {
    let agent = Running::start(&[]);
    let shown = agent.run(&["insight", "ls", "--json"]).json();
    let definitions = shown["definitions"].as_array().expect("a list");
    let insights = shown["insights"].as_array().expect("a list");
    let rows: std::collections::BTreeSet<u64> =
        definitions.iter().filter_map(|d| d["row"].as_u64()).collect();
    assert_eq!(rows, (1..=19).collect());
    for definition in definitions {
        let name = definition["name"].as_str().expect("a name");
        let of_it: Vec<_> = insights
            .iter()
            .filter(|v| v["topic"].as_str().expect("a topic").ends_with(name))
            .collect();
        assert_eq!(of_it.is_empty(), definition["why_none"].is_string(), "{definition}");
        for vertex in of_it {
            assert_ne!(vertex["value"].is_null(), vertex["unknown"].is_null(), "{vertex}");
        }
    }
    // Every machine has this insight.
    let capacity = insights.iter().find(|v| v["name"] == "tier remaining capacity");
    let capacity = capacity.or_else(|| {
        insights
            .iter()
            .find(|v| v["topic"].as_str().is_some_and(|t| t.contains("/memory/tier_remaining")))
    });
    assert!(capacity.expect("a tier of memory")["value"].as_f64().is_some_and(|bytes| bytes > 1e6));
    let people = agent.run(&["insight", "ls"]);
    assert!(people.stdout.contains("unknown: "), "{people:?}");
}

#[test]
fn explain_leads_back_to_facts_and_where_they_come_from() {
    let agent = Running::start(&[]);
    let explained = agent.run(&["insight", "explain", "memory/tier_remaining_capacity_bytes"]);
    assert_eq!(explained.code, 0, "{explained:?}");
    for part in ["  = ", "n01/mem/available_bytes", "from /proc/meminfo"] {
        assert!(explained.stdout.contains(part), "{part}: {explained:?}");
    }
    let wrong = agent.run(&["insight", "show", "interferense_factor_ratio"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(wrong.stderr.contains("did you mean"), "{wrong:?}");
    let absent = agent.run(&["insight", "show", "network_health"]);
    assert_eq!(absent.code, 1, "{absent:?}");
    assert!(absent.stderr.contains("hint: its formula: "), "{absent:?}");
    let dot = agent.run(&["graph", "--dot"]);
    assert!(dot.stdout.starts_with("digraph skopos {"), "{dot:?}");
    let edge =
        "\"n01/mem/available_bytes\" -> \"n01/insight/memory/tier_remaining_capacity_bytes\"";
    assert!(dot.stdout.contains(edge), "{dot:?}");
    let text = agent.run(&["graph", "memory/*"]);
    assert!(text.stdout.contains("<- n01/mem/available_bytes"), "{text:?}");
}

#[test]
fn sql_of_the_configuration_runs_when_an_input_changes() {
    let configured = Configured::new(
        r#"
        [[insight]]
        name = "queues"
        sql = "SELECT sum(value) FROM latest WHERE topic LIKE '%/my-app/%/depth'"
        [[insight]]
        name = "share"
        sql = "SELECT sum(value) / count(*) FROM latest WHERE topic LIKE '%/my-app/%/none'"
        "#,
    );
    let agent = configured.agent();
    let reason = |topic| reading(&agent, topic).map(|r| r["origin"].clone());
    assert_eq!(reason("insight/queues"), Some("unknown".into()), "no such topics yet");
    for (topic, depth, sum) in [("my-app/a/depth", "3", 3.0), ("my-app/b/depth", "4", 7.0)] {
        assert_eq!(agent.run(&["publish", topic, depth]).code, 0);
        assert_eq!(value(&agent, "insight/queues"), Some(sum), "the topic joins by itself at once");
    }
    assert_eq!(agent.run(&["publish", "my-app/a/depth", "10"]).code, 0);
    assert_eq!(value(&agent, "insight/queues"), Some(14.0));
    assert_eq!(agent.run(&["publish", "my-app/b/depth", "--remove"]).code, 0);
    assert_eq!(value(&agent, "insight/queues"), Some(10.0), "the topic leaves");
    let shown = agent.run(&["insight", "show", "insight/share"]);
    assert!(shown.stdout.contains("unknown: "), "{shown:?}");
}

#[test]
fn a_fact_of_another_process_is_an_input_too() {
    let configured = Configured::new(
        r#"
        [[insight]]
        name = "depth"
        sql = "SELECT max(value) FROM latest WHERE topic = 'n01/service/queue/depth'"
        "#,
    );
    let agent = configured.agent();
    let publisher = Publisher::builder("service").dir(agent.path()).create().expect("a segment");
    let topic: skopos_model::Topic = "n01/service/queue/depth".parse().expect("a topic");
    let depth = publisher.register(VertexSpec::new(topic, ValueType::U64)).expect("room");
    depth.publish(42u64).expect("registered");
    eventually("the insight has the value", || value(&agent, "insight/depth") == Some(42.0));
    drop(publisher);
    eventually("the insight loses the value", || {
        reading(&agent, "insight/depth").is_some_and(|r| r["origin"] == "unknown")
    });
}

#[test]
fn a_fact_that_its_process_no_longer_knows_is_unknown_and_not_predicted() {
    let configured = Configured::new(
        r#"
        [[insight]]
        name = "depth"
        sql = "SELECT max(value) FROM latest WHERE topic = 'n01/service/queue/depth'"
        [prediction]
        topics = ["insight/depth", "service/queue/depth"]
        every = "50ms"
        "#,
    );
    let agent = configured.agent();
    let publisher = Publisher::builder("service").dir(agent.path()).create().expect("a segment");
    let topic: skopos_model::Topic = "n01/service/queue/depth".parse().expect("a topic");
    let depth = publisher.register(VertexSpec::new(topic, ValueType::U64)).expect("room");
    let predicted = ["predicted/insight/depth", "predicted/service/queue/depth"];
    let all_are = |origin: &str| {
        let is = |topic: &&str| reading(&agent, topic).is_some_and(|r| r["origin"] == origin);
        predicted.iter().all(is)
    };
    let mut length = 40u64;
    eventually("both topics are predicted", || {
        length += 1;
        depth.publish(length).expect("registered");
        all_are("predicted")
    });
    let unknown = Sample::unknown(skopos_shm::now(), ValueType::U64, "");
    depth.publish_sample(&unknown).expect("registered");
    eventually("the insight is unknown", || {
        reading(&agent, "insight/depth").is_some_and(|r| r["origin"] == "unknown")
    });
    let why = agent.run(&["insight", "show", "insight/depth"]);
    assert!(why.stdout.contains("unknown: "), "{why:?}");
    assert!(!why.stdout.contains(" old"), "the age of an input is not a reason: {why:?}");
    eventually("nothing is predicted", || all_are("unknown"));
    depth.publish(7u64).expect("registered");
    eventually("the insight is known again", || value(&agent, "insight/depth") == Some(7.0));
}

#[test]
fn an_anomaly_carries_what_was_expected_and_what_came() {
    let configured = Configured::new(
        r#"
        [[anomaly]]
        name = "deep"
        topic = "*/my-app/depth"
        detector = "threshold"
        above = 100
        clear = 50
        "#,
    );
    let agent = configured.agent();
    for (depth, state) in
        [("10", None), ("200", Some("raised")), ("70", Some("raised")), ("20", Some("cleared"))]
    {
        assert_eq!(agent.run(&["publish", "my-app/depth", depth]).code, 0);
        let event = reading(&agent, "anomaly/deep").map(|r| r["value"].clone());
        assert_eq!(event.as_ref().and_then(|e| e["state"].as_str()), state, "{depth}: {event:?}");
        if depth == "200" {
            let event = event.expect("raised");
            assert_eq!(
                (event["came"].as_f64(), event["expected"]["high"].as_f64()),
                (Some(200.0), Some(100.0))
            );
            assert_eq!(event["topic"], "n01/my-app/depth");
        }
    }
}

#[test]
fn predictions_are_marked_as_such_and_bounded() {
    let configured = Configured::new(
        r#"
        [prediction]
        topics = ["self/requests_total", "mem/available_bytes"]
        every = "50ms"
        "#,
    );
    let agent = configured.agent();
    eventually("a prediction with a bound", || {
        reading(&agent, "predicted/mem/available_bytes")
            .is_some_and(|r| r["origin"] == "predicted" && r["bound"].is_number())
    });
    let measured = value(&agent, "mem/available_bytes").expect("measured");
    let predicted = value(&agent, "predicted/mem/available_bytes").expect("predicted");
    assert!((predicted / measured - 1.0).abs() < 0.5, "{predicted} for {measured}");
}

#[test]
fn an_unknown_value_is_null_with_its_reason_and_never_looks_fresh() {
    let dir = runtime_dir();
    let publisher = Publisher::builder("s").dir(dir.path()).create().expect("a segment");
    let topic = |text: &str| text.parse::<skopos_model::Topic>().expect("a topic");
    let spec = |text, value_type| VertexSpec::new(topic(text), value_type);
    for (text, value_type) in
        [("n01/a/number", ValueType::U64), ("n01/a/list", ValueType::Structured)]
    {
        let writer = publisher.register(spec(text, value_type)).expect("room");
        let unknown = Sample::unknown(skopos_shm::now(), value_type, "no smartctl");
        assert_eq!(unknown.origin, Origin::Unknown);
        writer.publish_sample(&unknown).expect("registered");
    }
    let shown = run(dir.path(), &["get", "a/*", "--json"]).json();
    for reading in shown["readings"].as_array().expect("a list") {
        assert_eq!((&reading["value"], &reading["origin"]), (&Json::Null, &"unknown".into()));
    }
    assert_eq!(shown["readings"][0]["reason"], "no smartctl");
    let people = run(dir.path(), &["get", "a/list"]);
    assert!(people.stdout.contains("unknown: no smartctl"), "{people:?}");
}

#[test]
fn a_configuration_that_cannot_be_is_refused_where_it_is_wrong() {
    for (text, parts) in [
        ("[agent]\nbudgte = 1", &["line 2", "budgte", "hint:"][..]),
        (
            "[[insight]]\nname = \"a\"\nwhere = \"agent\"\nsql = \"SELECT * FROM latest GROUP BY topic\"",
            &["insight `a`", "hint:"],
        ),
        (
            "[[insight]]\nname = \"a\"\nwhere = \"agent\"\nevery = \"1s\"\nsql = \"SELECT sum(value) FROM latest\"",
            &["insight `a`", "`every`", "hint:"],
        ),
        ("[[insight]]\nname = \"a\"\nsql = \"SELECT sum(valeu) FROM latest\"", &["valeu", "value"]),
        (
            "[[insight]]\nname = \"vda/msca\"\nsql = \"SELECT sum(value) FROM latest\"",
            &["insight `vda/msca`: `msca` is a built-in insight", "hint: choose another name"],
        ),
        (
            "[[insight]]\nname = \"A B\"\nsql = \"SELECT sum(value) FROM latest\"",
            &["insight `A B`"],
        ),
        (
            "[[anomaly]]\nname = \"a\"\ntopic = \"**\"\ndetector = \"treshold\"",
            &["treshold", "threshold"],
        ),
        ("[sensors.fs]\npolicy = \"fixed\"\nfactor = 2", &["[sensors.fs]", "factor"]),
        ("tiers = \"none.toml\"", &["none.toml"]),
        ("[peers]\nnodes = { n02 = \"0.0.0.0:1\" }", &["[peers]", "n02"]),
    ] {
        let ran = Configured::new(text).refused();
        assert_eq!(ran.code, 2, "{text}: {ran:?}");
        for part in parts {
            assert!(ran.stderr.contains(part), "{text}: {part}: {}", ran.stderr);
        }
    }
}

#[test]
fn a_fact_without_followers_is_polled_rarely_and_a_followed_one_as_often_as_possible() {
    let agent = Running::start(&["--policy", "aimd", "--interval", "200ms"]);
    // The facts of this sensor do not change, so its interval grows.
    let interval = || value(&agent, "self/sensor/numa/interval_seconds").unwrap_or(0.0);
    eventually("the interval grows", || interval() > 1.0);
    let mut watching = crate::support::skopos(agent.path(), &["watch", "numa/**", "--for", "60s"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    eventually("the interval shrinks for a watch", || interval() < 0.5);
    watching.kill().expect("it runs");
    watching.wait().expect("it ends");
    eventually("the interval grows again", || interval() > 1.0);
}

#[test]
fn the_budget_is_kept_by_stretching_and_that_is_published() {
    let agent = Running::start(&["--interval", "20ms", "--budget", "2%"]);
    let number = |topic: &str| value(&agent, topic);
    eventually("an interval is stretched", || {
        let shown = agent.run(&["get", "self/sensor/*/stretch", "--json"]).json();
        let readings = shown["readings"].as_array().cloned().unwrap_or_default();
        readings.iter().any(|r| r["value"].as_f64() > Some(1.5))
    });
    eventually("the plan is within the budget", || number("self/planned_ratio") <= Some(0.021));
    assert_eq!(number("self/budget_ratio"), Some(0.02));
}
