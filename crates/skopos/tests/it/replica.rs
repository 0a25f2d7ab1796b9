//! A replica: another hub keeps a copy of the jobs, and takes over when the first one is lost.

use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::json;

use crate::flight::FlightServer;
use crate::jobs::{METRICS, Row, START, count, put, rows};
use crate::support::{Running, eventually, free_port, run, runtime_dir, skopos};

/// Returns a configuration that names a replica.
fn with_replica(at: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("[hub.jobs]\nreplica = \"{at}\"\n")).expect("written");
    file
}

/// Records of a running job, from a sequence on.
fn samples(job: &'static str, from: i64, count: i64) -> Vec<Row<'static>> {
    let sample = |at| (at, job, "sample", Err(vec![0.5, 1.0]));
    (from..from + count).map(sample).collect()
}

fn begin(job: &'static str) -> Vec<Row<'static>> {
    let begin = [(0, job, "start", Ok(START)), (1, job, "metrics", Ok(METRICS))];
    begin.into_iter().chain(samples(job, 2, 50)).collect()
}

/// The name by which a hub without a certificate calls itself.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase()
}

pub(crate) fn has_segment(folder: &Path) -> bool {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .any(|file| file.file_name().to_string_lossy().starts_with("segment-"))
}

#[tokio::test]
async fn a_replica_takes_over_what_was_acknowledged_exactly_once() {
    let mut replica = FlightServer::start();
    let config = with_replica(replica.address());
    let config = config.path().to_str().expect("UTF-8");
    let mut primary = FlightServer::start_with(&["--config", config]);
    // A finished job goes to a segment, and the segment to the replica.
    let end = [(2, "a/1", "end", Ok(r#"{"state":"completed"}"#))];
    let done: Vec<Row<'_>> = begin("a/1").into_iter().take(2).chain(end).collect();
    put(&primary, &["jobs", "done", "1", "lts"], &done).await.expect("sealed");
    let running = begin("a/7");
    let acknowledged = put(&primary, &["jobs", "p", "1", "replica"], &running).await.expect("kept");
    let last = acknowledged.last().expect("an acknowledgement");
    assert_eq!(*last, json!({"level": "replica", "sequence": 51}));
    let copy = replica.up.path().join("state/replicas").join(host());
    eventually("the segment is copied", || has_segment(&copy.join("lts")));

    // Either is killed, the other goes on, and what was acknowledged stays so.
    replica.up.kill();
    let more = samples("a/7", 52, 10);
    let acknowledged = put(&primary, &["jobs", "p", "1"], &more).await.expect("stored");
    assert_eq!(acknowledged.last().map(|ack| ack["sequence"].clone()), Some(json!(61)));
    let trouble = || primary.up.run(&["get", "--plain", "self/jobs/replica_behind_bytes"]).stdout;
    eventually("a fact says that the replica is behind", || {
        trouble().split_whitespace().any(|word| word.parse().is_ok_and(|bytes: f64| bytes > 0.0))
    });
    replica.restart();
    // The same records again: the replica gets them from the log.
    let acknowledged = put(&primary, &["jobs", "p", "1", "replica"], &more).await.expect("kept");
    assert_eq!(acknowledged.last().map(|ack| ack["sequence"].clone()), Some(json!(61)));
    primary.restart_with(&["--config", config]);
    let acknowledged = put(&primary, &["jobs", "p", "1", "replica"], &more).await.expect("kept");
    assert_eq!(acknowledged.last().map(|ack| ack["sequence"].clone()), Some(json!(61)));

    // The primary is lost with its disk.
    primary.up.kill();
    std::fs::remove_dir_all(primary.up.path().join("state")).expect("removed");
    let refused = replica.up.run(&["mds", "promote", &host()]);
    assert!(refused.code == 2 && refused.stderr.contains("stop the hub first"), "{refused:?}");
    replica.up.kill();
    let other = replica.up.run(&["mds", "promote", "nobody"]);
    assert!(other.code == 2 && other.stderr.contains("there is no copy"), "{other:?}");
    let promoted = replica.up.run(&["mds", "promote", &host()]);
    assert_eq!(promoted.code, 0, "{promoted:?}");
    replica.restart();
    let of_job = "SELECT count(*) AS n FROM job_samples WHERE job = 'a/7'";
    eventually("the jobs are found", || {
        count(&replica, "SELECT count(*) AS n FROM jobs WHERE job IN ('a/1', 'a/7')") == 2
    });
    assert_eq!(count(&replica, of_job), 2 * 60);
    // A producer that lost its acknowledgements sends all again.
    let all: Vec<Row<'_>> = running.into_iter().chain(more).collect();
    let again = put(&replica, &["jobs", "p", "1"], &all).await.expect("known");
    assert_eq!(again.last().map(|ack| ack["sequence"].clone()), Some(json!(61)));
    assert_eq!(count(&replica, of_job), 2 * 60, "duplicates are known");
    let state = "SELECT state FROM jobs WHERE job = 'a/1'";
    let found = rows(&replica.up.run(&["sql", "--json", state]));
    assert_eq!(found, json!([{"state": "completed"}]));
}

#[tokio::test]
async fn the_level_replica_waits_for_the_replica_and_needs_one() {
    let at = format!("127.0.0.1:{}", free_port());
    let config = with_replica(&at);
    let primary = FlightServer::start_with(&["--config", config.path().to_str().expect("UTF-8")]);
    let records = begin("a/7");
    put(&primary, &["jobs", "p", "1"], &records).await.expect("the disk does not need it");
    let path = ["jobs", "q", "1", "replica"];
    let records = samples("a/7", 0, 5);
    let waiting = put(&primary, &path, &records);
    let start = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        tokio::task::spawn_blocking(move || FlightServer::start_at(&at, &[])).await
    };
    let (acknowledged, replica) = tokio::join!(waiting, start);
    let acknowledged = acknowledged.expect("kept");
    assert_eq!(acknowledged.last().map(|ack| ack["sequence"].clone()), Some(json!(4)));
    let replica = replica.expect("it starts");
    let alone = put(&replica, &path, &records).await.expect_err("it has no replica");
    assert!(alone.message().contains("this hub has no replica"), "{alone:?}");
}

/// A hub with a certificate, and what it prints.
pub(crate) struct Hub {
    pub(crate) running: Running,
    pub(crate) flight: String,
}

impl Hub {
    pub(crate) fn start(dir: tempfile::TempDir, replica: Option<&str>) -> Self {
        Self::start_at(dir, replica, format!("127.0.0.1:{}", free_port()))
    }

    pub(crate) fn start_at(dir: tempfile::TempDir, replica: Option<&str>, flight: String) -> Self {
        let live = format!("tls/127.0.0.1:{}", free_port());
        let config = dir.path().join("hub.toml");
        let text = replica.map(|at| format!("[hub.jobs]\nreplica = \"{at}\"\n"));
        std::fs::write(&config, text.unwrap_or_default()).expect("written");
        let err = std::fs::File::create(dir.path().join("err")).expect("a file");
        let config = config.display().to_string();
        let args = ["up", "--live", "--listen", &live, "--http", "none", "--flight", &flight];
        let args = [&args[..], &["--config", &config]].concat();
        let child: Child =
            skopos(dir.path(), &args).stdout(Stdio::null()).stderr(err).spawn().expect("starts");
        let hub = Self { running: Running { dir, child, _stdout: None }, flight };
        eventually("the hub listens", || std::net::TcpStream::connect(&hub.flight).is_ok());
        hub
    }

    fn warnings(&self) -> String {
        std::fs::read_to_string(self.running.path().join("err")).unwrap_or_default()
    }

    /// Stores a job through the socket of the hub.
    fn store(&self) {
        let ran = self.running.run(&["run", "--", "true"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

/// Makes a site. Returns the folders of its first hub, of a second hub and of a node, which are not running.
pub(crate) fn site() -> [tempfile::TempDir; 3] {
    let first = runtime_dir();
    let made = ["pki", "init", "--site", "s1", "--node", "hub1", "--host", "127.0.0.1"];
    assert_eq!(run(first.path(), &made).code, 0);
    let http = format!("127.0.0.1:{}", free_port());
    // The certificates are given out over HTTP.
    let live = format!("tls/127.0.0.1:{}", free_port());
    let args = ["up", "--live", "--listen", &live, "--http", &http, "--flight", "none"];
    let child = skopos(first.path(), &args).stdout(Stdio::null()).spawn().expect("starts");
    let mut running = Running { dir: first, child, _stdout: None };
    eventually("it listens", || std::net::TcpStream::connect(&http).is_ok());
    let join = |node: &str, args: &[&str]| {
        let token = running.run(&[&["pki", "token", "--node", node], args].concat());
        let dir = runtime_dir();
        let token = token.stdout.trim().to_owned();
        let joined = run(dir.path(), &["join", &http, "--token", &token, "--node", node]);
        assert_eq!(joined.code, 0, "{joined:?}");
        dir
    };
    let (hub, node) = (join("hub2", &["--hub-at", "127.0.0.1"]), join("n03", &[]));
    running.kill();
    [std::mem::replace(&mut running.dir, runtime_dir()), hub, node]
}

#[test]
fn a_hub_with_its_certificate_is_copied_and_a_node_is_refused() {
    let [first, hub, node] = site();
    let keeper = Hub::start(hub, None);
    let primary = Hub::start(first, Some(&keeper.flight));
    primary.store();
    let copies = keeper.running.path().join("state/replicas");
    eventually("the copy is there", || {
        std::fs::read_dir(copies.join("hub1/sts")).is_ok_and(|files| files.count() > 1)
    });
    let node = Hub::start(node, Some(&keeper.flight));
    node.store();
    eventually("the node is refused", || {
        node.warnings().contains("may not keep a copy of the jobs of the hub n03 here")
    });
    assert!(!copies.join("n03").exists(), "nothing is kept of it");
}
