//! Configuration files that follow the documentation.

use std::path::Path;

use serde_json::Value as Json;

use crate::support::{Ran, Running, eventually, run, runtime_dir};

/// The documents whose TOML blocks are complete configurations.
const DOCUMENTS: [&str; 9] = [
    "reference/configuration.md",
    "reference/anomalies.md",
    "howto/let-nodes-see-each-other.md",
    "howto/write-an-insight.md",
    "howto/find-anomalies.md",
    "howto/predict-a-value.md",
    "howto/connect-prometheus.md",
    "howto/connect-slurm.md",
    "howto/rank-replicas.md",
];

/// The documents whose SQL blocks are statements for an agent.
const STATEMENTS: [&str; 2] = ["howto/write-an-insight.md", "reference/sql-insights.md"];

fn document(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(docs.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns the blocks of a document in `language`.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    let parts = text.split(&start).skip(1);
    parts.map(|part| part.split("```").next().expect("one at least").to_owned()).collect()
}

/// Runs an agent with this configuration until it exits, and returns its output.
fn agent(config: &str, tiers: &str, typed: &[&str]) -> Ran {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("tiers.toml"), tiers).expect("writable");
    let path = dir.path().join("skopos.toml");
    std::fs::write(&path, config).expect("writable");
    let path = path.to_str().expect("UTF-8");
    let usual = ["agent", "--json", "--for", "100ms", "--config", path];
    let at = runtime_dir();
    run(at.path(), &[&usual, typed].concat())
}

/// Returns the sensors that a started agent lists.
fn sensors(ran: &Ran) -> Vec<Json> {
    let lines = ran.stdout.lines().map(|line| serde_json::from_str::<Json>(line).expect(line));
    let started = lines.into_iter().find(|line| line["event"] == "started");
    let started = started.unwrap_or_else(|| panic!("it starts: {ran:?}"));
    started["status"]["sensors"].as_array().expect("a list").clone()
}

fn policy_of(ran: &Ran, family: &str) -> String {
    let sensors = sensors(ran);
    let sensor = sensors.iter().find(|sensor| sensor["name"] == family).expect("it is there");
    sensor["policy"].as_str().expect("a name").to_owned()
}

#[test]
fn an_agent_starts_from_every_configuration_that_the_documentation_shows() {
    let tiers = blocks(&document("reference/tiers.md"), "toml");
    let [tiers] = &tiers[..] else { panic!("docs/reference/tiers.md shows one file of tiers") };
    for name in DOCUMENTS {
        let shown = blocks(&document(name), "toml");
        assert!(!shown.is_empty(), "docs/{name} shows no configuration");
        for text in shown {
            // Local addresses replace the others: no test sends anything beyond this machine.
            let text = text.replace("10.0.0.", "127.0.0.").replace("\"0.0.0.0:", "\"127.0.0.1:");
            let ran = agent(&text, tiers, &[]);
            assert_eq!(ran.code, 0, "docs/{name}:\n{text}\n{ran:?}");
            assert!(!sensors(&ran).is_empty(), "docs/{name}");
        }
    }
    let ran = agent("tiers = \"tiers.toml\"", tiers, &[]);
    assert_eq!(ran.code, 0, "docs/reference/tiers.md: {ran:?}");
}

#[test]
fn an_agent_computes_every_statement_that_the_pages_on_insights_show() {
    for name in STATEMENTS {
        let mut shown = blocks(&document(name), "sql");
        // A block that shows the syntax is not a statement.
        shown.retain(|sql| !sql.contains("expression"));
        assert!(shown.len() >= 3, "docs/{name} shows {}", shown.len());
        for sql in shown {
            let text = format!(
                "[[insight]]\nname = \"shown\"\nwhere = \"agent\"\nsql = \"\"\"{sql}\"\"\"\n"
            );
            let ran = agent(&text, "", &[]);
            assert_eq!(ran.code, 0, "docs/{name}:\n{text}\n{ran:?}");
        }
    }
}

#[test]
fn an_option_overrides_the_default_table_and_not_the_table_of_a_sensor() {
    let text = "[sensors.default]\npolicy = \"aimd\"\nmax_seconds = 10\n\
                [sensors.load]\npolicy = \"aimd-window\"\n\
                [sensors.mem]\nmin_seconds = 5\n";
    let untyped = agent(text, "", &[]);
    let typed = agent(text, "", &["--policy", "fixed"]);
    for (family, by_file, by_hand) in [
        ("vmstat", "aimd", "fixed"),
        ("load", "aimd-window", "aimd-window"),
        ("mem", "aimd", "fixed"),
    ] {
        assert_eq!(policy_of(&untyped, family), by_file, "{family}");
        assert_eq!(policy_of(&typed, family), by_hand, "{family}");
    }
    let mem = sensors(&untyped).into_iter().find(|sensor| sensor["name"] == "mem");
    let interval = mem.expect("there")["interval_seconds"].as_f64().expect("a number");
    assert!(interval >= 5.0, "{interval}");
}

#[test]
fn an_impossible_setting_is_refused_with_a_hint() {
    let mistyped = agent("[sensors.blok]\nmin_seconds = 5\n", "", &[]);
    assert_eq!(mistyped.code, 2, "{mistyped:?}");
    assert!(mistyped.stderr.contains("did you mean `block`?"), "{mistyped:?}");
    let too_much = agent("", "", &["--budget", "100000000%"]);
    assert_eq!(too_much.code, 2, "{too_much:?}");
    assert!(too_much.stderr.contains("more than all cores have"), "{too_much:?}");
    assert!(too_much.stderr.contains("hint: 100% is one core"), "{too_much:?}");
}

#[test]
fn a_refused_setting_names_its_file() {
    let sql = |name: &str| {
        format!(
            "[[insight]]\nname = \"{name}\"\nsql = \"SELECT count(*) FROM latest WHERE topic LIKE \
             '%'\"\n"
        )
    };
    for (text, said) in [
        ("[sensors.mem]\nmin_seconds = 9\nmax_seconds = 3\n".to_owned(), "[sensors.mem]"),
        ("[[insight]]\nname = \"a\"\nsql = \"SELECT\"\n".to_owned(), "insight `a`"),
        (sql("a") + &sql("b"), "hint: leave insights out of it: `AND topic NOT LIKE"),
        (
            "[[anomaly]]\nname = \"a\"\ntopic = \"**\"\ndetector = \"none\"\n".to_owned(),
            "[[anomaly]]",
        ),
    ] {
        let ran = agent(&text, "", &[]);
        assert_eq!(ran.code, 2, "{text}: {ran:?}");
        assert!(ran.stderr.contains("skopos.toml: "), "{text}: {ran:?}");
        assert!(ran.stderr.contains(said), "{text}: {ran:?}");
    }
}

#[test]
fn a_budget_that_cannot_be_kept_says_by_how_much() {
    let agent = Running::start(&["--interval", "100ms", "--budget", "0.0001%"]);
    let exceeded = || {
        let shown = agent.run(&["get", "self/budget_exceeded_ratio", "--json"]).json();
        shown["readings"][0]["value"].as_f64()
    };
    eventually("the budget is exceeded", || exceeded() > Some(0.0));
    let enough = Running::start(&[]);
    let shown = enough.run(&["get", "self/budget_exceeded_ratio", "--json"]).json();
    assert_eq!(shown["readings"][0]["value"].as_f64(), Some(0.0));
}

#[test]
fn an_anomaly_rule_may_leave_the_node_out_and_one_without_a_topic_is_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("skopos.toml");
    let rule = |name: &str, topic: &str| {
        format!(
            "[[anomaly]]\nname = \"{name}\"\ntopic = \"{topic}\"\ndetector = \"threshold\"\nabove = 1\n"
        )
    };
    std::fs::write(&path, rule("high", "app/v") + &rule("never", "no/such")).expect("writable");
    let agent = Running::start(&["--config", path.to_str().expect("UTF-8")]);
    let value = |topic: &str| {
        let shown = agent.run(&["get", topic, "--json"]).json();
        shown["readings"][0]["value"].clone()
    };
    eventually("neither matches yet", || value("self/anomaly_rules_unmatched") == 2);
    assert_eq!(agent.run(&["publish", "app/v", "5"]).code, 0);
    eventually("the anomaly is found", || value("anomaly/high")["topic"] == "n01/app/v");
    eventually("one matches", || value("self/anomaly_rules_unmatched") == 1);
}
