//! Rules, as their users see them: configured, fired, listed, and tried on recorded samples.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::json::check;
use crate::support::{Running, eventually, listeners, run, runtime_dir};

/// Starts a node with its hub, and these rules.
fn start(rules: &str) -> (Running, PathBuf) {
    let dir = runtime_dir();
    let config = dir.path().join("skopos.toml");
    let rules = rules.replace("DIR", dir.path().to_str().expect("UTF-8"));
    std::fs::write(&config, rules).expect("written");
    let up = Running::start_in(dir, "up", &["--config", config.to_str().expect("UTF-8")]);
    (up, config)
}

const DEEP: &str = r#"
[[rule]]
name = "deep"
when = "SELECT topic, value FROM latest WHERE topic LIKE '%/app/depth' AND value > 10"
every = "100ms"
then = { command = ["/bin/sh", "-c", 'echo "$SKOPOS_EVENT $SKOPOS_SUBJECT $SKOPOS_VALUE_VALUE" >> DIR/told'] }

[[rule]]
name = "count"
when = "SELECT topic FROM latest WHERE topic LIKE '%/app/depth' AND value > 10"
every = "100ms"
then = { publish = "app/deep_queues" }

[[rule]]
name = "never"
when = "SELECT topic FROM latest WHERE topic LIKE '%/app/depth' AND value > 1000"
every = "1s"
then = { publish = "app/never" }

[[rule]]
name = "again"
when = "SELECT topic FROM latest WHERE topic LIKE '%/app/depth' AND value < 5"
repeat = "10ms"
at_most = 1000
dry_run = true
then = { publish = "app/shallow_queues" }

[[rule]]
name = "timed"
when = "SELECT topic FROM latest WHERE age > 1000"
then = { publish = "app/old" }
"#;

#[test]
fn a_rule_fires_and_resolves_and_its_past_can_be_tried() {
    let (up, config) = start(DEEP);
    let config = config.to_str().expect("UTF-8");
    let publish = |value: &str| assert_eq!(up.run(&["publish", "app/depth", value]).code, 0);
    let told = || std::fs::read_to_string(up.path().join("told")).unwrap_or_default();
    publish("3");
    publish("17");
    eventually("the action", || told() == "firing n01/app/depth 17.0\n");
    let count = || up.run(&["get", "default/app/deep_queues", "--json"]).stdout;
    eventually("the published number", || count().contains("\"value\":1"));
    let listed = up.run(&["rule", "list", "--json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let document = listed.json();
    check("sql", &document);
    let states = |name: &str| {
        let rows = document["rows"].as_array().expect("rows").iter();
        rows.clone().find(|row| row["rule"] == name).expect("the rule").clone()
    };
    assert_eq!(
        (&states("deep")["state"], &states("deep")["firing"]),
        (&json!("firing"), &json!(1))
    );
    assert_eq!(
        (&states("deep")["action"], &states("deep")["target"]),
        (&json!("command"), &json!("/bin/sh"))
    );
    publish("4");
    eventually("the end", || told().ends_with("resolved n01/app/depth 17.0\n"));
    eventually("the history", || {
        let rows = up.run(&["rule", "history", "deep", "--json"]).json();
        let events: Vec<Json> =
            rows["rows"].as_array().expect("rows").iter().map(|r| r["event"].clone()).collect();
        events == [json!("action"), json!("resolved"), json!("action"), json!("firing")]
    });

    // A rule that has not fired has an empty history, and a name that is not of a rule has a hint.
    let quiet = up.run(&["rule", "history", "never", "--json"]);
    assert_eq!((quiet.code, quiet.json()["rows"].clone()), (0, json!([])), "{quiet:?}");
    let unknown = up.run(&["rule", "history", "dep"]);
    assert!(unknown.code == 1 && unknown.stderr.contains("no rule `dep` has acted"), "{unknown:?}");
    assert!(unknown.stderr.contains("did you mean `deep`?"), "{unknown:?}");

    let tried = up.run(&[
        "rule", "test", "deep", "--config", config, "--since", "10m", "--every", "1s", "--json",
    ]);
    let document = tried.json();
    check("rule_test", &document);
    assert_eq!(tried.code, 0, "{document:#}");
    assert_eq!((&document["fired"], &document["firing"]), (&json!(1), &json!(0)), "{document:#}");
    assert_eq!(document["topics"], 1);
    let again = up.run(&[
        "rule", "test", "again", "--config", config, "--since", "10s", "--every", "10ms", "--json",
    ]);
    let document = again.json();
    let is_repeated = |e: &Json| e["event"] == "still_firing" && e["action"] == "due";
    let mut events = document["events"].as_array().expect("events").iter();
    assert!(events.any(is_repeated), "{document:#}");
    let never = up.run(&["rule", "test", "never", "--config", config]);
    assert!(never.code == 1 && never.stdout.contains("would not have fired"), "{never:?}");
    let timed = up.run(&["rule", "test", "timed", "--config", config]);
    assert!(timed.code == 2 && timed.stderr.contains("more than recorded samples"), "{timed:?}");
    let unknown = up.run(&["rule", "test", "dep", "--config", config]);
    assert!(unknown.code == 2 && unknown.stderr.contains("did you mean `deep`?"), "{unknown:?}");
}

#[test]
fn a_rule_without_a_hub_can_be_tried_and_not_listed() {
    let dir = runtime_dir();
    let listed = run(dir.path(), &["rule", "list"]);
    assert!(listed.code == 2 && listed.stderr.contains("no hub runs"), "{listed:?}");
}

#[test]
fn a_hub_warns_once_of_a_rule_that_fails() {
    let dir = runtime_dir();
    let config = dir.path().join("skopos.toml");
    let text = "[[rule]]\nname = 'typo'\nwhen = 'SELEC 1'\nevery = '100ms'\n";
    std::fs::write(&config, format!("{text}then = {{ publish = 'app/x' }}\n")).expect("written");
    let args = ["up", "--for", "1s", "--config", config.to_str().expect("UTF-8")];
    let ran = run(dir.path(), &[&args[..], &listeners(&[])[..]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let warnings = ran.stderr.matches("warning: the rule `typo` fails: line 1");
    assert_eq!(warnings.count(), 1, "{ran:?}");
}

#[test]
fn a_configuration_with_a_wrong_rule_is_refused_without_its_secrets() {
    let dir = runtime_dir();
    let config = dir.path().join("skopos.toml");
    let text = "[[rule]]\nname = \"a\"\nwhen = \"SELECT 1\"\nthen = { webhook = [\"https://hooks.example/s3cret\"] }\n";
    std::fs::write(&config, text).expect("written");
    let config = config.to_str().expect("UTF-8");
    let ran = run(dir.path(), &["up", "--http", "none", "--flight", "none", "--config", config]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(!ran.stderr.contains("s3cret") && ran.stderr.contains("line 4"), "{ran:?}");
}
