//! A container whose filter refuses `futex_waitv`, `membarrier`, `io_uring`, `bpf`, `perf_event_open` and `ptrace`:
//! everything works, says what it does without, and rests while it waits.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value as Json;

use super::{program, wrapped};
use crate::run::{measure_by, monitor};
use crate::support::{PATIENCE, Running, eventually, runtime_dir, skopos};

/// The answers of filters: the newer is the answer of a kernel without the call.
const ERRORS: [&str; 2] = ["EPERM", "ENOSYS"];

/// Time for which processes wait while their use is measured.
const WAIT: Duration = Duration::from_secs(3);

/// The most processor time of a process that waits: a sixth of [`WAIT`]. A loop without a rest takes all of it; the
/// start of a debug build on a busy machine takes a tenth of a second more in one run than in another.
const WAITING_SECONDS: f64 = 0.5;

/// Returns a command under the filter; `None` where no filter can be set.
fn contained(error: &str, command: &Command) -> Option<Command> {
    let filter = program("contained", &[]);
    let filter = filter.to_str().expect("UTF-8");
    let status = Command::new(filter).args([error, "true"]).status().expect("it starts");
    if status.code() == Some(77) {
        eprintln!("skipped: no filter can be set here");
        return None;
    }
    assert!(status.success());
    Some(wrapped(&[filter, error], command))
}

/// Returns the processor time of all threads of a process so far.
fn spent_seconds(child: &Child) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("it runs");
    let times = threads.flatten().map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0)
    });
    times.sum::<f64>() / 1e9
}

/// Starts a reader that prints each change of a topic, and waits for the present value.
fn reader(error: &str, dir: &Path, topic: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let watch = skopos(dir, &["watch", topic, "--json"]);
    let mut watch = contained(error, &watch).expect("the agent has such a filter");
    let mut child = watch.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    assert_eq!(value(&mut lines), 1.0, "{error}");
    (child, lines)
}

fn value(lines: &mut impl std::io::BufRead) -> f64 {
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    let change: Json = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
    change["value"].as_f64().expect("a number")
}

#[test]
fn an_agent_and_a_waiting_reader_work_under_the_filter_of_a_container_and_rest() {
    for error in ERRORS {
        let dir = runtime_dir();
        let args = ["agent", "--json", "--node", "n01", "--interval", "1h"];
        let Some(mut agent) = contained(error, &skopos(dir.path(), &args)) else { return };
        let mut child = agent.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let is_start = out.by_ref().lines().map_while(Result::ok).any(|line| {
            let line: Json = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            line["event"] == "started"
        });
        assert!(is_start, "{error}: the agent exited");
        let agent = Running { dir, child, _stdout: Some(out) };
        let ran = |args: &[&str]| {
            let command = skopos(agent.path(), args);
            contained(error, &command).expect("as the agent").output().expect("it starts")
        };
        let got = ran(&["get", "mem/total_bytes", "--json"]);
        assert!(got.status.success(), "{error}: {got:?}");
        assert!(ran(&["publish", "app/bell", "1"]).status.success(), "{error}");
        let (mut reader, mut lines) = reader(error, agent.path(), "app/bell");
        let before = [&agent.child, &reader].map(spent_seconds);
        // Both wait: nothing is polled for an hour, and nothing is published.
        std::thread::sleep(WAIT);
        let after = [&agent.child, &reader].map(spent_seconds);
        for (what, (before, after)) in
            ["the agent", "the reader"].iter().zip(before.iter().zip(after))
        {
            let spent = after - before;
            assert!(spent < WAITING_SECONDS, "{error}: {what} took {spent} s of {WAIT:?}");
        }
        assert!(ran(&["publish", "app/bell", "2"]).status.success(), "{error}");
        assert_eq!(value(&mut lines), 2.0, "{error}: the reader was woken");
        reader.kill().expect("it runs");
        reader.wait().expect("it ends");
    }
}

#[test]
fn a_task_is_measured_under_the_filter_of_a_container_and_the_report_has_the_reasons() {
    let seconds = WAIT.as_secs().to_string();
    let task =
        ["--json", "--", "sh", "-c", "head -c 1000000 /dev/zero >/dev/null; sleep $0; exit 3"];
    let bare = measure_by(monitor(&[&task[..], &[&seconds]].concat()));
    let overhead = |summary: &Json| summary["overhead"]["cpu_seconds"].as_f64().expect("known");
    for error in ERRORS {
        let Some(command) = contained(error, &monitor(&[&task[..], &[&seconds]].concat())) else {
            return;
        };
        let outcome = measure_by(command);
        assert_eq!(outcome.code, Some(3), "{error}");
        assert!(outcome.value("read_bytes") >= 1e6, "{error}");
        assert!(outcome.value("cpu_seconds") > 0.0, "{error}");
        let mechanisms = outcome.summary["mechanisms"].as_array().expect("a list");
        for name in ["bpf", "ptrace", "perf"] {
            let it = mechanisms.iter().find(|m| m["name"] == name).expect("each is listed");
            assert_eq!(it["used"], false, "{error}: {it}");
            assert!(it["why"].as_str().is_some_and(|why| why.len() > 10), "{error}: {it}");
        }
        let more = overhead(&outcome.summary) - overhead(&bare.summary);
        assert!(more < WAITING_SECONDS, "{error}: {more} s more than without the filter");
    }
    // Tracing on request is refused with the reason, and the task runs all the same.
    for error in ERRORS {
        let traced = ["--json", "--level", "2", "--mechanism", "ptrace,wait4,procfs", "--", "true"];
        let command = contained(error, &monitor(&traced)).expect("as above");
        let outcome = measure_by(command);
        assert_eq!(outcome.code, Some(0), "{error}");
        let mechanisms = outcome.summary["mechanisms"].as_array().expect("a list");
        let ptrace = mechanisms.iter().find(|m| m["name"] == "ptrace").expect("listed");
        assert_eq!(ptrace["used"], false, "{error}: {ptrace}");
    }
}

#[test]
fn a_publisher_under_the_filter_wakes_a_reader_without_one() {
    let agent = Running::start(&[]);
    for (n, error) in ERRORS.iter().enumerate() {
        let topic = format!("app/bell{n}");
        let publish = |value: &str| {
            let command = skopos(agent.path(), &["publish", &topic, value]);
            contained(error, &command).map(|mut command| command.output().expect("it starts"))
        };
        let Some(done) = publish("1") else { return };
        assert!(done.status.success(), "{error}: {done:?}");
        let mut watch = skopos(agent.path(), &["watch", &topic, "--plain", "--count", "2"]);
        let mut child = watch.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.next().is_some(), "{error}");
        assert!(publish("2").is_some_and(|done| done.status.success()), "{error}");
        eventually("the reader ends", || child.try_wait().expect("asked").is_some());
        assert!(lines.next().is_some_and(|line| line.is_ok()), "{error} within {PATIENCE:?}");
    }
}
