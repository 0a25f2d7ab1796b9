//! The task is its first process and everything born below it: no more, and no less.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use super::*;
use crate::support::eventually;

/// Runs a shell that starts a background process and then becomes the monitor. Returns the report and the
/// id of that process.
fn beside(options: &str, background: &str, task: &str) -> (Outcome, i32) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    let script = format!(
        "{background} >/dev/null 2>&1 & echo $! > {}; exec {} run --json {options} -- {task}",
        file.display(),
        env!("CARGO_BIN_EXE_skopos")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let outcome = measure_by(command);
    let pid = std::fs::read_to_string(file).expect("written").trim().parse().expect("a number");
    (outcome, pid)
}

fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

fn kill(pid: i32) {
    let _ = Command::new("kill").arg("-9").arg(pid.to_string()).status();
}

#[test]
fn a_child_older_than_the_task_is_neither_killed_nor_counted() {
    for by in ["--level 1", "--level 2", "--mechanism wait4,procfs,ptrace", "--mechanism wait4"] {
        let options = format!("{by} --limit wall=500ms");
        // The older process works, so that its usage would show.
        let older = "sh -c 'i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done; exec sleep 60'";
        let (outcome, pid) = beside(&options, older, "sleep 30");
        let lives = is_alive(pid);
        kill(pid);
        assert_eq!(outcome.summary["ended"]["exit_type"], "limit", "{by}");
        assert!(lives, "{by}: the older process was killed");
        assert!(outcome.value("cpu_seconds") < 0.2, "{by}: {}", outcome.summary["resources"]);
        let processes = &outcome.summary["resources"]["processes_total"];
        assert!(processes["value"].is_null() || processes["value"] == 1.0, "{by}: {processes}");
    }
}

#[test]
fn an_older_child_that_exits_is_not_counted() {
    for by in ["--level 1", "--level 2"] {
        let older = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'";
        let (outcome, _) = beside(by, older, "sleep 2");
        assert_eq!(outcome.code, Some(0));
        assert!(outcome.value("cpu_seconds") < 0.2, "{by}: {}", outcome.summary["resources"]);
        assert_eq!(outcome.of("cpu_seconds", "completeness"), "all", "{by}");
    }
}

#[test]
fn orphans_of_the_task_belong_to_it_beside_older_children() {
    let mark = format!("63{}", std::process::id());
    let task = format!("sh -c '(setsid sleep {mark} &); sleep {mark}'");
    let (outcome, pid) = beside("--level 2 --limit wall=700ms", "sleep 60", &task);
    kill(pid);
    assert_eq!(outcome.summary["ended"]["exit_type"], "limit");
    assert!(limits::is_gone(&mark));
}

#[test]
fn a_process_that_left_the_control_group_stays_within_the_limit_of_memory() {
    let hold = program("hold");
    let leave = "for f in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do \
                 echo $$ > $f; done 2>/dev/null;";
    let script = format!("{leave} exec {} 300 30000", hold.display());
    let args = ["--limit", "memory=100MiB,wall=20s", "--", "sh", "-c", &script];
    let outcome = measure(&args);
    let mechanisms = outcome.summary["mechanisms"].as_array().expect("a list").clone();
    if !mechanisms.iter().any(|m| m["name"] == "cgroup" && m["used"] == true) {
        eprintln!("skipped: no control group of its own");
        return;
    }
    let ended = &outcome.summary["ended"];
    let limit = ended["limits"][0].as_str().unwrap_or_default().to_owned();
    assert!(limit.starts_with("memory: "), "{ended}");
    assert_eq!(outcome.code, Some(137));
}

/// Kills monitors at many moments of their first 80 ms. Each child either became the program, or is gone.
#[test]
fn a_monitor_that_dies_at_its_start_leaves_no_child_before_its_exec() {
    for (round, by) in ["--level=1", "--level=2", "--mechanism=wait4,procfs,ptrace,seccomp"]
        .iter()
        .flat_map(|by| (0..40).map(move |round| (round, by)))
    {
        let mark = format!("64{}.{round}", std::process::id());
        let mut monitor = monitor(&[by, "--", "sleep", &mark]).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(2 * round));
        monitor.kill().expect("killed with SIGKILL");
        assert_eq!(monitor.wait().expect("it ends").signal(), Some(9));
        // A child before its exec has the command line of its monitor, and so has the guardian of a filter,
        // which ends with the program.
        let is_marked = |pid: &i32| command_of(*pid).contains(&mark);
        eventually("no child waits before its exec", || {
            let left: Vec<i32> = pids().into_iter().filter(is_marked).collect();
            left.iter().filter(|pid| command_of(**pid).starts_with("sleep")).for_each(|p| kill(*p));
            left.is_empty()
        });
    }
}

fn command_of(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

fn pids() -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
