//! `skopos calibrate` with small, short measurements: the tests check everything but the numbers.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value as Json;

use crate::json;
use crate::support::{Ran, Running, eventually, run, runtime_dir, signal, skopos};

const SHORT: [&str; 6] = ["--size", "8MiB", "--seconds", "0.1", "--runs", "2"];

fn calibrate(dir: &Path, target: &str, more: &[&str]) -> Ran {
    let args: Vec<&str> = ["calibrate", target].into_iter().chain(SHORT).collect();
    run(dir, &[&args[..], more].concat())
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("readable").next().is_none()
}

fn positive(report: &Json, measure: &str) {
    let measure = &report[measure];
    let number = |name: &str| measure[name].as_f64().expect("a number");
    assert!(number("min") > 0.0, "{measure}");
    assert!(number("min") <= number("median") && number("median") <= number("max"), "{measure}");
    assert_eq!(measure["runs"].as_array().map(Vec::len), Some(2), "{measure}");
}

/// Measures a folder, checks the answer and returns it.
fn measured(dir: &Path, folder: &Path) -> Json {
    let ran = calibrate(dir, folder.to_str().expect("UTF-8"), &["--yes", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    json::check("calibrate", &report);
    for measure in [
        "read_bytes_per_second",
        "write_bytes_per_second",
        "read_requests_per_second",
        "idle_read_latency_seconds",
    ] {
        positive(&report, measure);
    }
    assert_eq!(report["method"]["used_bytes"], 8 << 20);
    assert!(is_empty(folder), "no file is left");
    report
}

#[test]
fn a_file_system_in_memory_is_measured_and_not_stored() {
    let dir = runtime_dir();
    let shm = Path::new("/dev/shm");
    let Ok(folder) = tempfile::tempdir_in(shm) else {
        let _ = writeln!(std::io::stderr(), "skipped: no /dev/shm to write to");
        return;
    };
    let report = measured(dir.path(), folder.path());
    assert_eq!(report["file_system"], "tmpfs");
    assert_eq!((&report["disk"], &report["stored"]), (&Json::Null, &Json::Null));
    assert!(!dir.path().join("state").exists());
}

/// Runs only where temporary files are on a device, which they are not in most containers.
#[test]
fn a_calibration_is_stored_and_published_by_a_running_agent() {
    let agent = Running::start(&[]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = measured(agent.path(), folder.path());
    let Some(disk) = report["disk"]["name"].as_str() else {
        let kind = &report["file_system"];
        let _ = writeln!(std::io::stderr(), "skipped: no block device holds {folder:?}, a {kind}");
        return;
    };
    let stored = report["stored"].as_str().expect("a path");
    assert_eq!(Path::new(stored), agent.path().join("state/calibration.json"));
    let read = report["read_bytes_per_second"]["median"].as_f64().expect("a number");
    let topic = format!("device/{disk}/max_read_bytes_per_second");
    let other = format!("device/{disk}/size_bytes");
    eventually("the agent publishes it", || {
        // `--max-age` forces a poll: the sensor polls by itself only twice a minute.
        agent.run(&["get", &other, "--max-age", "100ms"]);
        let got = agent.run(&["get", &topic, "--json"]);
        let got: Json = serde_json::from_str(&got.stdout).unwrap_or_default();
        let published = got["readings"][0]["value"].as_f64();
        // A number that was printed and parsed may differ in its last digit.
        published.is_some_and(|published| (published / read - 1.0).abs() < 1e-12)
    });
}

#[test]
fn an_interrupted_measurement_leaves_nothing_behind() {
    let dir = runtime_dir();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8");
    let args = ["calibrate", path, "--yes", "--size", "8MiB", "--seconds", "600"];
    let mut command = skopos(dir.path(), &args);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.contains("run 1 of 3")), "it measures");
    assert!(is_empty(folder.path()), "the file has no name even while it is measured");
    signal(&child, "INT");
    assert!(!child.wait().expect("it ends").success());
    assert!(is_empty(folder.path()));
    assert!(!dir.path().join("state/calibration.json").exists());
}

#[test]
fn a_device_that_cannot_be_measured_is_refused_with_a_hint() {
    let dir = runtime_dir();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8");
    for (args, code, error) in [
        (&["calibrate", "no-such-device", "--yes"][..], 2, "neither a block device nor a folder"),
        (&["calibrate", path, "--yes", "--size", "1MiB"], 2, "from 8MiB"),
        (&["calibrate", path, "--yes", "--size", "much"], 2, "is not a size"),
        (&["calibrate", path, "--yes", "--seconds", "nan"], 2, "not a number of seconds"),
        (&["calibrate", path, "--yes", "--runs", "0"], 2, "--runs"),
        (&["calibrate", path, "--yes", "--size", "1TiB"], 2, "more than half"),
        (&["calibrate", "/proc", "--yes"], 2, "too little for a measurement"),
    ] {
        let ran = run(dir.path(), args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(error), "{args:?}: {ran:?}");
    }
    assert!(is_empty(folder.path()));
}

/// A busy device is refused as well, with exit code 1.
#[test]
fn a_device_is_not_measured_without_consent() {
    let dir = runtime_dir();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ran = calibrate(dir.path(), folder.path().to_str().expect("UTF-8"), &[]);
    assert!([1, 2].contains(&ran.code), "{ran:?}");
    assert!(ran.stderr.contains("--yes"), "{ran:?}");
    assert!(ran.stdout.is_empty(), "{ran:?}");
}

#[test]
fn a_damaged_file_of_results_is_refused_and_kept() {
    let dir = runtime_dir();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = dir.path().join("state");
    fs::create_dir(&state).expect("a new folder");
    fs::write(state.join("calibration.json"), "precious").expect("writable");
    let ran = calibrate(dir.path(), folder.path().to_str().expect("UTF-8"), &["--yes", "--json"]);
    if ran.code == 0 {
        assert_eq!(ran.json()["stored"], Json::Null, "only calibrations of a device are stored");
    } else {
        assert!(ran.stderr.contains("calibration.json cannot be stored"), "{ran:?}");
        let file = state.join("calibration.json");
        assert!(
            ran.stderr.contains(&format!("mv {} ", file.display())),
            "the file is named: {ran:?}"
        );
        assert!(!ran.stderr.contains("run 1"), "the remark comes before the measurement: {ran:?}");
    }
    let text = fs::read_to_string(state.join("calibration.json")).expect("still there");
    assert_eq!(text, "precious");
}

#[test]
fn a_damaged_file_of_results_is_why_an_insight_is_unknown() {
    let agent = Running::start(&[]);
    let state = agent.path().join("state");
    fs::create_dir_all(&state).expect("a new folder");
    fs::write(state.join("calibration.json"), "precious").expect("writable");
    let reasons = || -> Vec<String> {
        let shown =
            agent.run(&["insight", "ls", "*/insight/*/interference_factor_ratio", "--json"]);
        let shown: Json = serde_json::from_str(&shown.stdout).unwrap_or_default();
        let all = shown["insights"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|v| Some(v["unknown"].as_str()?.to_owned())).collect()
    };
    eventually("the sensor sees it", || agent.run(&["doctor"]).stdout.contains("calibration.json"));
    eventually("the agent publishes the true value", || {
        reasons().iter().all(|why| why.contains("calibration.json") && why.contains("move it away"))
    });
}
