//! `skopos archive`, `skopos estimate` and `skopos run --limit auto`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::json::check;
use crate::support::{Ran, run, runtime_dir, skopos};

/// Returns the report of a task.
pub(crate) fn report(class: &str, host: &str, n: u64, bytes: u64) -> Json {
    let reading = |value: u64, unit: &str| {
        json!({"value": value, "unit": unit, "method": "ptrace", "completeness": "all",
               "error_bound": null})
    };
    json!({
        "version": 1,
        "task": {"class": class, "command": [class], "folder": "", "monitor": "skopos 0.1.0"},
        "host": {"node": host, "kernel": "6", "cores": 2, "memory_bytes": 1},
        "start_seconds": n, "end_seconds": n + 2,
        "ended": {"exit_type": "normal", "status": 0, "signal": null, "limits": [], "guilty": null},
        "level": 2,
        "resources": {"resident_bytes_max": reading(bytes, "bytes"), "wall_seconds": reading(2, "seconds")},
        "mechanisms": [], "overhead": {"cpu_seconds": 0.0, "resident_bytes_max": 1, "stops": 0},
        "disturbed": [], "findings": [], "processes": [], "processes_left_out": 0
    })
}

/// Writes a file of `count` reports, numbered from `from`.
fn reports(place: &Path, from: u64, count: u64) -> PathBuf {
    let file = place.join(format!("{from}.jsonl"));
    let line = |n| report("align", "n01", n, (100 + n) << 20).to_string() + "\n";
    std::fs::write(&file, (from..from + count).map(line).collect::<String>()).expect("written");
    file
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn import(dir: &Path, place: &Path) -> Ran {
    run(dir, &["archive", "import", text(place), "--json"])
}

fn tasks(dir: &Path) -> u64 {
    let classes = run(dir, &["archive", "ls", "--json"]).json();
    classes.as_array().expect("a list").iter().filter_map(|c| c["tasks"].as_u64()).sum()
}

#[test]
fn from_reports_to_an_estimate() {
    let dir = runtime_dir();
    let place = dir.path().join("reports");
    std::fs::create_dir_all(place.join("bad")).expect("a folder");
    reports(&place, 0, 30);
    std::fs::write(place.join("bad/summary.json"), "nonsense").expect("written");
    let dir = dir.path();
    let missing = run(dir, &["archive", "ls"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains("hint: `skopos archive import DIR`"), "{missing:?}");

    let first = import(dir, &place);
    assert_eq!(first.code, 1, "a report was refused: {first:?}");
    check("archive_import", &first.json());
    assert_eq!((&first.json()["added"], &first.json()["refused"]), (&json!(30), &json!(1)));
    let again = import(dir, &place).json();
    assert_eq!((&again["added"], &again["known"]), (&json!(0), &json!(30)));
    check("archive_ls", &run(dir, &["archive", "ls", "--json"]).json());

    let svg = dir.join("a.svg");
    let stats = run(dir, &["archive", "stats", "align", "--hosts", "--json", "--svg", text(&svg)]);
    check("archive_stats", &stats.json());
    let memory = &stats.json()["groups"][0]["resources"]["resident_bytes_max"];
    assert_eq!(memory["mean"], json!(114.5 * 1024.0 * 1024.0));
    assert_eq!(stats.json()["groups"][1]["host"], "n01");
    let drawn = std::fs::read_to_string(&svg).expect("written");
    assert!(drawn.starts_with("<svg") && drawn.contains("resident_bytes_max"), "{drawn}");
    let shown = run(dir, &["archive", "stats", "align", "--resource", "memory"]);
    assert!(shown.stdout.contains("114.5 MiB") && shown.stdout.contains('█'), "{shown:?}");

    let chosen = run(dir, &["estimate", "align", "--minimize", "retries", "--json"]);
    check("estimate", &chosen.json());
    assert_eq!(chosen.json()["allocation"], json!(f64::from(129 << 20)));
    let few = ["estimate", "align", "--where", "memory<105MiB", "--json"];
    assert_eq!(run(dir, &few).json()["count"], 5);
    let exported = run(dir, &["archive", "export", "--where", "memory>=105MiB"]);
    assert_eq!(exported.stdout.lines().count(), 25);
}

#[test]
fn reports_of_other_tools_begin_an_archive() {
    let dir = runtime_dir();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../task/tests/data/import");
    let mut args = vec!["archive", "import", "--json"];
    let files = ["kickstart-traced.yml", "resource_monitor-memory.json"].map(|f| data.join(f));
    args.extend(files.iter().map(|f| text(f)));
    let done = run(dir.path(), &args);
    assert_eq!((done.code, &done.json()["added"]), (0, &json!(2)), "{done:?}");
    let listed = ["archive", "ls", "--where", "monitor=resource_monitor*", "--plain"];
    assert_eq!(run(dir.path(), &listed).stdout.lines().count(), 1);
}

#[test]
fn a_mistyped_name_gets_an_error() {
    let dir = runtime_dir();
    let dir = dir.path();
    assert_eq!(import(dir, &reports(dir, 0, 3)).code, 0);
    for (args, code, part) in [
        (&["estimate", "aling"][..], 1, "did you mean `align`?"),
        (&["archive", "stats", "x"], 1, "`skopos archive ls` lists the classes"),
        (&["estimate", "align", "--resource", "memroy"], 2, "did you mean `memory`?"),
        (&["estimate", "align", "--resource", "cpu"], 1, "3 were not measured"),
        (&["archive", "ls", "--where", "hots=n01"], 2, "did you mean `host`?"),
        (&["archive", "ls", "--where", "memory>many"], 2, "a size looks like"),
        (&["estimate", "align", "--where", "host=n02"], 1, "do not fulfil the conditions"),
        (&["archive", "import", "/nowhere"], 1, "refused /nowhere"),
        (&["archive", "ls", "--archive", "/proc/self/status"], 2, "error: "),
    ] {
        let ran = run(dir, args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(part), "no `{part}` in {ran:?}");
    }
}

#[test]
fn importers_at_one_time_lose_nothing() {
    let dir = runtime_dir();
    let dir = dir.path();
    // Each file shares half of its reports with the next one.
    let files: Vec<_> = (0..3).map(|n| reports(dir, 1_000 * n, 2_000)).collect();
    let start = |file: &PathBuf| {
        skopos(dir, &["archive", "import", text(file)])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts")
    };
    let children: Vec<_> = files.iter().map(start).collect();
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    assert_eq!(tasks(dir), 4_000);
}

#[test]
fn kill_9_in_an_import_leaves_the_archive_whole() {
    let dir = runtime_dir();
    let dir = dir.path();
    let file = reports(dir, 0, 20_000);
    let archive = dir.join("state/tasks.sqlite");
    let mut parts = 0;
    for wait in 1..=12_u64 {
        let mut child = skopos(dir, &["archive", "import", text(&file)])
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(Duration::from_millis(40 * wait));
        // The import may have finished already; then there is nothing to interrupt.
        let _ = child.kill();
        let _ = child.wait();
        if !archive.exists() {
            continue;
        }
        let there = tasks(dir);
        parts += u64::from(there > 0 && there < 20_000);
        // Only whole batches are stored, each with all of its values.
        assert!(there.is_multiple_of(500), "{there} of a batch of 500");
        let stats = run(dir, &["archive", "stats", "align", "--json"]);
        if there > 0 {
            let memory = &stats.json()["groups"][0]["resources"]["resident_bytes_max"];
            assert_eq!(memory["count"], there);
        }
    }
    let done = import(dir, &file);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!((tasks(dir), done.json()["refused"].as_u64()), (20_000, Some(0)));
    let whole = damage_of(&archive);
    assert_eq!(whole, Vec::<String>::new(), "after {parts} imports that were cut");
}

fn damage_of(archive: &Path) -> Vec<String> {
    let archive = skopos_store::archive::Archive::open(archive).expect("an archive");
    archive.damage().expect("checked")
}

/// Returns a Python program that allocates `mebibytes` MiB and holds them for 0.3 s.
fn task(mebibytes: u32) -> String {
    format!("x = bytearray({mebibytes} << 20); import time; time.sleep(0.3); print('done')")
}

#[test]
fn an_automatic_limit_is_followed_by_a_second_attempt_that_says_so() {
    let dir = runtime_dir();
    let dir = dir.path();
    if std::process::Command::new("python3").arg("-V").output().is_err() {
        return;
    }
    // Nineteen reports have a peak of 100 MiB, and one has 400 MiB.
    let lines = (0..20).map(|n| {
        let bytes = if n == 7 { 400 << 20 } else { 100 << 20 };
        report("mixed", "n01", n, bytes).to_string() + "\n"
    });
    let file = dir.join("past.jsonl");
    std::fs::write(&file, lines.collect::<String>()).expect("written");
    assert_eq!(import(dir, &file).code, 0);
    let archive = dir.join("state/tasks.sqlite");
    let attempt = |mebibytes, place: &str| {
        let place = dir.join(place);
        let code = task(mebibytes);
        let args = [
            "run",
            "--limit",
            "auto,wall=10m",
            "--name",
            "mixed",
            "--report",
            text(&place),
            "--archive",
            text(&archive),
            "--",
            "python3",
            "-c",
            &code,
        ];
        let ran = run(dir, &args);
        let json = |name: &str| {
            let text = std::fs::read_to_string(place.join(name)).ok()?;
            serde_json::from_str::<Json>(&text).ok()
        };
        (ran, json("summary.json").expect("a report"), json("attempt-1/summary.json"))
    };
    let (small, report, first) = attempt(20, "small");
    assert_eq!((small.code, small.stdout.as_str(), first), (0, "done\n", None), "{small:?}");
    assert_eq!(report["ended"]["exit_type"], "normal");
    let (large, report, first) = attempt(250, "large");
    assert_eq!((large.code, large.stdout.as_str()), (0, "done\n"), "{large:?}");
    assert_eq!(first.expect("the first report")["ended"]["exit_type"], "limit");
    let said = report["findings"][0]["what"].as_str().expect("a finding");
    assert!(
        said.starts_with("this is the second attempt: the first was ended because of memory: "),
        "{said}"
    );
    assert!(large.stderr.contains("once more with 400 MiB"), "{large:?}");
    // The task does not get a third attempt.
    let (huge, report, _) = attempt(600, "huge");
    assert_ne!(huge.code, 0, "{huge:?}");
    assert_eq!(report["ended"]["exit_type"], "limit");
    // The small task adds one report, and each of the other two adds two.
    assert_eq!(tasks(dir), 25);
}

#[test]
fn a_second_attempt_has_the_signals_and_the_input_of_the_first() {
    let dir = runtime_dir();
    let dir = dir.path();
    if std::process::Command::new("python3").arg("-V").output().is_err() {
        return;
    }
    let lines = (0..20).map(|n| report("mask", "n01", n, 50 << 20).to_string() + "\n");
    let file = dir.join("past.jsonl");
    std::fs::write(&file, lines.collect::<String>()).expect("written");
    assert_eq!(import(dir, &file).code, 0);
    std::fs::write(dir.join("in"), "read me\n").expect("written");
    // The monitor blocks the signals that it waits for. They must not be blocked in either attempt.
    let code = "import signal, sys, time; print(sys.stdin.read(), end=''); \
                print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), flush=True); \
                x = bytearray(70 << 20); time.sleep(0.3)";
    let input = std::fs::File::open(dir.join("in")).expect("there");
    let args = ["run", "--limit", "auto", "--name", "mask", "--", "python3", "-c", code];
    let out = skopos(dir, &args).stdin(input).output().expect("it starts");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && said.contains("once more"), "{out:?}");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "read me\n[]\nread me\n[]\n");
}

#[test]
fn an_automatic_limit_grants_the_memory_in_files() {
    let dir = runtime_dir();
    let dir = dir.path();
    let archive = dir.join("state/tasks.sqlite");
    // A file in memory belongs to no process.
    let Ok(place) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: there is no /dev/shm");
    };
    let file = place.path().join("x");
    let script =
        format!("head -c 150000000 /dev/zero > {0}; exec 3<{0}; sleep 0.3; rm {0}", file.display());
    let attempt = |more: &[&str]| {
        let args = ["run", "--name", "files", "--archive", text(&archive)];
        run(dir, &[&args[..], more, &["--", "sh", "-c", &script]].concat())
    };
    for _ in 0..10 {
        assert_eq!(attempt(&[]).code, 0);
    }
    let limited = attempt(&["--limit", "auto"]);
    assert_eq!(limited.code, 0, "{limited:?}");
    assert!(!limited.stderr.contains("once more"), "{limited:?}");
    assert!(!limited.stderr.contains("not limited"), "{limited:?}");
}

#[test]
fn nothing_is_limited_while_little_is_known() {
    let dir = runtime_dir();
    let dir = dir.path();
    let ran = run(dir, &["run", "--limit", "auto", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("0 records of `true`"), "{ran:?}");
    assert!(!dir.join("state").exists(), "no folder is created without need");
}
