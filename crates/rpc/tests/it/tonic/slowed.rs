//! A service of another project that is slowed on purpose, in five ways: the first finding names each.

use std::path::Path;
use std::process::{Command, Stdio};

use skopos_rpc::analysis::finding::{NodeFacts, Verdict, judge};
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::folder::Folder;

use super::python::{CLIENTS, python_with};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/slowed/slowed.py");

/// The faults, each with the finding that names it.
const FAULTS: [(&str, &str); 5] = [
    ("pool", "execution_streams"),
    ("sleep", "long_handlers"),
    ("lock", "serialized_handlers"),
    ("large", "large_messages"),
    ("downstream", "slow_children"),
];

/// Runs of a fault: a machine that is busy with other work can hide it in some of them.
const RUNS: usize = 4;

/// Runs the service with a fault, and returns the first condition that is found.
fn first_finding(python: &Path, fault: &str) -> Option<&'static str> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(python);
    command.args(["-B", SCRIPT, CLIENTS]).arg(folder.path()).arg(fault).stdin(Stdio::null());
    let ran = command.output().expect("it starts");
    assert!(ran.status.success(), "{fault}: {}", String::from_utf8_lossy(&ran.stderr));
    let loader = Folder::open(folder.path()).expect("traces");
    let trace = Trace::open(&loader).expect("readable");
    let findings = judge(&trace, &NodeFacts::default()).expect("readable").findings;
    let first = findings.first().expect("a rule");
    matches!(first.verdict, Verdict::Found(_)).then_some(first.finding)
}

#[test]
fn the_first_finding_names_each_fault_of_a_service_of_another_project() {
    let Some(python) = python_with("import grpc_health.v1.health") else {
        println!(
            "skipped: no Python with grpcio-health-checking; `scripts/setup test` gets it from PyPI"
        );
        return;
    };
    for (fault, expected) in FAULTS {
        let mut seen = Vec::new();
        let is_named = (0..RUNS).any(|_| {
            seen.push(first_finding(&python, fault));
            seen.last() == Some(&Some(expected))
        });
        assert!(is_named, "{fault} is {expected}, and not {seen:?}");
    }
}
