//! History on disk outlives its agent, and no sample is in an answer twice.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::json::check;
use crate::support::{eventually, run, runtime_dir, skopos};

/// An agent in a runtime directory that already exists.
struct Agent(Child);

impl Agent {
    fn start(dir: &Path, history: &Path, more: &[&str]) -> Self {
        let folder = history.to_str().expect("UTF-8");
        let mut args = vec!["agent", "--json", "--node", "n01", "--history", folder];
        args.extend(more);
        let mut child = skopos(dir, &args).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = child.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert!(line.contains("\"started\""), "{line}");
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rows(dir: &Path, args: &[&str]) -> Json {
    let ran = run(dir, &[&["sql", "--json"], args].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let document = ran.json();
    check("sql", &document);
    document["rows"].clone()
}

fn publish(dir: &Path, values: std::ops::Range<u32>) {
    for value in values {
        assert_eq!(run(dir, &["publish", "app/depth", &value.to_string()]).code, 0);
    }
}

fn values(values: std::ops::Range<u32>) -> Json {
    values.map(|value| json!({"value": f64::from(value)})).collect()
}

const DEPTH: &str = "SELECT value FROM samples WHERE topic = 'n01/app/depth' ORDER BY time";

#[test]
fn samples_that_a_killed_agent_had_written_are_there_once() {
    let (dir, history) = (runtime_dir(), TempDir::new().expect("a folder"));
    let there = history.path().to_str().expect("UTF-8");
    let agent = Agent::start(dir.path(), history.path(), &[]);
    publish(dir.path(), 0..5);
    assert_eq!(
        rows(dir.path(), &[DEPTH]),
        values(0..5),
        "a sample in memory and on disk counts once"
    );
    let written = || rows(dir.path(), &["--history", there, DEPTH]) == values(0..5);
    eventually("the history is written, and read by its folder", written);
    let log = || std::fs::read(history.path().join("log-00000001")).expect("a log");
    let has = |text: &str| log().windows(text.len()).any(|bytes| bytes == text.as_bytes());
    eventually("the topic is in the log", || has("n01/app/depth"));
    std::thread::sleep(std::time::Duration::from_millis(2500));
    agent.kill();
    assert!(written(), "the history outlives its agent");

    let agent = Agent::start(dir.path(), history.path(), &[]);
    publish(dir.path(), 5..8);
    eventually("live and stored samples are found together", || {
        rows(dir.path(), &[DEPTH]) == values(0..8)
    });
    agent.kill();
    let kept = rows(
        dir.path(),
        &["--history", there, "SELECT count(*) AS n FROM samples WHERE metric = 'total_bytes'"],
    );
    assert!(kept[0]["n"].as_u64() > Some(0), "{kept}");
}

#[test]
fn history_says_what_it_keeps_and_has_one_keeper() {
    let (dir, history) = (runtime_dir(), TempDir::new().expect("a folder"));
    let agent = Agent::start(dir.path(), history.path(), &[]);
    let taken =
        "SELECT value > 100 AS enough FROM latest WHERE topic = 'n01/self/history/samples_total'";
    eventually("samples are counted", || rows(dir.path(), &[taken]) == json!([{"enough": true}]));
    let lost = "SELECT sum(value) AS n FROM latest WHERE topic IN ('n01/self/history/lost_total', \
                'n01/self/history/refused_total', 'n01/self/history/errors_total')";
    assert_eq!(rows(dir.path(), &[lost]), json!([{"n": 0.0}]));
    let other = runtime_dir();
    let there = history.path().to_str().expect("UTF-8");
    let second = run(other.path(), &["agent", "--node", "n02", "--history", there]);
    assert!(second.stderr.contains("another process keeps its history in"), "{second:?}");
    agent.kill();
}
