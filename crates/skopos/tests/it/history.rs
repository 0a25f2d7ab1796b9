//! History on disk outlives its agent, and no sample is in an answer twice.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};
use skopos_model::{Kind, Timestamp, Topic, Unit, ValueType};
use skopos_store::history::{Samples, Sealer, Series};
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
    assert!(second.stderr.contains("another process writes to"), "{second:?}");
    agent.kill();
}

/// Writes a part with ten samples, an hour ago, and returns its name.
fn seal(folder: &Path, generation: u64) -> String {
    let topic = Topic::new("n01/app/old").expect("a topic");
    let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::F64);
    let series = Series { topic, unit, kind, value_type, since: Timestamp::default() };
    let begin = skopos_shm::now().as_nanos() - 3_600_000_000_000 + generation as i64 * 1_000_000;
    let mut samples = Samples::default();
    (0..10).for_each(|n| samples.push_measured(Timestamp::from_nanos(begin + n), 1.0));
    let mut sealer = Sealer::new(folder, generation).expect("a part");
    sealer.push(series, samples).expect("pushed");
    let path = sealer.finish().expect("sealed");
    path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned()
}

#[test]
fn a_damaged_part_is_moved_aside_and_named_and_everything_else_goes_on() {
    let (dir, history) = (runtime_dir(), TempDir::new().expect("a folder"));
    let names = [1, 2, 3].map(|generation| seal(history.path(), generation));
    std::fs::write(history.path().join(&names[1]), "x\n").expect("damaged");
    let agent = Agent::start(dir.path(), history.path(), &[]);
    let aside = history.path().join("quarantine").join(&names[1]);
    eventually("the damaged part is moved aside", || aside.exists());
    let old = "SELECT count(*) AS n FROM samples WHERE topic = 'n01/app/old'";
    let ran = run(dir.path(), &["sql", "--json", old]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let document = ran.json();
    assert_eq!(document["rows"], json!([{"n": 20}]), "the other parts are read");
    let missing = document["missing"].to_string();
    assert!(missing.contains(&names[1]), "{missing}");
    let counted = "SELECT value FROM latest WHERE topic = 'n01/self/history/quarantined'";
    eventually("it is counted", || rows(dir.path(), &[counted]) == json!([{"value": 1.0}]));
    let doctor = run(dir.path(), &["doctor"]);
    assert!(doctor.stdout.contains(&names[1]), "{doctor:?}");
    assert_eq!(doctor.code, 0, "{doctor:?}");
    let text = "SELECT text FROM latest WHERE topic = 'n01/self/history/damage'";
    let text = rows(dir.path(), &[text]).to_string();
    assert!(text.contains(&names[1]) && text.contains("is damaged"), "{text}");
    agent.kill();
}

#[test]
fn files_of_history_belong_to_their_owner_alone() {
    let (dir, history) = (runtime_dir(), TempDir::new().expect("a folder"));
    let folder = history.path().join("kept");
    let agent = Agent::start(dir.path(), &folder, &[]);
    let mode = |path: &Path| std::fs::metadata(path).expect("it").permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for file in ["lock", "log-00000001"] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
    agent.kill();
}

#[test]
fn samples_that_a_full_disk_refuses_until_the_end_are_reported() {
    let (dir, kept) = (runtime_dir(), TempDir::new().expect("a folder"));
    let script = "mount -t tmpfs -o size=16k none \"$1\" || exit 77; \
                  exec \"$0\" agent --node n01 --history \"$1\" --for 3s";
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_skopos")])
        .arg(kept.path())
        .env("SKOPOS_DIR", dir.path())
        .output();
    let ran = ran.expect("unshare(1)");
    let told = String::from_utf8_lossy(&ran.stderr);
    if ran.status.code() == Some(77) || told.contains("unshare failed") {
        println!("skipped: no file system can be mounted here");
        return;
    }
    assert!(told.contains("samples of history are lost"), "{told}");
    assert!(told.contains("No space left on device"), "{told}");
    assert!(!ran.status.success(), "{ran:?}");
}
