//! Statements that several hubs answer together: three processes on one folder of segments.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::flight::FlightServer;
use crate::jobs::{METRICS, Row, put, rows};
use crate::support::{eventually, free_port, signal};

/// Jobs that are sealed, each in a segment of its own.
const JOBS: [&str; 6] = ["a/1", "a/2", "a/3", "b/4", "b/5", "b/6"];

/// Samples of a job.
const SAMPLES: i64 = 40;

const SUMS: &str = "SELECT metric, count(*) AS n, count(DISTINCT job) AS jobs, sum(value) AS total \
                    FROM sealed_samples WHERE value >= 0 GROUP BY metric ORDER BY metric";

/// A configuration in a file.
fn configured(at: &str, config: &str) -> (FlightServer, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), config).expect("written");
    let args = ["--config", file.path().to_str().expect("UTF-8")];
    (FlightServer::start_at(at, &args), file)
}

/// A hub with jobs, and two that help it.
struct Site {
    asked: FlightServer,
    helpers: Vec<FlightServer>,
    _files: Vec<tempfile::NamedTempFile>,
}

impl Site {
    async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts a site whose helpers read another folder than that of the segments, if one is given.
    async fn start_with(folder: Option<&Path>) -> Self {
        let at: Vec<String> = (0..2).map(|_| format!("127.0.0.1:{}", free_port())).collect();
        let urls: Vec<String> = at.iter().map(|at| format!("\"grpc://{at}\"")).collect();
        let config = format!("[hub.jobs]\nhelpers = [{}]\n", urls.join(", "));
        let (asked, file) = configured(&format!("127.0.0.1:{}", free_port()), &config);
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
        let segments = asked.up.path().join("state/jobs/lts");
        let folder = folder.unwrap_or(&segments);
        let config = format!("[hub.jobs]\nhelps_with = {:?}\n", folder.display().to_string());
        let (helpers, mut files): (Vec<_>, Vec<_>) =
            at.iter().map(|at| configured(at, &config)).unzip();
        files.push(file);
        Self { asked, helpers, _files: files }
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
}

fn sums() -> Json {
    let n = SAMPLES * 6;
    let of_positions: i64 = (0..SAMPLES).sum();
    json!([
        {"metric": "cpu/busy_ratio", "n": n, "jobs": 6, "total": (21 * SAMPLES) as f64},
        {"metric": "mem/used_bytes", "n": n, "jobs": 6, "total": (6 * of_positions) as f64},
    ])
}

#[tokio::test]
async fn three_hubs_answer_as_one_and_a_killed_one_is_done_without() {
    let mut site = Site::start().await;
    let alone = "SELECT count(*) AS n FROM job_samples WHERE job IN \
                 ('a/1', 'a/2', 'a/3', 'b/4', 'b/5', 'b/6')";
    assert_eq!(site.ask(alone, "30s"), json!([{"n": 2 * 6 * SAMPLES}]));
    assert_eq!(site.ask(SUMS, "30s"), sums());
    for helper in [0, 1] {
        eventually("the helper worked", || site.requests(helper) >= 2.0);
    }
    // A hub that is stopped has accepted its share when it is killed.
    signal(&site.helpers[0].up.child, "STOP");
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| site.ask(SUMS, "60s"));
        std::thread::sleep(std::time::Duration::from_millis(1500));
        assert!(!asking.is_finished(), "the answer waits for the helper");
        signal(&site.helpers[0].up.child, "KILL");
        asking.join().expect("answered")
    });
    assert_eq!(answer, sums());
    site.helpers[0].up.kill();
    // Two are left.
    let before = site.requests(1);
    assert_eq!(site.ask(SUMS, "30s"), sums());
    eventually("the other one still works", || site.requests(1) > before);
    // A helper that does not answer, and never will, costs a part of the time and no row.
    signal(&site.helpers[1].up.child, "STOP");
    assert_eq!(site.ask(SUMS, "20s"), sums());
    site.helpers[1].up.kill();
    assert_eq!(site.ask(SUMS, "30s"), sums());
}

#[tokio::test]
async fn a_helper_without_the_segments_makes_no_gap_in_the_answer() {
    let empty = tempfile::tempdir().expect("a folder");
    let site = Site::start_with(Some(empty.path())).await;
    assert_eq!(site.ask(SUMS, "30s"), sums());
    eventually("a helper was asked", || site.requests(0) >= 1.0);
}

#[tokio::test]
async fn a_damaged_segment_is_an_error_with_helpers_as_without() {
    let site = Site::start().await;
    let lts = site.asked.up.path().join("state/jobs/lts");
    let files = std::fs::read_dir(&lts).expect("a folder").flatten().map(|file| file.path());
    let mut segments = files.filter(|path| path.extension().is_some_and(|it| it == "parquet"));
    let one = segments.next().expect("a segment");
    let bytes = std::fs::read(&one).expect("read");
    let mut damaged = bytes.clone();
    damaged[100] ^= 1;
    std::fs::write(&one, &damaged).expect("written");
    let ran = site.asked.up.run(&["sql", "--json", SUMS]);
    assert_ne!(ran.code, 0, "{ran:?}");
    std::fs::write(&one, &bytes).expect("written");
    assert_eq!(site.ask(SUMS, "30s"), sums());
}
