//! The rules of a configuration, and the errors of invalid rules.

use std::error::Error;
use std::time::Duration;

use skopos_model::{Kind, Topic};
use skopos_score::anomaly::{MAX_RULES, Rule, Watch};

use super::rules;

const MEMORY_LOW: &str = r#"
[[anomaly]]
name = "memory-low"
topic = "*/mem/available_bytes"
detector = "threshold"
below = 1e9
clear = 2e9
for = "10s"
"#;

#[test]
fn a_rule_is_read() {
    let [rule] = &rules(MEMORY_LOW)[..] else { panic!("one rule") };
    let expected = Rule {
        below: Some(1e9),
        clear: Some(2e9),
        hold: Some(Duration::from_secs(10)),
        ..Rule::new("memory-low", "*/mem/available_bytes", "threshold")
    };
    assert_eq!(rule, &expected);
    assert_eq!(rule.check(), Ok(()));
}

#[test]
fn durations_are_texts_or_seconds() {
    for (text, millis) in [("\"1500ms\"", 1500), ("3", 3000), ("0.25", 250), ("\"2m\"", 120_000)] {
        let toml = MEMORY_LOW.replace("\"10s\"", text);
        assert_eq!(rules(&toml)[0].hold, Some(Duration::from_millis(millis)), "{text}");
    }
}

/// Returns the error, and its cause if it has one, of a rule with these parameters.
fn refused(parameters: &str) -> String {
    let toml = format!("[[anomaly]]\nname = \"r\"\ntopic = \"**\"\n{parameters}");
    #[derive(Debug, serde::Deserialize)]
    struct File {
        anomaly: Vec<Rule>,
    }
    match toml::from_str::<File>(&toml) {
        Err(error) => error.to_string(),
        Ok(file) => {
            let error = Watch::new(&file.anomaly).map(drop).expect_err(parameters);
            let cause = error.source().map(|c| format!(": {c}")).unwrap_or_default();
            format!("{error}{cause}")
        }
    }
}

fn check(parameters: &str, expected: &str) {
    let message = refused(parameters);
    assert!(message.contains(expected), "{parameters}\ngives: {message}\nnot:   {expected}");
}

#[test]
fn an_invalid_rule_is_refused_with_the_reason() {
    check(
        "detector = \"zscore\"",
        "`zscore` is not a detector; a detector is `threshold`, `robust-z`, `change-point`, `extreme` or `envelope`",
    );
    check("detector = \"threshold\"", "either `above` or `below`; for a band write two rules");
    check("detector = \"threshold\"\nabove = 1\nbelow = 0", "either `above` or `below`");
    check(
        "detector = \"threshold\"\nbelow = 5\nclear = 4",
        "`clear = 4` lies on the unusual side of `below = 5`",
    );
    check("detector = \"threshold\"\nabove = 5\nclear = 6", "unusual side of `above = 5`");
    check(
        "detector = \"threshold\"\nabove = nan",
        "`above` is NaN, but it must be a finite number",
    );
    check(
        "detector = \"threshold\"\nabove = inf",
        "`above` is inf, but it must be a finite number",
    );
    check(
        "detector = \"threshold\"\nabove = 5\nwindow = 9",
        "`window` is not a parameter of `threshold`, which has `above`, `below`, `clear`, `for`",
    );
    check("detector = \"robust-z\"\nwindow = 15", "`window` is 15, but it must be from 16 to 256");
    check(
        "detector = \"robust-z\"\nthreshold = 0.5",
        "`threshold` is 0.5, but it must be from 1 to",
    );
    check("detector = \"robust-z\"\nclear = 6", "unusual side of `threshold = 5`");
    check("detector = \"robust-z\"\nside = \"low\"", "`side` is not a parameter of `robust-z`");
    check("detector = \"change-point\"\ndrift = 4", "`drift` is 4, but it must be from 0 to 3");
    check("detector = \"change-point\"\nmin_spread = -1", "`min_spread` is -1");
    check("detector = \"extreme\"\nside = \"up\"", "a side is `high`, `low` or `both`");
    check(
        "detector = \"extreme\"\nhorizon = \"10ms\"",
        "`horizon` is 0.01, but it must be from 1 to",
    );
    check(
        "detector = \"envelope\"\nwindow = 95",
        "`window` is 95, but it must be from 96 to 86400",
    );
    check("detector = \"envelope\"\npersist = 0", "`persist` is 0, but it must be from 1 to 60");
    check("detector = \"extreme\"\npersist = 2", "`persist` is not a parameter of `extreme`");
    check("detector = \"extreme\"\nevents_per_minute = 0", "must be from 1 to 60");
    check("detector = \"extreme\"\nwnidow = 0", "unknown field `wnidow`, expected one of `name`");
    check(
        "detector = \"threshold\"\nabove = 1\nfor = \"10 sec\"",
        "` sec` is not a unit of time; use ms, s",
    );
    check("detector = \"threshold\"\nabove = 1\nfor = -3", "-3 seconds is not a duration");
    check("detector = \"threshold\"\nabove = 1\nfor = true", "a duration such as \"10s\"");
}

#[test]
fn names_and_topics_are_checked() {
    let extreme = |name: &str, topic: &str| Rule::new(name, topic, "extreme");
    for name in ["", "a/b", "A", "a b", "*"] {
        let error = extreme(name, "**").check().expect_err(name).to_string();
        assert!(error.contains("is not a valid name of an anomaly rule"), "{error}");
    }
    let error = extreme("r", "a//b").check().expect_err("no pattern");
    assert_eq!(error.to_string(), "anomaly rule `r`: its topic is not a valid pattern");
    assert!(error.source().is_some_and(|cause| cause.to_string().contains("empty segment")));
    let twice = [extreme("r", "a"), extreme("r", "b")];
    let error = Watch::new(&twice).map(drop).expect_err("twice").to_string();
    assert!(error.contains("two anomaly rules have the name `r`"), "{error}");
    let many: Vec<Rule> = (0..=MAX_RULES).map(|i| extreme(&i.to_string(), "a")).collect();
    let error = Watch::new(&many).map(drop).expect_err("many").to_string();
    assert!(error.contains("257 anomaly rules, but at most 256 are allowed"), "{error}");
    assert!(Watch::new(&many[1..]).is_ok());
}

#[test]
fn each_vertex_that_matches_has_a_state_of_its_own_for_each_rule() {
    let toml = format!(
        "{MEMORY_LOW}\n[[anomaly]]\nname = \"any\"\ntopic = \"**\"\ndetector = \"threshold\"\nbelow = 0"
    );
    let mut watch = Watch::new(&rules(&toml)).expect("rules");
    let mut join = |text| watch.joined(&Topic::new(text).expect("a topic"), Kind::Gauge);
    let (first, second) = (join("a/mem/available_bytes"), join("b/mem/available_bytes"));
    let other = join("a/load/one");
    let (Some(first), Some(second), Some(other)) = (first, second, other) else {
        panic!("all match")
    };
    let mut events = Vec::new();
    for at in 1..30 {
        let at = skopos_model::Timestamp::from_nanos(at * 1_000_000_000);
        watch.observe(first, at, -1.0, &mut events);
        watch.observe(second, at, 5e9, &mut events);
        watch.observe(other, at, -1.0, &mut events);
    }
    let told: Vec<_> = events.iter().map(|e| (e.rule.as_str(), e.topic.as_str())).collect();
    let memory = "a/mem/available_bytes";
    assert_eq!(told, [("any", memory), ("any", "a/load/one"), ("memory-low", memory)]);
    let only = rules(MEMORY_LOW);
    let mut watch = Watch::new(&only).expect("rules");
    assert_eq!(watch.joined(&Topic::new("a/load/one").expect("a topic"), Kind::Gauge), None);
}

#[test]
fn a_rule_may_leave_out_the_node_and_an_unmatched_rule_is_reported() {
    let topic = |text: &str| Topic::new(text).expect("a topic");
    let rule =
        |name: &str, topic: &str| Rule { above: Some(1.0), ..Rule::new(name, topic, "threshold") };
    let rules = [rule("short", "app/v"), rule("full", "n01/app/w"), rule("any", "*/v")];
    let mut watch = Watch::of_node(&rules, "n01").expect("rules");
    let mut join = |text: &str| watch.joined(&topic(text), Kind::Gauge).is_some();
    assert!(!join("n02/app/v"), "another node's");
    assert!(!join("n01/other/v"), "`*` stands for the node");
    assert!(join("n01/app/v"));
    assert_eq!(watch.unmatched().collect::<Vec<_>>(), ["full", "any"]);
    assert!(watch.joined(&topic("n01/app/w"), Kind::Gauge).is_some());
    assert_eq!(watch.unmatched().collect::<Vec<_>>(), ["any"]);
    let mut alone = Watch::new(&rules).expect("rules");
    assert!(alone.joined(&topic("n01/app/v"), Kind::Gauge).is_none(), "it knows of no node");
}
