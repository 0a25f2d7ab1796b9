//! Every `--json` output against its committed schema.

use std::path::Path;

use jsonschema::{Registry, Validator};
use serde_json::Value as Json;

use crate::support::{Running, listeners, run, runtime_dir};

fn schema(name: &str) -> Json {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/json/{name}.schema.json"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_str(&text).expect("JSON")
}

/// Panics unless `document` matches the schema `name`.
pub(crate) fn check(name: &str, document: &Json) {
    let registry = Registry::new()
        .add("reading.schema.json", schema("reading"))
        .and_then(|r| r.add("vertex.schema.json", schema("vertex")))
        .and_then(|r| r.add("run-explain.schema.json", schema("run-explain")))
        .and_then(|r| r.prepare())
        .expect("a registry");
    let validator: Validator = jsonschema::options()
        .with_registry(&registry)
        .build(&schema(name))
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let errors: Vec<String> =
        validator.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}\n{document:#}");
}

#[test]
fn every_json_output_is_as_its_schema_says() {
    let agent = Running::start(&[]);
    assert_eq!(agent.run(&["publish", "app/list", "[1, {\"a\": null}]"]).code, 0);
    check("ls", &agent.run(&["ls", "--json"]).json());
    check("get", &agent.run(&["get", "**", "--json"]).json());
    check("get", &agent.run(&["get", "app/list", "--max-age", "0s", "--json"]).json());
    check("publish", &agent.run(&["publish", "app/a", "1", "--json"]).json());
    check("publish", &agent.run(&["publish", "app/a", "--remove", "--json"]).json());
    check("doctor", &agent.run(&["doctor", "--json"]).json());
    let traces = runtime_dir();
    let out = traces.path().display().to_string();
    let args = ["record", "mem/total_bytes", "--for", "300ms", "--out", &out, "--json"];
    check("record", &agent.run(&args).json());
    check("insight_ls", &agent.run(&["insight", "ls", "--json"]).json());
    check("insight_show", &agent.run(&["insight", "show", "node/*", "--json"]).json());
    check("insight_explain", &agent.run(&["insight", "explain", "node/*", "--json"]).json());
    check("graph", &agent.run(&["graph", "--json"]).json());
    let watched = agent.run(&["watch", "self/**", "--count", "20", "--json"]);
    assert_eq!(watched.stdout.lines().count(), 20);
    for line in watched.stdout.lines() {
        check("watch", &serde_json::from_str(line).expect("JSON"));
    }
}

#[test]
fn without_an_agent_too() {
    let dir = runtime_dir();
    check("doctor", &run(dir.path(), &["doctor", "--json"]).json());
    for verb in ["up", "agent"] {
        let closed = if verb == "up" { listeners(&[]) } else { Vec::new() };
        let ran = run(dir.path(), &[&[verb, "--for", "200ms", "--json"][..], &closed[..]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stdout.lines().count() >= 1);
        for line in ran.stdout.lines() {
            check("agent", &serde_json::from_str(line).expect("JSON"));
        }
    }
}

#[test]
fn a_schema_refuses_what_is_wrong() {
    let wrong = serde_json::json!({ "topic": "Upper/Case", "removed": "yes" });
    let caught = std::panic::catch_unwind(|| check("publish", &wrong));
    assert!(caught.is_err(), "the schema accepts anything");
}
