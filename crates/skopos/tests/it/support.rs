//! A running agent in a runtime directory of its own, and functions that run verbs beside it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tempfile::TempDir;

pub(crate) use crate::ports::free_port;

/// The timeout of everything that a test waits for. It is generous, because machines are busy. It is
/// not a goal for speed: those are in the benchmarks.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Creates a runtime directory, in memory where there is room, else in the temporary directory.
pub(crate) fn runtime_dir() -> TempDir {
    let shm = Path::new("/dev/shm");
    let builder = |dir: &Path| tempfile::Builder::new().prefix("skopos-test-").tempdir_in(dir);
    builder(shm).or_else(|_| builder(&std::env::temp_dir())).expect("a temporary directory")
}

/// Returns options that keep a role with a hub off the usual ports, which other programs may have. A
/// listener in `given` has its own options.
pub(crate) fn listeners<'a>(given: &[&str]) -> Vec<&'a str> {
    let all: &[&str] = &["--http", "--flight"];
    let open = all.iter().filter(|listener| !given.contains(listener));
    open.flat_map(|listener| [*listener, "none"]).collect()
}

/// Returns a program that starts as from an interactive shell. Tests in the background of a shell ignore
/// SIGINT, and their children inherit that: a test that sends SIGINT would wait for ever.
pub(crate) fn program(path: &str) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal", path]);
    command
}

/// Returns the binary with these arguments, in this runtime directory, without the user's state and
/// configuration.
pub(crate) fn skopos(dir: &Path, args: &[&str]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_skopos"));
    command.args(args).env("SKOPOS_DIR", dir).env_remove("NO_COLOR").stdin(Stdio::null());
    command.env("SKOPOS_STATE", dir.join("state"));
    command.env_remove("SKOPOS_CONFIG").env("XDG_CONFIG_HOME", dir.join("config"));
    command
}

/// The exit code and the output of a verb.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e} in {self:?}"))
    }
}

/// Runs a verb until it exits.
pub(crate) fn run(dir: &Path, args: &[&str]) -> Ran {
    let Output { status, stdout, stderr } = skopos(dir, args).output().expect("it starts");
    Ran {
        code: status.code().unwrap_or(-1),
        stdout: String::from_utf8(stdout).expect("UTF-8"),
        stderr: String::from_utf8(stderr).expect("UTF-8"),
    }
}

/// An agent that runs until dropped.
pub(crate) struct Running {
    pub(crate) dir: TempDir,
    pub(crate) child: Child,
    /// Kept open: an agent that prints to a closed pipe exits.
    pub(crate) _stdout: Option<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts an agent and waits until its facts are there.
    pub(crate) fn start(extra: &[&str]) -> Self {
        Self::start_as("agent", extra)
    }

    /// Starts the role `verb`: `agent` or `up`.
    pub(crate) fn start_as(verb: &str, extra: &[&str]) -> Self {
        Self::start_in(runtime_dir(), verb, extra)
    }

    /// Starts the role `verb` in a folder that may have files.
    pub(crate) fn start_in(dir: TempDir, verb: &str, extra: &[&str]) -> Self {
        let role = role(dir.path(), verb, extra);
        Self::of(dir, role)
    }

    /// Starts a role that was prepared in a folder.
    pub(crate) fn of(dir: TempDir, mut role: Command) -> Self {
        let (child, told) = started(&mut role);
        Self { dir, child, _stdout: Some(told) }
    }

    /// Kills the role, and starts the role `verb` in its place.
    pub(crate) fn restart_as(&mut self, verb: &str, extra: &[&str]) {
        self.kill();
        let (child, told) = started(&mut role(self.dir.path(), verb, extra));
        (self.child, self._stdout) = (child, Some(told));
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        run(self.path(), args)
    }

    /// Sends SIGKILL and waits for the exit.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prepares a role in a folder.
pub(crate) fn role(dir: &Path, verb: &str, extra: &[&str]) -> Command {
    let mut args = vec![verb, "--json"];
    if !extra.contains(&"--node") {
        args.extend(["--node", "n01"]);
    }
    if !extra.contains(&"--interval") {
        // Ten polls a second cost a debug build more than the usual budget.
        args.extend(["--interval", "100ms", "--budget", "100%"]);
    }
    if !extra.contains(&"--policy") {
        args.extend(["--policy", "fixed"]);
    }
    if verb == "up" {
        args.extend(listeners(extra));
    }
    args.extend(extra);
    let mut command = skopos(dir, &args);
    command.stdout(Stdio::piped());
    command
}

/// Starts a role, and waits until it says so.
fn started(role: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = role.spawn().expect("it starts");
    let mut told = BufReader::new(child.stdout.take().expect("piped"));
    // The agent may print other lines first.
    let is_start = told.by_ref().lines().map_while(Result::ok).any(|line| {
        let told: Json = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        told["event"] == "started"
    });
    assert!(is_start, "the role exited");
    (child, told)
}

/// Ends a child in order, by SIGTERM to its process id, and returns its output.
pub(crate) fn terminate(child: Child) -> Output {
    signal(&child, "TERM");
    child.wait_with_output().expect("it ends")
}

/// Sends a signal to this child only.
pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .status()
        .expect("kill(1)");
    assert!(status.success());
}

/// Calls `ready` until it returns true; panics with `what` after [`PATIENCE`].
pub(crate) fn eventually(what: &str, mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < PATIENCE, "gave up waiting: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
