//! Shared parts of the tests: directories in memory, seeds, this binary as a child process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skopos_model::{Sample, Structured, Timestamp, Topic, ValueType};
use skopos_shm::{Publisher, VertexSpec};
use tempfile::TempDir;

/// Environment variable of a child process: the directory to work in.
pub(crate) const CHILD_DIR: &str = "SKOPOS_TEST_CHILD_DIR";

/// Longer than any step takes on the slowest machine: a test that waits this long hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a runtime directory that is removed when dropped; in memory if possible.
pub(crate) fn runtime_dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("skopos-test-");
    builder.tempdir_in(memory).or_else(|_| builder.tempdir()).expect("a writable directory")
}

pub(crate) fn topic(text: &str) -> Topic {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub(crate) fn at(nanos: i64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

pub(crate) fn spec(text: &str, value_type: ValueType) -> VertexSpec {
    VertexSpec::new(topic(text), value_type)
}

/// Makes a small publisher called `name`, whose file is cheap to open and copy.
pub(crate) fn publisher(dir: &Path, name: &str) -> Publisher {
    let builder = Publisher::builder(name).dir(dir).node("test").max_vertices(64);
    builder.max_bytes(1 << 20).create().expect("a publisher in an empty directory")
}

pub(crate) fn structured(text: &str) -> Structured {
    Structured::from_json(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub(crate) fn structured_sample(nanos: i64, text: &str) -> Sample {
    Sample::measured(at(nanos), structured(text))
}

/// Reports that a test cannot run on this machine.
pub(crate) fn skipped(test: &str, reason: &str) {
    println!("skipped: {test}: {reason}");
    // The harness hides the output of a passing test, but the user at a terminal should see this.
    if let Ok(mut terminal) = fs::OpenOptions::new().write(true).open("/dev/stderr") {
        use std::io::Write as _;
        let _ = writeln!(terminal, "skipped: {test}: {reason}");
    }
}

pub(crate) fn is_root() -> bool {
    skopos_shm::effective_uid() == 0
}

/// Returns the seed of a test: `SKOPOS_TEST_SEED` to repeat a run, else the clock. Prints it, so that a
/// failure can be repeated.
pub(crate) fn seed(test: &str) -> u64 {
    let given = std::env::var("SKOPOS_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
    });
    println!("{test}: SKOPOS_TEST_SEED={seed}");
    seed
}

/// Returns a command that runs only the ignored test `name` of this binary, in `dir`.
pub(crate) fn this_binary(name: &str, dir: &Path) -> Command {
    child_of(&std::env::current_exe().expect("this binary has a path"), name, dir)
}

/// Like [`this_binary`], for a copy of it at `binary`.
pub(crate) fn child_of(binary: &Path, name: &str, dir: &Path) -> Command {
    let mut command = Command::new(binary);
    command.args(["--ignored", "--exact", "--nocapture", "--test-threads=1", name]);
    command.env(CHILD_DIR, dir).stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

/// In a child: returns the directory to work in; `None` if a user runs all ignored tests.
pub(crate) fn child_dir() -> Option<PathBuf> {
    std::env::var_os(CHILD_DIR).map(PathBuf::from)
}

/// In a child: ends this process when its parent ends, which closes our standard input.
pub(crate) fn die_with_parent() {
    std::thread::spawn(|| {
        let mut sink = Vec::new();
        let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut sink);
        std::process::exit(3);
    });
}

/// Kills its process and waits for the end when dropped, so that a failing test leaves no process behind.
pub(crate) struct Kill(pub(crate) Child);

impl Drop for Kill {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Polls `found` until it returns a value; fails the test if it never does.
pub(crate) fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let started = std::time::Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Runs `work` on a thread of its own and fails the test if it does not end.
pub(crate) fn must_end<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || {
        let done = work();
        let _ = sender.send(());
        done
    });
    match receiver.recv_timeout(PATIENCE) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("hangs: {what}"),
        _ => worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}
