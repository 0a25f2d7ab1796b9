//! `skopos job`: one job, with ids that have slashes, quotes and dots.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use skopos_hub::client::{reach, store_jobs};
use skopos_hub::messages::{JobDocument, StoreRequest};

use crate::json::check;
use crate::support::{PATIENCE, Ran, Running, eventually};

/// An id that would end a text of SQL, a path or an element of HTML.
const ODD: &str = "a/../b'; DROP <i>\"x\".g1";

/// A hub with jobs: one with a leak and hostile texts, two runs of one id, and two with a common beginning.
fn site() -> Running {
    let up = Running::start_as("up", &[]);
    let record = |job: &str, generation, kind: &str, seconds: i64, document: Json| JobDocument {
        job: job.to_owned(),
        generation,
        node: "n01".to_owned(),
        time_ns: 1_700_000_000_000_000_000 + seconds * 1_000_000_000,
        kind: kind.to_owned(),
        document,
    };
    let start = json!({"user": "ann", "name": "<script>alert(1)</script>", "tags": ["old"],
                       "requested": {"cores": 4.0}, "start_seconds": 1.7e9});
    let names = json!({"schema": "task", "names": ["resident_bytes", "cpu_seconds"]});
    let end = json!({"state": "completed", "end_seconds": 1.7e9 + 60.0,
                     "used": {"cpu_seconds": 30.0, "wall_seconds": 60.0}});
    let mut records = vec![record(ODD, 0, "start", 0, start), record(ODD, 0, "metrics", 0, names)];
    records.extend((0..60).map(|at| {
        let values =
            json!([1e8 + 1e7 * at as f64, if at == 5 { None } else { Some(0.5 * at as f64) }]);
        record(ODD, 0, "sample", at, json!({"schema": "task", "values": values}))
    }));
    records.push(record(ODD, 0, "end", 60, end));
    for (job, generation) in [("7", 0), ("7", 1), ("job-1", 0), ("job-2", 0)] {
        let start = json!({"user": "ann", "requested": {"wall_seconds": 7200.0}});
        records.push(record(job, generation, "start", 0, start));
        let cpu = 10.0 * f64::from(generation + 1);
        let end = json!({"state": "completed", "used": {"cpu_seconds": cpu, "wall_seconds": 9.0}});
        records.push(record(job, generation, "end", 9, end));
    }
    let request = StoreRequest {
        store_jobs: records,
        producer: "test".to_owned(),
        epoch: 1,
        ..StoreRequest::default()
    };
    let stream = reach(up.path(), PATIENCE).expect("a hub").expect("it runs");
    store_jobs(&stream, &request).expect("stored");
    eventually("the jobs are listed", || {
        let listed = up.run(&["sql", "--json", "SELECT job FROM jobs WHERE state = 'completed'"]);
        listed.json()["rows"].as_array().is_some_and(|rows| rows.len() == 5)
    });
    up
}

fn refused(ran: &Ran, code: i32, error: &str, hint: &str) {
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(ran.stderr.contains(error) && ran.stderr.contains(hint), "{ran:?}");
}

#[test]
fn a_job_is_shown_with_what_was_found() {
    let up = site();
    let shown = up.run(&["job", "show", ODD, "--json"]);
    let document = shown.json();
    check("job_show", &document);
    assert_eq!(document["job"], ODD);
    assert_eq!(document["metadata"]["state"], "completed");
    let found: Vec<&str> = document["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|finding| finding["verdict"] == "found")
        .filter_map(|finding| finding["finding"].as_str())
        .collect();
    assert_eq!(found, ["idle_cores", "memory_leak"]);
    assert_eq!(document["used"]["cpu_seconds"], 30.0);
    let metrics: Vec<&Json> =
        document["series"].as_array().expect("series").iter().map(|line| &line["metric"]).collect();
    assert_eq!(metrics, ["cpu_seconds", "resident_bytes"]);
    let text = up.run(&["job", "show", ODD]).stdout;
    for part in
        ["warning: memory_leak: ", "  evidence: growth in a second: ", "  advice: ", "▁▁", "█"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plain = up.run(&["job", "show", ODD, "--plain"]).stdout;
    assert!(plain.contains("\nfinding\tmemory_leak\tfound\twarning\t"), "{plain}");
}

#[test]
fn an_id_that_is_not_one_job_is_refused_with_the_nearest_ids() {
    let up = site();
    refused(&up.run(&["job", "show", "7"]), 2, "the job `7` has 2 runs", "7.g0, 7.g1");
    assert_eq!(up.run(&["job", "show", "7.g1", "--json"]).json()["generation"], 1);
    assert_eq!(up.run(&["job", "show", "7.g0", "--json"]).json()["generation"], 0);
    let shown = up.run(&["job", "show", "7.g0"]).stdout;
    let requested = shown.lines().find(|line| line.starts_with("requested wall_seconds"));
    assert!(requested.is_some_and(|line| line.ends_with(" 2 h 00 m")), "{shown}");
    refused(&up.run(&["job", "show", "job-"]), 2, "the ids of 2 jobs begin with", "job-1, job-2");
    assert_eq!(up.run(&["job", "show", "a/../", "--json"]).json()["job"], ODD);
    refused(&up.run(&["job", "show", "jobb-1"]), 1, "there is no job `jobb-1`", "job-1");
    refused(&up.run(&["job", "show", "x' OR '1'='1"]), 1, "there is no job", "skopos jobs");
    refused(&up.run(&["job", "show", ""]), 1, "there is no job ``", "skopos jobs");
    let alone = crate::support::runtime_dir();
    let ran = crate::support::run(alone.path(), &["job", "show", "7"]);
    refused(&ran, 2, "no hub runs", "skopos up");
}

#[test]
fn jobs_are_compared_by_what_differs_first() {
    let up = site();
    let compared = up.run(&["job", "compare", "7.g0", "7.g1", "--json"]).json();
    check("job_compare", &compared);
    let first =
        json!({"metric": "cpu_seconds", "unit": "seconds", "a": 10.0, "b": 20.0, "ratio": 2.0});
    assert_eq!(compared["metrics"][0], first);
    assert_eq!(compared["metrics"][1]["metric"], "wall_seconds");
    let odd = up.run(&["job", "compare", ODD, "job-1", "--json"]).json();
    check("job_compare", &odd);
    let tags = json!({"field": "tag", "a": ["old"], "b": []});
    assert!(odd["metadata"].as_array().expect("a list").contains(&tags), "{odd}");
    // `cpu_seconds` counts up: its sum is compared, and a mean over time is not.
    let metrics = odd["metrics"].as_array().expect("a list").iter();
    let metrics: Vec<&str> = metrics.filter_map(|pair| pair["metric"].as_str()).collect();
    assert!(metrics.contains(&"mean resident_bytes"), "{metrics:?}");
    assert!(!metrics.contains(&"mean cpu_seconds"), "{metrics:?}");
    let text = up.run(&["job", "compare", "7.g0", "7.g1"]).stdout;
    assert!(text.starts_with("metric") && text.contains("2.00"), "{text}");
}

#[test]
fn a_job_is_tagged_and_its_tags_are_removed() {
    let up = site();
    let tags = |args: &[&str]| {
        let all = [&["job", "tag", ODD, "--json"], args].concat();
        let document = up.run(&all).json();
        check("job_tag", &document);
        document["tags"].clone()
    };
    assert_eq!(tags(&["paper=fig2", "it's"]), json!(["it's", "old", "paper=fig2"]));
    assert_eq!(tags(&["paper=fig3"]), json!(["it's", "old", "paper=fig3"]));
    assert_eq!(tags(&["--remove", "paper", "--remove", "old"]), json!(["it's"]));
    // They are those of the job, and not only of the answer.
    assert_eq!(tags(&[]), json!(["it's"]));
    refused(&up.run(&["job", "tag", ODD, "=x"]), 2, "is not a tag", "KEY=VALUE");
    refused(&up.run(&["job", "tag", "nothing", "x"]), 1, "there is no job", "hint:");
}

#[test]
fn a_job_is_exported_in_each_format() {
    let up = site();
    let csv = up.run(&["job", "export", ODD, "--format", "csv"]).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines.len(), lines[0]), (121, "node,time,schema,metric,value"));
    assert!(lines[1].starts_with("n01,2023-11-14T22:13:20"), "{}", lines[1]);
    // A job without measurements has the names of the columns.
    assert_eq!(
        up.run(&["job", "export", "job-1", "-F", "csv"]).stdout,
        "node,time,schema,metric,value\n"
    );

    let page = up.run(&["job", "export", ODD, "--format", "html"]).stdout;
    for part in ["&lt;script&gt;alert(1)", "<polyline points=", "default-src 'none'", "memory_leak"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    for part in ["<script", "<i>", "src=", "href=", "url(", "@import", "http://", "https://"] {
        assert!(!page.contains(part), "{part}: {page}");
    }

    let file = up.path().join("job.parquet");
    let name = file.display().to_string();
    let ran = up.run(&["job", "export", ODD, "--format", "parquet", "--out", &name]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{ran:?}");
    let reader = parquet::file::reader::SerializedFileReader::try_from(file.as_path());
    let reader: Arc<dyn parquet::file::reader::FileReader> = Arc::new(reader.expect("a file"));
    let metadata = reader.metadata().file_metadata();
    assert_eq!(metadata.num_rows(), 120);
    let values = metadata.key_value_metadata().expect("metadata");
    let document = values.iter().find(|value| value.key == "skopos.job").expect("the job");
    let document: Json =
        serde_json::from_str(document.value.as_deref().unwrap_or_default()).expect("JSON");
    check("job_show", &document);
    let rows = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row").to_string());
    let rows: Vec<String> = rows.collect();
    assert!(
        rows[0].contains("node: \"n01\"") && rows[0].contains("metric: \"cpu_seconds\""),
        "{}",
        rows[0]
    );
    let nowhere = up.path().join("none/x.csv").display().to_string();
    let ran = up.run(&["job", "export", ODD, "-F", "csv", "--out", &nowhere]);
    refused(&ran, 2, "cannot be written", "No such file");
}

/// `skopos run` delivers its series: the hub finds what the report alone does not tell.
#[test]
fn a_task_of_run_has_a_series_in_the_hub() {
    let up = Running::start_as("up", &[]);
    let args = ["run", "--quiet", "--series", "50ms", "--name", "task", "--", "sleep", "1"];
    assert_eq!(up.run(&args).code, 0);
    let sql = "SELECT count(*) AS n FROM jobs WHERE application = 'task' AND samples >= 5";
    eventually("the job has a series", || {
        up.run(&["sql", "--json", sql]).json()["rows"][0]["n"] == 1
    });
    let shown = up.run(&["job", "show", "", "--json"]);
    assert_eq!(shown.code, 1, "an empty id is not the beginning of every id");
    let listed = up.run(&["sql", "--json", "SELECT job FROM jobs"]).json();
    let job = listed["rows"][0]["job"].as_str().expect("an id").to_owned();
    let document = up.run(&["job", "show", &job, "--json"]).json();
    check("job_show", &document);
    let has = |metric: &str| {
        document["series"]
            .as_array()
            .is_some_and(|all| all.iter().any(|line| line["metric"] == metric))
    };
    assert!(has("resident_bytes") && has("threads") && !has("seconds"), "{document}");
}
