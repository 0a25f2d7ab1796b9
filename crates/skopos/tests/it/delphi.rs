//! `skopos delphi` and `skopos get --now`.

use std::path::{Path, PathBuf};

use crate::json::check;
use crate::support::{Running, eventually, run, runtime_dir};

fn recorded() -> PathBuf {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/traces/sar");
    traces.join("zram-write_bytes_total.csv")
}

#[test]
fn training_gives_the_weights_in_the_program_and_another_seed_others() {
    let dir = runtime_dir();
    let file = dir.path().join("weights.bin");
    let file = file.to_str().expect("UTF-8");
    let ran = run(dir.path(), &["delphi", "train", "--out", file, "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    check("delphi", &ran.json());
    assert_eq!(ran.json()["built_in"], true);
    let first = std::fs::read(file).expect("written");
    let again = run(dir.path(), &["delphi", "train", "--out", file]);
    assert!(again.stdout.contains("equal those"), "{again:?}");
    assert_eq!(std::fs::read(file).expect("written"), first);
    let other = run(dir.path(), &["delphi", "train", "--seed", "7", "--json"]).json();
    assert_eq!((other["built_in"].as_bool(), other["seed"].as_u64()), (Some(false), Some(7)));
    let nowhere = run(dir.path(), &["delphi", "train", "--out", "/proc/no/weights"]);
    assert_eq!(nowhere.code, 2, "{nowhere:?}");
}

#[test]
fn a_trace_is_scored_and_another_file_is_refused_with_its_line() {
    let dir = runtime_dir();
    let recorded = recorded();
    let trace = recorded.to_str().expect("UTF-8");
    let ran = run(dir.path(), &["delphi", "score", "--trace", trace, "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    check("delphi", &ran.json());
    assert_eq!(ran.json()["unit"], "bytes");
    let shown = run(dir.path(), &["delphi", "score", "--trace", trace]);
    for part in ["last value", "linear", "within the bound", "KiB"] {
        assert!(shown.stdout.contains(part), "no `{part}` in {shown:?}");
    }
    let file = dir.path().join("bad.csv");
    let bad = file.to_str().expect("UTF-8");
    for (text, code, part) in [
        ("time_seconds,value\n0,1\n1,x\n", 2, "line 3"),
        ("", 2, "the header `time_seconds,value` is missing"),
        ("time_seconds,value\n0,1\n1,2\n", 1, "needs six"),
    ] {
        std::fs::write(&file, text).expect("written");
        let ran = run(dir.path(), &["delphi", "score", "--trace", bad]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.stderr.contains(part), "no `{part}` in {ran:?}");
    }
    assert_eq!(run(dir.path(), &["delphi", "score"]).code, 2);
}

#[test]
fn the_present_is_predicted_beside_what_was_measured() {
    let agent = Running::start(&[]);
    let now = |topic: &str| {
        let ran = agent.run(&["get", topic, "--now", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        check("get", &ran.json());
        ran.json()["readings"][0].clone()
    };
    // The counter is polled ten times a second, and a bound needs a dozen samples.
    let topic = "self/sensor/load/polls_total";
    eventually("a bound", || now(topic)["now"]["bound"].is_number());
    let reading = now(topic);
    assert_eq!(reading["origin"], "measured");
    let said = &reading["now"];
    assert_eq!(said["origin"], "predicted");
    assert!(said["value"].as_f64() >= reading["value"].as_f64(), "{reading:#}");
    assert!(said["time_ns"].as_i64() >= reading["checked_at_ns"].as_i64(), "{reading:#}");
    let total = now("mem/total_bytes");
    assert_eq!(total["now"]["value"].as_f64(), total["value"].as_f64(), "the value never changes");

    assert_eq!(agent.run(&["publish", "app/list", "[1]"]).code, 0);
    assert!(now("app/list")["now"]["reason"].is_string());
    let shown = agent.run(&["get", topic, "--now"]);
    assert!(shown.stdout.contains("predicted ±"), "{shown:?}");
    let plain = agent.run(&["get", topic, "--now", "--plain"]);
    assert_eq!(plain.stdout.trim().split('\t').count(), 7, "{plain:?}");
    let scored = agent.run(&["delphi", "score", topic, "--json"]);
    assert_eq!(scored.code, 0, "{scored:?}");
    check("delphi", &scored.json());
    let nothing = agent.run(&["delphi", "score", "no/such/topic"]);
    assert_eq!(nothing.code, 1, "{nothing:?}");
}
