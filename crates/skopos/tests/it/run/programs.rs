//! Programs of all kinds: they start, exit, stop and change themselves as they would without a monitor,
//! and are counted.

use std::time::Duration;

use super::*;

/// Sets of mechanisms of which one reports births and exits, whatever the default is here.
const TELLERS: [&str; 2] = ["ptrace,wait4,procfs", "bpf,ptrace,wait4,procfs"];

/// Runs `kinds KIND`. Returns its exit code, the number of processes and the completeness of that
/// number.
fn of_kind(level: &str, words: &[&str]) -> (Option<i32>, f64, Json) {
    let kinds = program("kinds");
    let mut args = vec!["--level", level, "--", text(&kinds)];
    args.extend(words);
    let outcome = measure(&args);
    let completeness = outcome.of("processes_total", "completeness").clone();
    (outcome.code, outcome.value("processes_total"), completeness)
}

#[test]
fn however_processes_start_and_end_each_is_counted_once() {
    for (words, code, processes) in [
        (&["vforks", "1"][..], 0, 2.0),
        (&["vfork-exec"], 0, 2.0),
        (&["spawn"], 0, 2.0),
        (&["ignore-children"], 0, 21.0),
        (&["exec-from-thread"], 12, 1.0),
        (&["leader-leaves"], 12, 1.0),
        (&["stop-self"], 7, 2.0),
    ] {
        assert_eq!(of_kind("2", words), (Some(code), processes, "all".into()), "{words:?}");
        assert_eq!(of_kind("1", words).0, Some(code), "{words:?} at level 1");
    }
}

#[test]
fn a_process_that_exited_before_its_parent_reported_it_counts_once() {
    // Many processes run at one time on few processors, so a parent often reports late.
    let script = "for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done) & done; wait";
    for _ in 0..5 {
        for by in TELLERS {
            let total = measure(&["--mechanism", by, "--", "sh", "-c", script]);
            assert_eq!(total.value("processes_total"), 89.0, "{by}");
        }
    }
}

#[test]
fn usage_of_children_without_a_waiting_parent_is_in_the_sums() {
    let kinds = program("kinds");
    for by in TELLERS {
        let args = ["--mechanism", by, "--", text(&kinds), "ignore-children", "1000000"];
        let outcome = measure(&args);
        assert_eq!(outcome.code, Some(0));
        if outcome.of("written_bytes", "completeness") == "at_least" {
            // The use of the children is reported as missing where only the kernel could add it up.
            assert!(by.starts_with("bpf"), "{by}");
            continue;
        }
        let written = outcome.value("written_bytes") - 20e6;
        assert!((0.0..50.0).contains(&written), "{by}: {written}: 20 children and the gate");
        let faults = outcome.value("minor_faults");
        assert!(faults > 20.0 * 10.0, "{by}: {faults}: the children have most of them");
    }
}

#[test]
fn a_child_of_vfork_is_in_the_memory_of_its_parent() {
    let kinds = program("kinds");
    for by in TELLERS {
        let limit = ["--mechanism", by, "--limit", "memory=150MiB"];
        let outcome = measure(&[&limit[..], &["--", text(&kinds), "guest", "100", "400"]].concat());
        assert_eq!(
            outcome.code,
            Some(0),
            "{by}: counted twice it is above: {}",
            outcome.summary["ended"]
        );
        let held = outcome.value("resident_bytes_max") / (1024.0 * 1024.0);
        assert!((100.0..104.0).contains(&held), "{by}: {held}");
    }
}

#[test]
fn a_daemon_runs_on_and_the_report_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let done = folder.path().join("done");
    let kinds = program("kinds");
    let outcome = measure(&["--", text(&kinds), "daemon", "1500", text(&done)]);
    assert_eq!(outcome.code, Some(0));
    assert!(!done.exists(), "the monitor does not wait for it");
    for name in ["processes_total", "resident_bytes_max", "cpu_seconds", "written_bytes"] {
        assert_eq!(outcome.of(name, "completeness"), "at_least", "{name}");
    }
    let reason = outcome.of("processes_total", "reason").as_str().unwrap_or_default().to_owned();
    assert!(reason.ends_with("still running"), "{reason}");
    let start = std::time::Instant::now();
    while std::fs::read_to_string(&done).unwrap_or_default() != "done" {
        assert!(start.elapsed() < crate::support::PATIENCE, "the daemon was harmed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_static_program_and_a_pipeline_with_jobs_in_the_background() {
    let kinds = built("kinds", &["-static"]);
    let one = measure(&["--", text(&kinds), "spawn"]);
    assert_eq!((one.code, one.value("processes_total")), (Some(0), 2.0));
    let script = "sleep 0.2 & (exit 3) & head -c 1000 /dev/zero | wc -c; wait; exit 5";
    let piped = measure(&["--", "sh", "-c", script]);
    assert_eq!((piped.code, piped.stdout.trim()), (Some(5), "1000"));
    assert_eq!(piped.value("processes_total"), 5.0);
}

#[test]
fn a_task_that_changes_its_user_is_measured() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root changes its user");
        return;
    }
    assert_eq!(of_kind("2", &["user", "65534"]), (Some(0), 2.0, "all".into()));
}

#[test]
fn a_task_in_a_process_namespace_of_its_own_is_measured() {
    let words = ["unshare", "-pf", "sh", "-c", "echo $$; /bin/true; exit 4"];
    let bare = Command::new(words[0]).args(&words[1..]).output().expect("it starts");
    if bare.status.code() != Some(4) {
        eprintln!("skipped: no namespace may be made here");
        return;
    }
    let outcome = measure(&[&["--"], &words[..]].concat());
    assert_eq!((outcome.code, outcome.stdout.trim()), (Some(4), "1"));
    assert_eq!(outcome.value("processes_total"), 3.0);
}

#[test]
fn a_task_that_traces_gets_the_reason_and_may_trace_at_level_1() {
    assert_eq!(of_kind("1", &["trace"]).0, Some(6), "the task traced its child");
    let kinds = program("kinds");
    let traced = measure(&["--mechanism", "wait4,ptrace", "--", text(&kinds), "trace"]);
    assert_eq!(traced.code, Some(5), "one tracer at a time");
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: there is no strace");
        return;
    }
    let outcome =
        measure(&["--mechanism", "wait4,ptrace", "--", "strace", "-o", "/dev/null", "true"]);
    let findings = outcome.summary["findings"].to_string();
    assert!(findings.contains("--level 1"), "{findings}");
}

#[test]
fn arguments_environment_and_input_are_passed_on_whatever_they_are() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let odd = OsStr::from_bytes(b"a\xff\n\xfe b");
    let long = "x".repeat(100_000);
    let many: Vec<&str> = std::iter::repeat_n(&*long, 15).collect();
    let script = "printf %s \"$ODD\"; printf %s \"$1\"; cat; shift; printf '%s' \"$*\" | wc -c";
    let mut command = monitor(&["--level", "2", "--", "sh", "-c", script, "sh"]);
    command.arg(odd).args(&many).env("ODD", odd).stdin(std::process::Stdio::piped());
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), b"\0in").expect("written");
    let Output { stdout, status, .. } = child.wait_with_output().expect("it ends");
    assert!(status.success());
    let expected = [odd.as_bytes(), odd.as_bytes(), b"\0in", b"1500014\n"].concat();
    assert_eq!(stdout, expected);
}

#[test]
fn a_removed_working_folder_is_not_a_failure() {
    let script = format!(
        "cd \"$(mktemp -d)\" && rmdir \"$PWD\" && exec {} run --json -- sh -c 'exit 3'",
        env!("CARGO_BIN_EXE_skopos")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    assert_eq!(measure_by(command).code, Some(3));
}
