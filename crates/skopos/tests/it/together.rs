//! Statements that several hubs answer together: three processes on one folder of segments, or on one bucket.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::flight::FlightServer;
use crate::jobs::{METRICS, Row, put, rows};
use crate::s3_server::{KEYS, S3Server};
use crate::support::{Running, eventually, free_port, role, runtime_dir, signal};

/// Jobs that are sealed, each in a segment of its own.
const JOBS: [&str; 6] = ["a/1", "a/2", "a/3", "b/4", "b/5", "b/6"];

/// Samples of a job.
const SAMPLES: i64 = 40;

/// The beginning of the first hub's keys in a bucket.
const OWN_PREFIX: &str = "hub1";

const SUMS: &str = "SELECT metric, count(*) AS n, count(DISTINCT job) AS jobs, sum(value) AS total \
                    FROM sealed_samples WHERE value >= 0 GROUP BY metric ORDER BY metric";

/// The file of a hub's messages, in its folder.
const MESSAGES: &str = "messages";

/// Starts a hub with a configuration, and with the keys of a bucket.
fn configured(at: &str, config: &str) -> FlightServer {
    let dir = runtime_dir();
    let file = dir.path().join("skopos.toml");
    std::fs::write(&file, config).expect("written");
    let args = ["--flight", at, "--config", file.to_str().expect("UTF-8")];
    let mut hub = role(dir.path(), "up", &args);
    hub.envs(KEYS).stderr(File::create(dir.path().join(MESSAGES)).expect("made"));
    FlightServer::of(Running::of(dir, hub), at)
}

/// Returns the folder of the segments of a hub.
fn segments(hub: &FlightServer) -> PathBuf {
    hub.up.path().join("state/jobs/lts")
}

/// Returns the configuration of a helper that reads a folder.
fn helps_with(folder: &Path) -> String {
    format!("[hub.jobs]\nhelps_with = {:?}\n", folder.display().to_string())
}

/// A hub with jobs, and two that help it.
struct Site {
    asked: FlightServer,
    helpers: Vec<FlightServer>,
}

impl Site {
    /// Starts a site with a folder of segments.
    async fn start() -> Self {
        Self::start_with("", |asked| helps_with(&segments(asked))).await
    }

    /// Starts a site with a bucket of segments. The helpers read what is below the prefix `helped`.
    async fn start_with_bucket(server: &S3Server, helped: &str) -> Self {
        let own = format!("[hub.jobs.s3]\n{}", server.entries(OWN_PREFIX));
        let config = format!("[hub.jobs.helps_with]\n{}", server.entries(helped));
        let site = Self::start_with(&own, |_| config).await;
        assert!(!segments(&site.asked).exists(), "nothing is sealed on this machine");
        assert!(!server.segments(OWN_PREFIX).is_empty(), "the segments are objects");
        site
    }

    /// Starts a site. The configuration of the first hub ends with `own`; `helps_with` returns that of the others.
    async fn start_with(own: &str, helps_with: impl FnOnce(&FlightServer) -> String) -> Self {
        let at: Vec<String> = (0..2).map(|_| format!("127.0.0.1:{}", free_port())).collect();
        let urls: Vec<String> = at.iter().map(|at| format!("\"grpc://{at}\"")).collect();
        let config = format!("[hub.jobs]\nhelpers = [{}]\n{own}", urls.join(", "));
        let asked = configured(&format!("127.0.0.1:{}", free_port()), &config);
        for (epoch, job) in (1_i64..).zip(JOBS) {
            let end = (2 + SAMPLES, job, "end", Ok(r#"{"state":"completed"}"#));
            let user = if job.starts_with('a') { "ann" } else { "bob" };
            let start = format!(r#"{{"user":"{user}","nodes":["n01"]}}"#);
            let samples =
                (0..SAMPLES).map(|at| (2 + at, job, "sample", Err(vec![epoch as f64, at as f64])));
            let begin: [Row<'_>; 2] =
                [(0, job, "start", Ok(&start)), (1, job, "metrics", Ok(METRICS))];
            let all: Vec<Row<'_>> = begin.into_iter().chain(samples).chain([end]).collect();
            put(&asked, &["jobs", job, "1", "lts"], &all).await.expect("sealed");
        }
        let config = helps_with(&asked);
        let helpers = at.iter().map(|at| configured(at, &config)).collect();
        Self { asked, helpers }
    }

    /// Asks the first hub, and returns the rows.
    fn ask(&self, sql: &str, timeout: &str) -> Json {
        let ran = self.asked.up.run(&["sql", "--json", "--timeout", timeout, sql]);
        assert_eq!(ran.code, 0, "{ran:?}");
        rows(&ran)
    }

    fn requests(&self, helper: usize) -> f64 {
        self.helpers[helper].count("requests_total")
    }

    /// Returns the messages of the first hub.
    fn messages(&self) -> String {
        std::fs::read_to_string(self.asked.up.path().join(MESSAGES)).expect("read")
    }

    /// Returns the number of statements that the first hub did alone because other hubs failed.
    fn failures(&self) -> usize {
        self.messages().matches("a statement runs again on this hub alone").count()
    }
}

fn sums() -> Json {
    let n = SAMPLES * 6;
    let of_positions: i64 = (0..SAMPLES).sum();
    json!([
        {"metric": "cpu/busy_ratio", "n": n, "jobs": 6, "total": (21 * SAMPLES) as f64},
        {"metric": "mem/used_bytes", "n": n, "jobs": 6, "total": (6 * of_positions) as f64},
    ])
}

/// Returns true if a connection to a hub has bytes that the hub did not read yet.
fn has_unread(hub: &FlightServer) -> bool {
    let port = hub.address().rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let port = format!(":{:04X}", port.expect("a port"));
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("read");
    // "0: 0100007F:2F1C 0100007F:8E2A 01 00000000:00000000": local and remote address, state, bytes to send and to read.
    sockets.lines().skip(1).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_open = words[1].ends_with(&port) && words[3] == "01";
        is_open && !words[4].ends_with(":00000000")
    })
}

/// Asks three hubs, kills one in mid-statement, and stops the other one: no answer lacks a row.
fn check(mut site: Site) {
    let alone = "SELECT count(*) AS n FROM job_samples WHERE job IN \
                 ('a/1', 'a/2', 'a/3', 'b/4', 'b/5', 'b/6')";
    assert_eq!(site.ask(alone, "30s"), json!([{"n": 2 * 6 * SAMPLES}]));
    eventually("all hubs did their share", || {
        let before = site.failures();
        assert_eq!(site.ask(SUMS, "60s"), sums());
        site.failures() == before && [0, 1].iter().all(|helper| site.requests(*helper) >= 2.0)
    });
    // A hub that is stopped has its share when it is killed.
    let before = site.failures();
    eventually("the helper is idle", || !has_unread(&site.helpers[0]));
    signal(&site.helpers[0].up.child, "STOP");
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| site.ask(SUMS, "60s"));
        eventually("the helper has its share", || has_unread(&site.helpers[0]));
        signal(&site.helpers[0].up.child, "KILL");
        asking.join().expect("answered")
    });
    assert_eq!(answer, sums());
    assert!(site.failures() > before, "the first hub says that it did the work of the other ones");
    site.helpers[0].up.kill();
    // Two are left.
    let before = site.requests(1);
    assert_eq!(site.ask(SUMS, "30s"), sums());
    eventually("the other one still works", || site.requests(1) > before);
    // A helper that does not answer, and never will, costs a part of the time and no row.
    signal(&site.helpers[1].up.child, "STOP");
    assert_eq!(site.ask(SUMS, "60s"), sums());
    site.helpers[1].up.kill();
    assert_eq!(site.ask(SUMS, "30s"), sums());
}

#[tokio::test]
async fn three_hubs_answer_as_one_and_a_killed_one_is_done_without() {
    check(Site::start().await);
}

#[tokio::test]
async fn three_hubs_read_a_bucket_as_one_and_a_killed_one_is_done_without() {
    let Some(mut server) = S3Server::new() else { return };
    server.start();
    check(Site::start_with_bucket(&server, OWN_PREFIX).await);
}

#[tokio::test]
async fn a_helper_of_another_bucket_refuses_and_makes_no_gap_in_the_answer() {
    let Some(mut server) = S3Server::new() else { return };
    server.start();
    let site = Site::start_with_bucket(&server, "hub2").await;
    eventually("a helper refused", || {
        assert_eq!(site.ask(SUMS, "60s"), sums());
        site.messages().contains("the segments are in s3://jobs/hub1")
    });
}

#[tokio::test]
async fn a_helper_without_the_segments_makes_no_gap_in_the_answer() {
    let empty = tempfile::tempdir().expect("a folder");
    let site = Site::start_with("", |_| helps_with(empty.path())).await;
    assert_eq!(site.ask(SUMS, "30s"), sums());
    eventually("a helper was asked", || site.requests(0) >= 1.0);
}

#[tokio::test]
async fn a_damaged_segment_is_missing_with_helpers_as_without() {
    let site = Site::start().await;
    let lts = segments(&site.asked);
    let files = std::fs::read_dir(&lts).expect("a folder").flatten().map(|file| file.path());
    let mut segments = files.filter(|path| path.extension().is_some_and(|it| it == "parquet"));
    let one = segments.next().expect("a segment");
    let bytes = std::fs::read(&one).expect("read");
    let mut damaged = bytes.clone();
    damaged[100] ^= 1;
    std::fs::write(&one, &damaged).expect("written");
    let answer = site.asked.up.run(&["sql", "--json", SUMS]).json();
    let missing = answer["missing"].as_array().expect("a partial answer");
    let name = one.file_name().and_then(|name| name.to_str()).expect("UTF-8");
    let is_named = |text: &Json| text.as_str().is_some_and(|text| text.contains(name));
    assert!(missing.iter().all(is_named) && !missing.is_empty(), "{answer}");
    std::fs::write(&one, &bytes).expect("written");
    assert_eq!(site.ask(SUMS, "30s"), sums());
}
