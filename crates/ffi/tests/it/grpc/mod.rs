//! A gRPC service in C++ with the interceptors of `clients/cpp`, and a service of tonic: they share traces.

#[path = "../../../../rpc/examples/tonic_echo/echo.rs"]
#[allow(dead_code)]
mod echo;
#[path = "../../../../rpc/tests/it/tonic/serving.rs"]
#[allow(dead_code)]
mod serving;
#[path = "../../../../rpc/tests/it/tonic/trace.rs"]
#[allow(dead_code)]
pub(super) mod trace;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use bytes::Bytes;
use skopos_rpc::{Interval, Kind, Status};
use tempfile::TempDir;
use tonic::Request;

use self::echo::EchoServer;
use self::serving::{client, runtime, serve};
use self::trace::{Recorded, check_joined, only};
use super::{is_there, libraries, root};

/// A message of `echo.proto` with the text `text`, as bytes.
fn message(text: &str) -> Bytes {
    let length = u8::try_from(text.len()).expect("short");
    [&[0x0a, length], text.as_bytes()].concat().into()
}

fn run(command: &mut Command) {
    let ran = command.output().expect("it starts");
    assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn flags(of: &str) -> Option<Vec<String>> {
    let asked = Command::new("pkg-config").args([of, "grpc++", "protobuf"]).output().ok()?;
    let text = String::from_utf8_lossy(&asked.stdout);
    asked.status.success().then(|| text.split_whitespace().map(str::to_owned).collect())
}

/// Compiles the example once; `None` where a part of gRPC for C++ is not there.
fn example() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let tools = ["g++", "protoc"].iter().all(|tool| is_there(tool));
        let plugin = find("grpc_cpp_plugin");
        let (Some(compile), Some(link), true, Some(plugin)) =
            (flags("--cflags"), flags("--libs"), tools, plugin)
        else {
            return None;
        };
        Some(build(&compile, &link, &plugin))
    });
    if built.is_none() {
        println!(
            "skipped: no g++, protoc, grpc_cpp_plugin or gRPC for C++; `scripts/setup test` gets them"
        );
    }
    built.as_ref().map(|(_, program)| program.clone())
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.exists())
}

fn build(compile: &[String], link: &[String], plugin: &Path) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let sources = root().join("clients/cpp/example");
    let mut protoc = Command::new("protoc");
    protoc.arg("-I").arg(&sources).arg(format!("--plugin=protoc-gen-grpc={}", plugin.display()));
    for kind in ["cpp", "grpc"] {
        protoc.arg(format!("--{kind}_out={}", dir.path().display()));
    }
    run(protoc.arg("echo.proto"));
    let program = dir.path().join("echo");
    let mut cc = Command::new("g++");
    cc.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]);
    for folder in [dir.path(), &root().join("clients/c"), &root().join("clients/cpp")] {
        cc.arg("-I").arg(folder);
    }
    cc.args(compile).arg(sources.join("echo.cc"));
    cc.args([dir.path().join("echo.pb.cc"), dir.path().join("echo.grpc.pb.cc")]);
    cc.arg("-L").arg(libraries()).arg("-lskopos_ffi").args(link).arg("-o").arg(&program);
    run(&mut cc);
    (dir, program)
}

fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env("LD_LIBRARY_PATH", libraries());
    command
}

/// A server in C++, which ends with its input.
struct Server(Child, String);

impl Server {
    fn start(program_path: &Path, words: &[&str]) -> Self {
        let mut command = program(program_path);
        let command = command.arg("serve").args(words);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut address = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut address).expect("its address");
        Self(child, address.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_client_in_cpp_calls_tonic() {
    let Some(built) = example() else { return };
    let recorded = Recorded::start("tonic");
    let recorder = recorded.recorder;
    let folder = recorded.folder.path().to_path_buf();
    runtime().block_on(async {
        let (address, server) = serve(recorder, EchoServer::default()).await;
        let mut command = program(&built);
        command.arg("call").arg(address.to_string()).arg(&folder);
        command.env("SKOPOS_DIR", folder.join("run"));
        tokio::task::spawn_blocking(move || run(&mut command)).await.expect("it succeeds");
        server.abort();
    });
    let sides = recorded.sides();
    let origin = only(&sides, Kind::Origin, "echo.Echo/Say");
    let target = only(&sides, Kind::Target, "echo.Echo/Say");
    check_joined(&origin, &target);
    assert_eq!((origin.process.as_str(), target.process.as_str()), ("cpp-client", "tonic"));
    assert_eq!((origin.record.status, target.record.status), (Status::Ok, Status::Ok));
    assert!(origin.interval(Interval::InputSerialization) > 0);
}

#[test]
fn tonic_calls_a_service_in_cpp_which_calls_tonic() {
    let Some(built) = example() else { return };
    let recorded = Recorded::start("tonic");
    let recorder = recorded.recorder;
    let folder = recorded.folder.path().display().to_string();
    runtime().block_on(async {
        let (last, task) = serve(recorder, EchoServer::default()).await;
        let server = Server::start(&built, &[&folder, &last.to_string()]);
        let client = client(recorder, server.1.parse().expect("an address"));
        let answer = client.unary("/echo.Echo/Relay", Request::new(message("hello"))).await;
        assert_eq!(answer.expect("answered"), message("hello"));
        let failed = client.unary("/echo.Echo/Say", Request::new(message("fail"))).await;
        failed.expect_err("as asked");
        tokio::task::spawn_blocking(move || drop(server)).await.expect("it ends");
        task.abort();
    });
    let sides = recorded.sides();
    let relay = only(&sides, Kind::Target, "echo.Echo/Relay");
    check_joined(&only(&sides, Kind::Origin, "echo.Echo/Relay"), &relay);
    assert_eq!(relay.process, "cpp-server");
    let (below, first): (Vec<_>, Vec<_>) = sides
        .iter()
        .filter(|side| side.name == "echo.Echo/Say")
        .cloned()
        .partition(|side| side.record.request_low == relay.record.request_low);
    let origin = only(&below, Kind::Origin, "echo.Echo/Say");
    check_joined(&origin, &only(&below, Kind::Target, "echo.Echo/Say"));
    assert_eq!((origin.process.as_str(), origin.record.parent), ("cpp-server", relay.record.span));
    assert!(relay.interval(Interval::Children) > 0);
    assert!(relay.interval(Interval::TargetExecutionExclusive) > 0);
    assert!(relay.interval(Interval::InputDeserialization) > 0);
    assert!(!relay.values.contains_key(Interval::TargetHandler.name()));
    let failed = only(&first, Kind::Target, "echo.Echo/Say");
    assert_eq!((failed.process.as_str(), failed.record.status), ("cpp-server", Status::Error));
}
