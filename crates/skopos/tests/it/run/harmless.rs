//! The task is unaffected by its monitor, and outlives it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Stdio};
use std::time::Duration;

use super::*;
use crate::support::eventually;

fn field(pid: u32, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
}

/// Starts a monitor whose task prints its process id first, and returns that id, too.
fn with_pid(args: &[&str]) -> (Child, u32) {
    let mut child = monitor(args).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let pid = line.trim().parse().unwrap_or_else(|e| panic!("{e}: {line:?}"));
    (child, pid)
}

#[test]
fn streams_group_and_environment_are_the_tasks_own() {
    let script = "read line; echo \"got $line\"; echo oops >&2; ps -o pgid= -p $$; set -- /proc/$$/fd/*; echo $#";
    let run = |command: &mut Command| {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().expect("it starts");
        child.stdin.take().expect("piped").write_all(b"hello\n").expect("written");
        let group = child.id();
        (child.wait_with_output().expect("it ends"), group)
    };
    let (bare, _) = run(Command::new("sh").args(["-c", script]));
    let (watched, group) = run(&mut monitor(&["--", "sh", "-c", script]));
    assert_eq!(watched.stderr, b"oops\n", "the monitor prints nothing");
    let lines = |output: &Output| -> Vec<String> {
        String::from_utf8_lossy(&output.stdout).lines().map(|l| l.trim().to_owned()).collect()
    };
    let (bare, watched) = (lines(&bare), lines(&watched));
    assert_eq!((&*watched[0], &watched[1]), ("got hello", &group.to_string()));
    assert_eq!(watched[2], bare[2], "the number of descriptors is the same without a monitor");
}

#[test]
fn its_end_is_passed_on() {
    assert_eq!(
        monitor(&["--", "sh", "-c", "exit 42"]).status().expect("it starts").code(),
        Some(42)
    );
    let killed = monitor(&["--", "sh", "-c", "kill -TERM $$"]).status().expect("it starts");
    assert_eq!(killed.signal(), Some(15));
    for (command, code) in [("skopos-has-no-such-program", 127), ("/etc/passwd", 126)] {
        let ran = monitor(&["--", command]).output().expect("it starts");
        assert_eq!(ran.status.code(), Some(code), "{command}");
        assert!(String::from_utf8_lossy(&ran.stderr).starts_with(&format!("skopos: {command}: ")));
    }
}

#[test]
fn signals_reach_the_task() {
    let script = "trap 'exit 9' USR1; echo $$; while :; do sleep 0.02; done";
    let (mut child, _) = with_pid(&["--", "sh", "-c", script]);
    let sent = Command::new("kill").args(["-USR1", &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
}

#[test]
fn a_task_outlives_its_monitor_neither_stopped_nor_traced() {
    outlives(&["--mechanism", "wait4,ptrace,procfs"], true);
    outlives(&[], false);
}

/// Kills a monitor and checks that its task runs on. `is_traced` says that the task must be traced; by
/// default it may be.
fn outlives(options: &[&str], is_traced: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let done = folder.path().join("done");
    let script = format!(
        "echo $$; sleep 0.5; for i in 1 2 3; do /bin/true; done; echo yes > {}; sleep 60",
        done.display()
    );
    let (mut child, pid) = with_pid(&[options, &["--", "sh", "-c", &script]].concat());
    if is_traced {
        assert_eq!(field(pid, "TracerPid:"), Some(child.id().to_string()), "the task was traced");
    }
    child.kill().expect("killed with SIGKILL");
    child.wait().expect("it ends");
    eventually("the task runs on", || {
        std::fs::read_to_string(&done).is_ok_and(|text| text == "yes\n")
    });
    assert_eq!(field(pid, "TracerPid:").as_deref(), Some("0"));
    // The task has just written the file, and is about to wait for its last child.
    eventually("the task sleeps", || {
        field(pid, "State:").is_some_and(|state| state.starts_with('S'))
    });
    let ended = Command::new("kill").arg(pid.to_string()).status();
    assert!(ended.expect("kill").success());
}

#[test]
fn a_task_that_is_stopped_stays_so_until_it_is_continued() {
    let (mut child, pid) = with_pid(&["--", "sh", "-c", "echo $$; sleep 0.3; exit 4"]);
    let send = |signal: &str| {
        assert!(
            Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill").success()
        );
    };
    send("-STOP");
    eventually("the task stops", || {
        field(pid, "State:").is_some_and(|s| s.starts_with('T') || s.starts_with('t'))
    });
    std::thread::sleep(Duration::from_millis(600));
    assert!(child.try_wait().expect("asked").is_none(), "the task is stopped");
    send("-CONT");
    assert_eq!(child.wait().expect("it ends").code(), Some(4));
}

#[test]
fn a_task_that_closes_all_descriptors_is_measured() {
    let script = "exec 0<&- 1>&- 2>&-; /bin/true; exit 5";
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("out");
    let status = monitor(&["--report", text(&place), "--", "sh", "-c", script]).status();
    assert_eq!(status.expect("it starts").code(), Some(5));
    assert!(place.join("summary.json").exists());
}

#[test]
fn a_report_folder_that_vanishes_costs_the_report_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("out");
    let script = format!("rm -r {}; exit 6", place.display());
    let ran = monitor(&["--report", text(&place), "--", "sh", "-c", &script])
        .output()
        .expect("it starts");
    assert_eq!(ran.status.code(), Some(6));
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.contains("the report could not be written"), "{stderr}");
    let full = ["--report", "/dev/full/out", "--", "true"];
    assert_eq!(
        monitor(&full).output().expect("it starts").status.code(),
        Some(2),
        "the folder is refused at the start"
    );
}

#[test]
fn a_task_without_proc_is_measured_as_far_as_can_be() {
    // The mount namespace hides `/proc` from this monitor and its task only.
    let inner = format!(
        "{} run --json -- sh -c 'umount -l /proc; /bin/true; exit 8'",
        env!("CARGO_BIN_EXE_skopos")
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &inner]);
    let allowed = Command::new("unshare").args(["-m", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no mount namespace may be made here");
        return;
    }
    let outcome = measure_by(command);
    assert_eq!(outcome.code, Some(8));
    assert!(outcome.value("cpu_seconds") > 0.0);
}

#[test]
fn many_short_processes_and_many_threads_are_all_seen() {
    let script = "i=0; while [ $i -lt 3000 ]; do /bin/true; i=$((i+1)); done";
    let told_of = measure(&["--", "sh", "-c", script]);
    assert_eq!(told_of.value("processes_total"), 3001.0);
    let listed = told_of.summary["processes"].as_array().expect("a list").len();
    assert_eq!(
        listed as u64 + told_of.summary["processes_left_out"].as_u64().expect("a count"),
        3001
    );
    let threads = program("threads");
    assert_eq!(measure(&["--", text(&threads), "10000"]).value("processes_total"), 1.0);
}

#[test]
fn a_hundred_thousand_processes_are_all_seen_and_fill_no_memory() {
    let kinds = program("kinds");
    let held = |summary: &Json| summary["overhead"]["resident_bytes_max"].as_f64().expect("known");
    let idle = held(&measure(&["--", "true"]).summary);
    let outcome = measure(&["--", text(&kinds), "vforks", "100000"]);
    assert_eq!(outcome.value("processes_total"), 100_001.0);
    assert_eq!(outcome.of("processes_total", "completeness"), "all");
    assert_eq!(outcome.value("processes_max"), 2.0);
    let listed = outcome.summary["processes"].as_array().expect("a list").len() as u64;
    let left_out = outcome.summary["processes_left_out"].as_u64().expect("a count");
    assert_eq!((listed, listed + left_out), (1000, 100_001));
    // A hundred bytes for each process would be ten million.
    assert!(held(&outcome.summary) < idle + 5e6, "{} and {idle} when idle", held(&outcome.summary));
}

#[test]
fn no_group_is_left_behind() {
    let groups = || {
        let all = [
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/pids",
        ];
        let entries =
            all.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
        entries.map(|e| e.path()).collect::<Vec<_>>()
    };
    let is_of = |group: &Path, pid: u32| text(group).contains(&format!("/skopos-{pid}-"));
    let own = |pid: u32| groups().iter().any(|group| is_of(group, pid));
    let mut child = monitor(&["--", "sleep", "0.2"]).spawn().expect("it starts");
    let pid = child.id();
    assert!(child.wait().expect("it ends").success());
    assert!(!own(pid), "{:?}", groups());
    // A monitor inside the task leaves no group either, though it has no time to clean up.
    let inside = format!("{} run -- sh -c 'kill -9 $PPID'; true", env!("CARGO_BIN_EXE_skopos"));
    let mut child = monitor(&["--", "sh", "-c", &inside]).spawn().expect("it starts");
    let pid = child.id();
    assert!(child.wait().expect("it ends").success());
    assert!(!own(pid), "{:?}", groups());
}

#[test]
fn a_task_that_stops_by_itself_is_for_others_to_continue() {
    // No shell waits for the monitor: if the monitor stopped, too, nothing would continue it.
    let script = "(sleep 0.3; kill -CONT $$) & kill -STOP $$; wait; exit 5";
    for by in ["--level=1", "--level=2", "--mechanism=wait4,procfs,ptrace"] {
        let ran = monitor(&[by, "--", "sh", "-c", script]).status().expect("it starts");
        assert_eq!(ran.code(), Some(5), "{by}");
    }
}
