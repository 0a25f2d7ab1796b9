//! The registered tables, over a source in memory and archives in scratch folders.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};
use skopos_access::Caller;
use skopos_model::task::SUMMARY_VERSION;
use skopos_model::{Kind, Sample, Structured, Timestamp, Topic, Unit, Value};
use skopos_query::arrow::util::display::{ArrayFormatter, FormatOptions};
use skopos_query::{Described, Engine, Error, Limits, Node, Registry, Row, Source, Wanted};
use skopos_store::archive::Archive;

use super::{InsightInfo, Stores, register};
use crate::jobs::JobsPlace;
use crate::rules::RulesPlace;

/// The time in every test.
const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

/// Topics with one sample each.
#[derive(Debug)]
pub(super) struct World(Vec<(Topic, Sample)>);

impl World {
    pub(super) fn new(all: &[(&str, Value)]) -> Self {
        let one = |(topic, value): &(&str, Value)| {
            (Topic::new(topic).expect("a topic"), Sample::measured(NOW, value.clone()))
        };
        Self(all.iter().map(one).collect())
    }

    fn each(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        for (topic, sample) in self.0.iter().filter(|(topic, _)| wanted.selects(topic.as_str())) {
            let (kind, value_type) = (Kind::Gauge, sample.value.value_type());
            let of = Described { topic, unit: Unit::NONE, kind, value_type, publisher: "test" };
            visit(&Row { of, sample, checked_at: sample.time, ahead: 0, age: None });
        }
    }
}

impl Source for World {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        self.each(wanted, visit);
    }

    fn samples(
        &self,
        wanted: &Wanted,
        times: RangeInclusive<Timestamp>,
        visit: &mut dyn FnMut(&Row<'_>),
    ) {
        self.each(wanted, &mut |row| {
            if times.contains(&row.sample.time) {
                visit(row);
            }
        });
    }

    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>)) {
        self.each(wanted, &mut |row| visit(&row.of));
    }

    fn nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

fn engine_over(world: World, archive: Option<PathBuf>) -> Engine {
    let source: Arc<dyn Source> = Arc::new(world);
    let mut registry = Registry::new(source.clone());
    let jobs = Arc::new(JobsPlace::new(None, "site", crate::jobs::JobsSettings::default()));
    let insight = |topic: &Topic| {
        let text = |text: &str| (topic.metric() == "load").then(|| text.to_owned());
        InsightInfo { formula: text("sum of loads"), reason: text("no agent is alive") }
    };
    let stores = Stores { archive, traces: None, jobs, rules: RulesPlace::default() };
    register(&mut registry, &source, stores, Box::new(insight)).expect("registered");
    Engine::new(registry).expect("an engine")
}

fn engine(archive: Option<PathBuf>) -> Engine {
    let total = |bytes| Value::F64(bytes);
    let world = [("n01/mem/total_bytes", total(8e9)), ("n02/mem/total_bytes", total(4e9))];
    engine_over(World::new(&world), archive)
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

/// Returns each row as text, sorted.
fn answer(engine: &Engine, sql: &str) -> Vec<String> {
    rows_for(engine, &Caller::Owner, sql).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// Returns each row that a caller gets as text, sorted.
pub(super) fn rows_for(engine: &Engine, caller: &Caller, sql: &str) -> Result<Vec<String>, Error> {
    let answer = block_on(engine.query(caller, sql, &Limits::default()))?;
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in &answer.batches {
        let columns = batch.columns().iter();
        let columns: Vec<ArrayFormatter<'_>> =
            columns.map(|c| ArrayFormatter::try_new(c, &options).expect("a column")).collect();
        for at in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(at).to_string()).collect();
            rows.push(cells.join(" | "));
        }
    }
    rows.sort();
    Ok(rows)
}

/// A report of a task that began at a time and used this many bytes.
fn report(class: &str, node: &str, at: f64, bytes: f64) -> Json {
    let reading = |value: Option<f64>, unit: &str, completeness: &str| {
        json!({"value": value, "unit": unit, "method": "procfs", "completeness": completeness,
               "error_bound": null})
    };
    json!({
        "version": SUMMARY_VERSION,
        "task": {"class": class, "command": [class, "-j", "2"], "folder": "/scratch",
                 "monitor": "skopos 0.1.0"},
        "host": {"node": node, "kernel": "6", "cores": 2, "memory_bytes": 1},
        "start_seconds": at, "end_seconds": at + 2.5,
        "ended": {"exit_type": "signal", "status": null, "signal": 9, "limits": [], "guilty": null},
        "level": 2,
        "resources": {
            "resident_bytes_max": reading(Some(bytes), "bytes", "sampled"),
            "wall_seconds": reading(Some(2.5), "seconds", "all"),
            "cpu_seconds": reading(Some(1.0), "seconds", "at_least"),
            "swap_bytes_max": reading(None, "bytes", "none"),
        },
        "mechanisms": [], "overhead": {"cpu_seconds": 0.0, "resident_bytes_max": 1, "stops": 0},
        "disturbed": [], "findings": [], "processes": [], "processes_left_out": 0
    })
}

fn archive(file: &Path, reports: impl IntoIterator<Item = Json>) {
    let mut archive = Archive::create(file).expect("an archive");
    for report in reports {
        let summary = serde_json::from_value(report).expect("a report");
        assert!(archive.add(&summary, None).expect("added"));
    }
}

#[test]
fn files_of_archived_tasks_are_rows_of_their_node_and_class() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tasks.sqlite");
    let reported = folder.path().join("reports/a");
    std::fs::create_dir_all(&reported).expect("a folder");
    let of = |path: &str, bytes: u64| {
        json!({"path": path, "kind": "file", "device": 1, "inode": 7, "opens": 1, "closes": 1,
               "reads": 1, "writes": 0, "read_bytes": bytes, "written_bytes": 0,
               "stream_read_bytes": 0, "stream_written_bytes": 0, "read_sizes": [0, 1],
               "write_sizes": [], "maps": 0, "mapped_bytes": 0})
    };
    let files = json!({"version": skopos_model::task::FILES_VERSION, "method": "preload",
        "completeness": "all", "reason": "", "read_bytes": 7, "written_bytes": 0,
        "unattributed_read_bytes": null, "unattributed_written_bytes": null, "files_total": 2,
        "files": [of("/a", 4), of("/b", 3)], "files_left_out": 0, "left_out": of("", 0),
        "peers": [], "peers_left_out": 0, "processes": [], "processes_left_out": 0,
        "processes_not_seen": 0, "not_seen": []});
    let task = report("align", "n01", 1_000.0, 2e9);
    std::fs::write(reported.join("summary.json"), task.to_string()).expect("written");
    std::fs::write(reported.join("files.json"), files.to_string()).expect("written");
    archive(&file, (0..40).map(|at| report("merge", "n02", f64::from(at), 1e9)));
    let mut opened = Archive::create(&file).expect("an archive");
    let done = opened.import(&[reported], "", &|_| Ok(Vec::new()), &|_| {}).expect("imported");
    assert_eq!((done.added, done.refused), (1, 0), "{done:?}");
    let engine = engine(Some(file));
    let sql = "SELECT f.node, f.class, f.path, f.read_bytes, f.read_sizes, t.resident_bytes_max \
               FROM task_files f JOIN tasks t USING (node, class, started_at)";
    let expected = [
        "n01 | align | /a | 4.0 | [0,1] | 2000000000.0",
        "n01 | align | /b | 3.0 | [0,1] | 2000000000.0",
    ];
    assert_eq!(answer(&engine, sql), expected);
    assert_eq!(answer(&engine, "SELECT path FROM task_files WHERE class = 'merge'").len(), 0);
    let anybody = rows_for(&engine, &Caller::Anybody, "SELECT path FROM task_files");
    assert!(anybody.is_err() || anybody.is_ok_and(|rows| rows.is_empty()));
    assert_eq!(answer(&engine_over(World::new(&[]), None), "SELECT path FROM task_files").len(), 0);
}

#[test]
fn tasks_join_with_live_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tasks.sqlite");
    let of_job = |mut report: Json| {
        report["job"] = json!({"id": "4711", "launcher": "slurm", "ranks_total": 8, "ranks": [],
                               "ranks_left_out": 6, "missing": [3], "missing_total": 1});
        report
    };
    let ranked = |mut report: Json| {
        report["task"]["rank"] = json!({"job": "12", "rank": 3, "size": 4, "launcher": "pmi"});
        report
    };
    archive(
        &file,
        [
            report("align", "n01", 1_000.0, 2e9),
            report("align", "n02", 2_000.25, 3e9),
            ranked(report("it's", "n01", 3_000.0, 1e9)),
            of_job(report("solve", "n02", 4_000.0, 5e9)),
        ],
    );
    let engine = engine(Some(file));
    for (sql, expected) in [
        (
            "SELECT t.class, t.node, t.resident_bytes_max / m.total_bytes AS share FROM tasks t
             JOIN mem m ON m.node = t.node WHERE t.class IN ('align', 'solve')",
            &["align | n01 | 0.25", "align | n02 | 0.75", "solve | n02 | 1.25"] as &[&str],
        ),
        (
            "SELECT class, started_at, ended_at, exit, status, signal, command, folder, level,
             collection, monitor, job, rank FROM tasks WHERE class = 'it''s'",
            &[
                "it's | 1970-01-01T00:50:00Z | 1970-01-01T00:50:02.500Z | signal | NULL | 9 | it's -j 2 | /scratch | 2 | NULL | skopos 0.1.0 | 12 | 3",
            ],
        ),
        (
            "SELECT wall_seconds, swap_bytes_max, energy_joules, lower_bounds FROM tasks WHERE node = 'n01' AND class = 'align'",
            &["2.5 | NULL | NULL | cpu_seconds,resident_bytes_max"],
        ),
        ("SELECT count(*) FROM tasks", &["4"]),
        (
            "SELECT node, count(*), max(resident_bytes_max) FROM tasks GROUP BY node",
            &["n01 | 2 | 2000000000.0", "n02 | 2 | 5000000000.0"],
        ),
        (
            "SELECT class FROM tasks WHERE started_at > '1970-01-01T00:33:20Z' AND ended_at <= '1970-01-01T00:50:02.5Z' AND status IS NULL",
            &["align", "it's"],
        ),
        ("SELECT class FROM tasks WHERE started_at = '1970-01-01T00:33:20.25Z'", &["align"]),
        ("SELECT class FROM tasks WHERE node = 'n01' AND node = 'n02'", &[]),
        ("SELECT class FROM tasks WHERE class <> 'align' ORDER BY started_at LIMIT 1", &["it's"]),
        ("SELECT class FROM tasks WHERE job IS NOT NULL", &["it's", "solve"]),
        (
            "SELECT job, launcher, ranks, missing_ranks, class, resident_bytes_max FROM parallel_jobs",
            &["4711 | slurm | 8 | 1 | solve | 5000000000.0"],
        ),
        ("SELECT job FROM parallel_jobs WHERE class = 'align'", &[]),
    ] {
        assert_eq!(answer(&engine, sql), expected, "{sql}");
    }
}

#[test]
fn classes_have_statistics_and_estimates() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tasks.sqlite");
    let ended = |mut report: Json| {
        report["ended"]["exit_type"] = json!("normal");
        report["ended"]["status"] = json!(0);
        report
    };
    let good = (1..=4).map(|at| ended(report("align", "n01", f64::from(at), f64::from(at) * 1e9)));
    let others = [report("align", "n02", 9.0, 7e9), report("it's", "n01", 3_000.0, 1e9)];
    archive(&file, good.chain(others));
    let engine = engine(Some(file));
    for (sql, expected) in [
        (
            "SELECT node, unit, tasks, lower_bounds, unknown, mean, min, max FROM task_stats
             WHERE class = 'align' AND resource = 'resident_bytes_max'",
            &[
                "n01 | bytes | 4 | 4 | 0 | 2500000000.0 | 1000000000.0 | 4000000000.0",
                "n02 | bytes | 1 | 1 | 0 | 7000000000.0 | 7000000000.0 | 7000000000.0",
            ] as &[&str],
        ),
        ("SELECT DISTINCT class FROM task_stats WHERE p50 > 0", &["align", "it's"]),
        (
            "SELECT goal, unit, allocation, maximum, tasks, unfinished, unknown FROM task_estimates
             WHERE class = 'align' AND resource = 'resident_bytes_max' AND goal = 'retries'",
            &["retries | bytes | 4000000000.0 | 4000000000.0 | 4 | 1 | 0"],
        ),
        // No task of the class has returned 0.
        ("SELECT goal FROM task_estimates WHERE class = 'it''s'", &[]),
        ("SELECT count(*) FROM task_estimates WHERE resource = 'none'", &["0"]),
    ] {
        assert_eq!(answer(&engine, sql), expected, "{sql}");
    }
}

#[test]
fn an_archive_of_many_pages_is_read_to_its_end_and_may_grow() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tasks.sqlite");
    archive(&file, (0..2_500).map(|at| report("many", "n01", f64::from(at), f64::from(at))));
    let engine = engine(Some(file.clone()));
    let all = "SELECT count(*), sum(resident_bytes_max), min(class) FROM tasks";
    assert_eq!(answer(&engine, all), ["2500 | 3123750.0 | many"]);
    let late = "SELECT count(*) FROM tasks WHERE started_at >= to_timestamp_seconds(2000)";
    assert_eq!(answer(&engine, late), ["500"]);
    archive(&file, [report("many", "n01", 1e6, 1.0)]);
    assert_eq!(answer(&engine, late), ["501"], "plans are cached, rows are not");
    assert_eq!(answer(&engine, "SELECT class FROM tasks LIMIT 2"), ["many", "many"]);
}

#[test]
fn a_missing_archive_has_no_rows_and_a_broken_one_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    for archive in [None, Some(folder.path().join("nothing.sqlite"))] {
        let engine = engine(archive);
        assert_eq!(answer(&engine, "SELECT count(*) FROM tasks"), ["0"]);
        assert_eq!(
            answer(
                &engine,
                "SELECT m.node, j.class FROM mem m LEFT JOIN parallel_jobs j ON j.folder = m.node"
            ),
            ["n01 | NULL", "n02 | NULL"]
        );
    }
    assert!(!folder.path().join("nothing.sqlite").exists(), "a query creates no archive");
    let text = folder.path().join("text.sqlite");
    std::fs::write(&text, "no archive").expect("written");
    let none = folder.path().join("empty.sqlite");
    std::fs::write(&none, "").expect("written");
    let directory = folder.path().join("folder");
    std::fs::create_dir(&directory).expect("made");
    for (file, why) in [
        (&text, "is not an archive of tasks"),
        (&none, "is not an archive of tasks"),
        (&directory, ": it cannot be opened: "),
    ] {
        let engine = engine(Some(file.clone()));
        let asked =
            block_on(engine.query(&Caller::Owner, "SELECT class FROM tasks", &Limits::default()));
        let Err(Error::Query { message }) = asked else { panic!("{asked:?}") };
        let problem = message.strip_prefix(&file.display().to_string());
        assert!(problem.is_some_and(|problem| problem.contains(why)), "{message}");
    }
    assert_eq!(std::fs::read(&none).expect("read"), b"", "a query changes no file");
}

#[test]
fn insights_have_formula_and_reason() {
    let world = [("n01/insight/load", 0.5), ("n01/insight/other", 1.0), ("n01/load/load_1m", 2.0)];
    let world = World::new(&world.map(|(topic, value)| (topic, Value::F64(value))));
    let engine = engine_over(world, None);
    assert_eq!(
        answer(&engine, "SELECT topic, value, formula, reason FROM insights"),
        [
            "n01/insight/load | 0.5 | sum of loads | no agent is alive",
            "n01/insight/other | 1.0 | NULL | NULL",
        ]
    );
    assert_eq!(answer(&engine, "SELECT metric FROM insights WHERE metric = 'load'"), ["load"]);
    let inputs =
        block_on(engine.inputs(&Caller::Owner, "SELECT topic FROM insights")).expect("inputs");
    let all = engine.fingerprint(&inputs, &|_| true);
    assert_eq!(engine.fingerprint(&inputs, &|t| t.as_str().contains("/insight/")), all);
    assert_ne!(engine.fingerprint(&inputs, &|t| t.metric() != "load"), all);
}

#[test]
fn anomalies_have_the_fields_of_the_event() {
    let event = json!({
        "rule": "memory-low", "detector": "threshold", "topic": "n01/mem/used_ratio",
        "state": "raised", "at_ns": 1_000_000_000_000_i64, "since_ns": 990_000_000_000_i64,
        "came": 0.97, "expected": {"value": 0.95, "low": null, "high": 0.95}, "score": 1.02,
        "suppressed": 0,
    });
    let event = Value::Structured(Structured::new(event).expect("an event"));
    let world = [("n01/anomaly/memory-low", event), ("n01/mem/used_ratio", Value::F64(0.97))];
    let engine = engine_over(World::new(&world), None);
    for (condition, count) in [
        ("topic LIKE 'n01/mem/%' AND time > '1970-01-01T00:16:00Z'", 1),
        ("topic = 'n01/mem/used_ratio' AND node = 'n01'", 1),
        ("node = 'n02'", 0),
        ("topic = 'n01/anomaly/memory-low'", 0),
        ("time > '1970-01-01T00:17:00Z'", 0),
    ] {
        let sql = format!(
            "SELECT node, topic, rule, state, since, came, high, low, suppressed FROM anomalies
             WHERE {condition}"
        );
        let expected = "n01 | n01/mem/used_ratio | memory-low | raised | 1970-01-01T00:16:30Z \
                        | 0.97 | 0.95 | NULL | 0";
        assert_eq!(answer(&engine, &sql), vec![expected; count], "{sql}");
    }
    let sql = "SELECT rule FROM anomalies WHERE topic = 'n01/mem/used_ratio'";
    let inputs = block_on(engine.inputs(&Caller::Owner, sql)).expect("inputs");
    let all = engine.fingerprint(&inputs, &|_| true);
    assert_eq!(engine.fingerprint(&inputs, &|t| t.as_str().contains("/anomaly/")), all);
    assert_ne!(engine.fingerprint(&inputs, &|t| !t.as_str().contains("/anomaly/")), all);
}

#[test]
fn a_rank_is_a_row_of_its_candidate() {
    let known = |of: &str, [weight, trust, age]: [f64; 3], [place, state]: [u64; 2]| {
        let topic = |column| format!("n01/rank/{of}/{column}");
        vec![
            (topic("weight"), Value::F64(weight)),
            (topic("trust"), Value::F64(trust)),
            (topic("age_seconds"), Value::F64(age)),
            (topic("place"), Value::U64(place)),
            (topic("state"), Value::U64(state)),
        ]
    };
    // The second keeps the age of the time when it was known. The last is not a rank.
    let mut facts = known("reads@10.0.0.3:9042", [0.8, 1.0, 0.5], [1, 0]);
    facts.extend(known("reads@n02", [0.2, 0.0, 9.0], [2, 3]));
    facts.extend(known("reads", [1.0, 1.0, 1.0], [1, 0]));
    let facts: Vec<(&str, Value)> = facts.iter().map(|(t, v)| (t.as_str(), v.clone())).collect();
    let engine = engine_over(World::new(&facts), None);
    let columns = "node, profile, candidate, place, weight, age_seconds, state, samples";
    let sql = format!("SELECT {columns} FROM ranks WHERE node = 'n01'");
    assert_eq!(
        answer(&engine, &sql),
        [
            "n01 | reads | 10.0.0.3:9042 | 1 | 0.8 | 0.5 | known | NULL",
            "n01 | reads | n02 | 2 | 0.2 | NULL | unknown | NULL"
        ]
    );
}

#[test]
fn tasks_are_asked_again_with_the_clock() {
    let inputs =
        block_on(engine(None).inputs(&Caller::Owner, "SELECT class FROM tasks")).expect("inputs");
    assert!(inputs.is_timed(), "the archive does not notify of new reports");
}

#[test]
fn tables_have_help() {
    let engine = engine(None);
    let all = "SELECT name FROM tables WHERE help <> '' AND
               name IN ('insights', 'anomalies', 'tasks', 'parallel_jobs', 'jobs', 'job_samples',
               'job_metadata', 'job_findings', 'task_stats', 'task_estimates', 'ranks')";
    assert_eq!(
        answer(&engine, all),
        [
            "anomalies",
            "insights",
            "job_findings",
            "job_metadata",
            "job_samples",
            "jobs",
            "parallel_jobs",
            "ranks",
            "task_estimates",
            "task_stats",
            "tasks"
        ]
    );
    assert_eq!(answer(&engine, "SELECT name FROM columns WHERE help = ''"), [""; 0]);
}
