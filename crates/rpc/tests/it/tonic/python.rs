//! Calls between tonic and grpcio, in Python: both sides are one call.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use skopos_rpc::{Interval, Kind, Status};
use tonic::Request;

use super::echo::EchoServer;
use super::serving::{client, runtime, serve};
use super::trace::{Recorded, Side, check_joined, only};

pub(super) const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python");
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tonic");

/// Returns a Python that can run the statement `import`.
pub(super) fn python_with(import: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    let of_tests = cache.join("skopos/python/bin/python");
    let mut pythons = [set("SKOPOS_TEST_PYTHON"), Some(of_tests), Some(PathBuf::from("python3"))]
        .into_iter()
        .flatten();
    pythons.find(|python| {
        let ran = Command::new(python).args(["-c", import]).stderr(Stdio::null()).status();
        ran.is_ok_and(|status| status.success())
    })
}

/// Returns a Python that has grpcio; without one the test says that it is skipped.
fn python() -> Option<PathBuf> {
    let found = python_with("import grpc");
    if found.is_none() {
        println!(
            "skipped: no Python with grpcio; `scripts/setup test` gets it where there is PyPI"
        );
    }
    found
}

fn script(python: &Path, name: &str, folder: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg(Path::new(SCRIPTS).join(name)).arg(CLIENTS).arg(folder);
    command
}

fn check(sides: &[Side], caller: &str, callee: &str) {
    assert_eq!(sides.len(), 2, "{sides:#?}");
    let origin = only(sides, Kind::Origin, "echo.Echo/Say");
    let target = only(sides, Kind::Target, "echo.Echo/Say");
    check_joined(&origin, &target);
    assert_eq!((origin.process.as_str(), target.process.as_str()), (caller, callee));
    assert_eq!((origin.record.status, target.record.status), (Status::Ok, Status::Ok));
    assert!(target.interval(Interval::TargetHandler) > 0);
    assert!(target.record.lamport > origin.record.order.into());
}

fn a_call_from_python(python: &Path, name: &str, more: &[&str]) {
    let recorded = Recorded::start(name);
    let recorder = recorded.recorder;
    let folder = recorded.folder.path().to_path_buf();
    runtime().block_on(async {
        let (address, server) = serve(recorder, EchoServer::default()).await;
        let mut command = script(python, "python_client.py", &folder);
        command.arg(address.to_string()).args(more);
        let ran = tokio::task::spawn_blocking(move || command.output()).await;
        let ran = ran.expect("no panic").expect("it starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        server.abort();
    });
    check(&recorded.sides(), "python-client", name);
}

#[test]
fn python_calls_tonic() {
    if let Some(python) = python() {
        a_call_from_python(&python, "called-by-threads", &[]);
        a_call_from_python(&python, "called-by-asyncio", &["aio"]);
    }
}

/// A server in Python, which ends with its input.
struct PythonServer(Child);

impl Drop for PythonServer {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn tonic_calls_python() {
    let Some(python) = python() else { return };
    let recorded = Recorded::start("tonic-client");
    let recorder = recorded.recorder;
    let mut command = script(&python, "python_server.py", recorded.folder.path());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = PythonServer(command.spawn().expect("it starts"));
    let mut address = String::new();
    let output = server.0.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut address).expect("its address");
    runtime().block_on(async {
        let to = address.trim().parse().expect("an address");
        let request = Request::new("hello".into());
        let answer = client(recorder, to).unary("/echo.Echo/Say", request).await;
        assert_eq!(answer.expect("answered"), "hello");
    });
    drop(server);
    check(&recorded.sides(), "tonic-client", "python-server");
}

#[test]
fn the_tests_of_the_python_package_pass() {
    let Some(python) = python() else { return };
    let tests = Path::new(CLIENTS).join("tests");
    let mut command = Command::new(python);
    // Without this, the tests would leave compiled files in the sources.
    command.args(["-B", "-m", "unittest", "discover", "-s"]).arg(tests);
    let ran = command.output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
