//! Reports of tasks as tables, beside what is live.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use skopos_model::Unit;
use skopos_model::task::SUMMARY_VERSION;
use skopos_query::{Engine, Error, Limits};
use skopos_store::archive::Archive;

use crate::world::{World, ask, block_on, rows};

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
        assert!(archive.add(&summary).expect("added"));
    }
}

fn engine(archive: Option<PathBuf>) -> Engine {
    let world = World::default().with("n01/mem/total_bytes", Unit::BYTES, &[8e9]).with(
        "n02/mem/total_bytes",
        Unit::BYTES,
        &[4e9],
    );
    World { archive, ..world }.engine(&[])
}

fn answer(engine: &Engine, sql: &str) -> Vec<String> {
    rows(&ask(engine, sql)).1
}

#[test]
fn tasks_stand_beside_what_is_live() {
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
            "SELECT job, launcher, ranks, missing_ranks, class, resident_bytes_max FROM jobs",
            &["4711 | slurm | 8 | 1 | solve | 5000000000.0"],
        ),
        ("SELECT job FROM jobs WHERE class = 'align'", &[]),
    ] {
        assert_eq!(answer(&engine, sql), expected, "{sql}");
    }
}

#[test]
fn an_archive_of_many_pages_is_read_whole_and_grows_while_it_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tasks.sqlite");
    archive(&file, (0..2_500).map(|at| report("many", "n01", f64::from(at), f64::from(at))));
    let engine = engine(Some(file.clone()));
    let all = "SELECT count(*), sum(resident_bytes_max), min(class) FROM tasks";
    assert_eq!(answer(&engine, all), ["2500 | 3123750.0 | many"]);
    let late = "SELECT count(*) FROM tasks WHERE started_at >= to_timestamp_seconds(2000)";
    assert_eq!(answer(&engine, late), ["500"]);
    archive(&file, [report("many", "n01", 1e6, 1.0)]);
    assert_eq!(answer(&engine, late), ["501"], "the plan is kept, its rows are not");
    assert_eq!(answer(&engine, "SELECT class FROM tasks LIMIT 2"), ["many", "many"]);
}

#[test]
fn without_an_archive_there_are_no_tasks_and_a_broken_one_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    for archive in [None, Some(folder.path().join("nothing.sqlite"))] {
        let engine = engine(archive);
        assert_eq!(answer(&engine, "SELECT count(*) FROM tasks"), ["0"]);
        assert_eq!(
            answer(
                &engine,
                "SELECT m.node, j.class FROM mem m LEFT JOIN jobs j ON j.folder = m.node"
            ),
            ["n01 | NULL", "n02 | NULL"]
        );
    }
    assert!(!folder.path().join("nothing.sqlite").exists(), "nobody makes one to ask it");
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
        let asked = block_on(engine.query("SELECT class FROM tasks", &Limits::default()));
        let Err(Error::Query { message }) = asked else { panic!("{asked:?}") };
        let told = message.strip_prefix(&file.display().to_string());
        assert!(told.is_some_and(|told| told.contains(why)), "{message}");
    }
    assert_eq!(std::fs::read(&none).expect("read"), b"", "nothing is made of what is asked");
}
