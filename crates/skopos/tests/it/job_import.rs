//! `skopos job import`: tasks of an archive are jobs of a hub, each once, whatever happens on the way.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value as Json, json};

use crate::archive::report;
use crate::json::check;
use crate::support::{Ran, Running, eventually, run, runtime_dir, skopos};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Makes an archive of `reports` in a folder, in the set `autumn`.
fn archive_of(folder: &Path, reports: impl IntoIterator<Item = Json>) -> PathBuf {
    let (lines, archive) = (folder.join("reports.jsonl"), folder.join("past.sqlite"));
    let text_of: String = reports.into_iter().map(|report| format!("{report}\n")).collect();
    std::fs::write(&lines, text_of).expect("written");
    let import =
        ["archive", "import", "--set", "autumn", "--archive", text(&archive), text(&lines)];
    let ran = run(folder, &import);
    assert_eq!(ran.code, 0, "{ran:?}");
    archive
}

/// Returns `count` reports of tasks that took two seconds each.
fn reports(count: u64) -> impl Iterator<Item = Json> {
    (0..count).map(|n| report("align", if n % 2 == 0 { "n01" } else { "n02" }, n, n << 20))
}

/// Imports an archive, and returns the numbers of imported, known and refused tasks.
fn import(up: &Running, archive: &Path) -> (u64, u64, u64) {
    let ran = up.run(&["job", "import", text(archive), "--json"]);
    let document = ran.json();
    check("job_import", &document);
    assert_eq!(ran.code, i32::from(document["refused"] != json!(0)), "{ran:?}");
    let number = |name: &str| document[name].as_u64().expect("a number");
    (number("imported"), number("known"), number("refused"))
}

fn rows(ran: &Ran) -> Json {
    ran.json()["rows"].clone()
}

/// Waits until the hub has so many imported jobs, each once: all of them took two seconds.
fn has_jobs(up: &Running, count: u64) {
    let sql = "SELECT count(*) AS n, sum(wall_seconds) AS s FROM jobs \
               WHERE state = 'completed' AND has(tags, 'set=autumn')";
    let expected = json!([{"n": count, "s": 2.0 * count as f64}]);
    let mut last = Json::Null;
    eventually("the jobs are found", || {
        last = rows(&up.run(&["sql", "--json", sql]));
        assert!(last[0]["n"].as_u64() <= Some(count), "{last}");
        last == expected
    });
}

#[test]
fn tasks_of_an_archive_are_jobs_and_a_second_import_adds_nothing() {
    let mut up = Running::start_as("up", &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let archive = archive_of(folder.path(), reports(20));
    assert_eq!(import(&up, &archive), (20, 0, 0));
    assert_eq!(import(&up, &archive), (0, 20, 0));
    has_jobs(&up, 20);
    let listed = up.run(&["jobs", "--plain", "--tag", "set=autumn", "--host", "n02"]).stdout;
    assert_eq!(listed.lines().count(), 10, "{listed}");
    let sql = "SELECT job, \"user\", application, exit, started_at, ended_at, resident_bytes_max \
               FROM jobs WHERE resident_bytes_max = 7340032";
    let found = rows(&up.run(&["sql", "--json", sql]));
    assert_eq!(found[0]["user"], Json::Null, "the archive does not know it: {found}");
    assert_eq!((&found[0]["application"], &found[0]["exit"]), (&json!("align"), &json!("normal")));
    let at = |name: &str| found[0][name].as_str().unwrap_or_default().to_owned();
    assert!(at("started_at").starts_with("1970-01-01T00:00:07"), "{found}");
    assert!(at("ended_at").starts_with("1970-01-01T00:00:09"), "{found}");
    let shown = up.run(&["job", "show", &at("job"), "--json"]).json();
    check("job_show", &shown);
    let has = |field: &str, value: &str| {
        let fields = shown["fields"].as_array().expect("fields");
        fields.iter().any(|of| of["field"] == field && of["value"] == value)
    };
    assert!(has("tag", "set=autumn") && has("node", "n02") && has("reports", "1"), "{shown}");
    assert!(has("detail", "skopos 0.1.0") && has("command", "align"), "{shown}");
    let again = || {
        let other = up.run(&["job", "import", text(&archive)]);
        let told = format!("0 imported, 20 there already, 0 refused, of {}\n", archive.display());
        assert_eq!((other.code, other.stdout, other.stderr), (0, told, String::new()));
    };
    // Once their jobs are sealed, too.
    eventually("the jobs are sealed", || {
        let dump = up.run(&["mds", "dump"]).stdout;
        dump.lines().filter(|line| line.contains("task-") && line.contains("segment-")).count()
            == 20
    });
    again();
    up.restart_as("up", &[]);
    let few = ["job", "import", text(&archive), "--where", "host=n01", "--plain"];
    assert_eq!(up.run(&few).stdout, "0\t10\t0\n");
    has_jobs(&up, 20);
    check_tasks(&up, &archive);
}

/// Checks that the tables of tasks have those of an archive that lies elsewhere, each once.
fn check_tasks(up: &Running, imported: &Path) {
    let ask = |sql: &str| rows(&up.run(&["sql", "--json", sql]));
    let all = "SELECT count(*) AS n, sum(wall_seconds) AS s, min(collection) AS c FROM tasks";
    assert_eq!(ask(all), json!([{"n": 20, "s": 40.0, "c": "autumn"}]));
    let some = "SELECT count(*) AS n FROM tasks WHERE class = 'align' AND node = 'n02' \
                AND started_at >= to_timestamp_nanos(7000000000)";
    assert_eq!(ask(some), json!([{"n": 7}]));
    assert_eq!(ask("SELECT count(*) AS n FROM tasks WHERE class = 'other'"), json!([{"n": 0}]));
    // The archive of this machine has some of them.
    let own = up.path().join("state/tasks.sqlite");
    std::fs::copy(imported, &own).expect("copied");
    assert_eq!(ask(all), json!([{"n": 20, "s": 40.0, "c": "autumn"}]), "each task once");
}

/// Reports of other tools and files of tasks are imported, and tasks that the hub has from `skopos run` are not.
#[test]
fn the_usual_archive_is_imported_with_all_that_it_has() {
    let up = Running::start_as("up", &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let written = folder.path().join("written");
    let script = format!("echo 12345 > {}", written.display());
    let monitored = ["run", "--level=3", "--name=writer", "--archive", "--", "sh", "-c", &script];
    // The first task runs before there is a hub.
    let alone = runtime_dir();
    let state = up.path().join("state");
    let ran = skopos(alone.path(), &monitored).env("SKOPOS_STATE", &state).output();
    assert!(ran.expect("it starts").status.success());
    let ran = up.run(&["run", "--quiet", "--name=later", "--archive", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let found = |sql: &str, expected: Json| {
        eventually("the jobs are found", || rows(&up.run(&["sql", "--json", sql])) == expected);
    };
    let sql = "SELECT application FROM jobs WHERE ended_at IS NOT NULL";
    found(sql, json!([{"application": "later"}]));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../task/tests/data/import");
    let files = ["kickstart-traced.yml", "resource_monitor-memory.json"].map(|f| data.join(f));
    let others = ["archive", "import", text(&files[0]), text(&files[1])];
    assert_eq!(up.run(&others).code, 0);
    let ran = up.run(&["job", "import", "--json"]).json();
    assert_eq!(
        (&ran["imported"], &ran["known"], &ran["refused"]),
        (&json!(3), &json!(1), &json!(0))
    );
    let sql = "SELECT count(*) AS n FROM jobs WHERE job LIKE 'task-%' AND ended_at IS NOT NULL";
    found(sql, json!([{"n": 3}]));
    let listed = up.run(&["jobs", "--plain", "--text", "resource monitor"]).stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");

    let job =
        rows(&up.run(&["sql", "--json", "SELECT job FROM jobs WHERE application = 'writer'"]));
    let job = job[0]["job"].as_str().expect("an id").to_owned();
    let path = written.display();
    for (table, of) in [
        ("job_files", format!("job = '{job}' AND path = '{path}'")),
        ("task_files", format!("path = '{path}'")),
    ] {
        let sql = format!("SELECT class, written_bytes FROM {table} WHERE {of}");
        let found = rows(&up.run(&["sql", "--json", &sql]));
        assert_eq!(found, json!([{"class": "writer", "written_bytes": 6.0}]), "{table}");
    }
    // The imported task has its files too where the archive is away.
    let archive = up.path().join("state/tasks.sqlite");
    let aside = archive.with_extension("aside");
    std::fs::rename(&archive, &aside).expect("ours");
    let sql = format!("SELECT class, written_bytes FROM task_files WHERE path = '{path}'");
    let found = rows(&up.run(&["sql", "--json", &sql]));
    assert_eq!(found, json!([{"class": "writer", "written_bytes": 6.0}]));
    std::fs::rename(&aside, &archive).expect("ours");
    let exported = up.run(&["archive", "export", "--where", "name=writer"]).json();
    let files = exported["files"]["files"].as_array().expect("files");
    assert!(files.iter().any(|file| file["path"] == json!(text(&written))), "{exported}");
}

#[test]
fn damaged_tasks_are_named_and_the_others_imported() {
    let up = Running::start_as("up", &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let more = [report("broken", "n01", 100, 1), report(&"x".repeat(2_000), "n01", 101, 1)];
    let archive = archive_of(folder.path(), reports(5).chain(more));
    // A bit of the report flips on the disk.
    let mut bytes = std::fs::read(&archive).expect("there");
    let mark = b"\"class\":\"broken\"";
    let at = bytes.windows(mark.len()).position(|part| part == mark).expect("the report");
    bytes[at + mark.len() - 2] ^= 1;
    std::fs::write(&archive, bytes).expect("written");
    assert_eq!(import(&up, &archive), (5, 0, 2));
    let again = up.run(&["job", "import", text(&archive)]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stdout.starts_with("0 imported, 5 there already, 2 refused, of "), "{again:?}");
    for told in [
        "refused task 6: its report has changed since it was archived\n",
        "refused task 7: the record `start` of the job is not valid: `application` has a text of 2000",
    ] {
        assert!(again.stderr.contains(told), "{told}: {again:?}");
    }
    has_jobs(&up, 5);
}

#[test]
fn a_hub_that_restarts_in_the_middle_has_each_task_once() {
    /// So many that an import takes longer than a look at the hub's log.
    const TASKS: u64 = 2_000;
    /// Bytes of the hub's log after which it is killed: those of some hundred tasks.
    const SOME_BYTES: u64 = 300_000;
    let mut up = Running::start_as("up", &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let archive = archive_of(folder.path(), reports(TASKS));
    let mut importing = skopos(up.path(), &["job", "import", text(&archive), "--json"]);
    let importing = importing.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let importing = importing.expect("it starts");
    let logs = up.path().join("state/jobs/sts");
    eventually("the hub has some of the tasks", || {
        let files = std::fs::read_dir(&logs).into_iter().flatten().flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.len())).sum::<u64>() > SOME_BYTES
    });
    up.restart_as("up", &[]);
    let done = importing.wait_with_output().expect("it ends");
    assert!(done.status.success(), "{done:?}");
    let done: Json = serde_json::from_slice(&done.stdout).expect("JSON");
    let number = |name: &str| done[name].as_u64().expect("a number");
    // An acknowledgement that the kill has cost makes a task one that was there.
    assert_eq!((number("imported") + number("known"), number("refused")), (TASKS, 0), "{done}");
    assert!(number("imported") > TASKS / 2, "{done}");
    has_jobs(&up, TASKS);
    assert_eq!(import(&up, &archive), (0, TASKS, 0));
    has_jobs(&up, TASKS);
}

#[test]
fn an_import_without_a_hub_or_an_archive_is_refused_with_a_hint() {
    let folder = runtime_dir();
    let dir = folder.path();
    let archive = archive_of(dir, reports(1));
    let nowhere = dir.join("nowhere.sqlite");
    let other = dir.join("reports.jsonl");
    for (args, code, told) in [
        (&[text(&archive)][..], 2, "hint: start one with `skopos up`"),
        (&[text(&nowhere)], 1, "there is no archive"),
        (&[], 1, "hint: `skopos archive import DIR`"),
        (&[text(&other)], 2, "is not an archive of tasks"),
        (&[text(&archive), "--where", "hots=n01"], 2, "did you mean `host`?"),
    ] {
        let ran = run(dir, &[&["job", "import"][..], args].concat());
        assert!(ran.code == code && ran.stderr.contains(told), "{args:?}: {ran:?}");
    }
}
