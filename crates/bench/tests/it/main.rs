//! The benchmarks as a user runs them: short runs, whose reports have the right shape.

mod ending;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value as Json;

/// Returns `skopos-bench`, after the programs that it measures were built beside it.
fn bench() -> PathBuf {
    let bench = PathBuf::from(env!("CARGO_BIN_EXE_skopos-bench"));
    if !bench.with_file_name("skopos").is_file() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "-p", "skopos"]);
        if bench.parent().is_some_and(|folder| folder.ends_with("release")) {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo starts").success(), "skopos is not built");
    }
    bench
}

/// Panics unless `document` matches the schema of reports.
fn check(document: &Json) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json/bench.schema.json");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let schema: Json = serde_json::from_str(&text).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> =
        validator.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{document:#}");
}

/// Runs a benchmark with slices that are too short for meaningful numbers.
fn runs_and_reports(name: &str) {
    let (bench, dir) = (bench(), tempfile::tempdir().expect("a folder"));
    let mut command = Command::new(&bench);
    command.args([name, "--seconds", "0.3", "--json"]).env("SKOPOS_DIR", dir.path());
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let report: Json = serde_json::from_slice(&stdout).expect("JSON");
    check(&report);
    let measured = |row: &Json| row["value"].as_f64().is_some_and(|v| v > 0.0);
    assert!(report["rows"].as_array().is_some_and(|rows| rows.iter().any(measured)), "{report:#}");
}

/// Makes a test of each benchmark, so that they run side by side.
macro_rules! run_and_report {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            runs_and_reports(stringify!($name));
        }
    )*};
}

run_and_report!(score, agent, delphi, intervals, anatomy, height, estimate);
