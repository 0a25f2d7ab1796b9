//! Services that are slowed on purpose: the first finding names the fault. One is of another project, with five faults.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skopos_rpc::analysis::finding::{Found, NodeFacts, Verdict, judge};
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::folder::Folder;
use skopos_rpc::host::tonic::ServerLayer;
use tokio::net::TcpListener;
use tonic::Request;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::echo::{EchoServer, Next};
use super::python::{CLIENTS, python_with};
use super::serving::{client, runtime};
use super::trace::Recorded;

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

/// Returns the first condition that is found in a folder of traces, with the name of its rule.
fn first_finding(folder: &Path) -> Option<(&'static str, Found)> {
    let loader = Folder::open(folder).expect("traces");
    let trace = Trace::open(&loader).expect("readable");
    let findings = judge(&trace, &NodeFacts::default()).expect("readable").findings;
    let first = findings.into_iter().next().expect("a rule");
    match first.verdict {
        Verdict::Found(found) => Some((first.finding, *found)),
        _ => None,
    }
}

/// Runs the service with a fault, and returns the name of the first finding.
fn named(python: &Path, fault: &str) -> Option<&'static str> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(python);
    command.args(["-B", SCRIPT, CLIENTS]).arg(folder.path()).arg(fault).stdin(Stdio::null());
    let ran = command.output().expect("it starts");
    assert!(ran.status.success(), "{fault}: {}", String::from_utf8_lossy(&ran.stderr));
    first_finding(folder.path()).map(|(name, _)| name)
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
            seen.push(named(&python, fault));
            seen.last() == Some(&Some(expected))
        });
        assert!(is_named, "{fault} is {expected}, and not {seen:?}");
    }
}

/// A service with the three lines of the guide, and a handler that waits: findings say that it takes the time.
#[test]
fn the_first_finding_names_the_slow_handler_of_a_tonic_service() {
    const RELAY: &str = "/echo.Echo/Relay";
    let recorded = Recorded::start("waits");
    let recorder = recorded.recorder;
    runtime().block_on(async {
        let wait: Next = Arc::new(|message| {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(message)
            })
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        // Without it, each answer waits for an acknowledgement, which is another finding.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let mut server = Server::builder().layer(ServerLayer::with(recorder));
        let server = server.add_service(EchoServer::relay_to(wait));
        let server = tokio::spawn(server.serve_with_incoming(incoming));
        let client = client(recorder, address);
        for _ in 0..100 {
            let answer = client.unary(RELAY, Request::new(Bytes::from_static(b"hello"))).await;
            assert_eq!(answer.expect("answered"), "hello");
        }
        server.abort();
    });
    recorder.close().expect("closed");
    let (name, found) = first_finding(recorded.folder.path()).expect("a finding");
    assert_eq!((name, found.callpath.join(" ").as_str()), ("long_handlers", "echo.Echo/Relay"));
    assert!(found.saves.high > 0.5, "{found:?}");
}
