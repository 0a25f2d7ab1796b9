//! Limits: a task that exceeds one is killed with all of its processes, and the report says so.

use super::*;

fn limited(limit: &str, more: &[&str]) -> Outcome {
    let mut args = vec!["--limit", limit];
    args.extend(more);
    measure(&args)
}

fn is_ended_for(outcome: &Outcome, name: &str) {
    let ended = &outcome.summary["ended"];
    assert_eq!(ended["exit_type"], "limit", "{ended}");
    assert!(
        ended["limits"][0].as_str().is_some_and(|l| l.starts_with(&format!("{name}: "))),
        "{ended}"
    );
    assert_eq!(outcome.code, Some(137));
}

/// Returns whether no process has `mark` in its command line.
pub(super) fn is_gone(mark: &str) -> bool {
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    !lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(mark))
}

#[test]
fn memory_above_its_limit_ends_the_task_and_names_the_guilty() {
    let hold = program("hold");
    let script = format!("sleep 60 & {} 300 60000", hold.display());
    let outcome = limited("memory=100MiB", &["--", "sh", "-c", &script]);
    is_ended_for(&outcome, "memory");
    assert!(
        outcome.summary["ended"]["guilty"].as_str().is_some_and(|who| who.contains("hold 300")),
        "{}",
        outcome.summary["ended"]
    );
    let enforced = outcome.summary["mechanisms"].as_array().expect("a list").iter();
    if enforced.filter(|m| m["name"] == "cgroup").any(|m| m["used"] == true) {
        let held = outcome.value("resident_bytes_max") / (100.0 * 1024.0 * 1024.0);
        assert!(held < 1.06, "{held} of the limit, with two shells");
    } else {
        eprintln!("skipped: no control group of its own, so the kernel does not enforce the limit");
    }
}

/// The memory limit in the tests of the fastest growth, and the arguments of the program that grows.
const MOST: f64 = 500.0 * 1024.0 * 1024.0;
const GROWS: [&str; 2] = ["4", "3000"];

#[test]
fn the_fastest_growth_does_not_exceed_what_the_kernel_keeps() {
    let grow = program("grow");
    for level in ["1", "2"] {
        let args = ["--level", level, "--", text(&grow), GROWS[0], GROWS[1]];
        let outcome = limited("memory=500MiB", &args);
        let mechanisms = outcome.summary["mechanisms"].as_array().expect("a list").clone();
        if !mechanisms.iter().any(|m| m["name"] == "cgroup" && m["used"] == true) {
            eprintln!("skipped: no control group of its own");
            return;
        }
        is_ended_for(&outcome, "memory");
        let held = outcome.value("cgroup_bytes_max") / MOST;
        assert!((0.99..=1.01).contains(&held), "level {level}: {held} of the limit");
        let guilty = outcome.summary["ended"]["guilty"].as_str().unwrap_or_default().to_owned();
        // Its arguments are not read if that would delay the end of the task.
        assert!(guilty.contains("grow"), "level {level}: {guilty}");
    }
}

#[test]
fn the_fastest_growth_is_ended_where_nothing_but_looks_keeps_it() {
    let grow = program("grow");
    for (level, mechanisms) in [("1", "wait4,procfs"), ("2", "wait4,procfs,ptrace")] {
        let mut args = vec!["--level", level, "--mechanism", mechanisms, "--", text(&grow)];
        args.extend(GROWS);
        let outcome = limited("memory=500MiB", &args);
        is_ended_for(&outcome, "memory");
        let held = outcome.value("resident_bytes_max");
        assert!(held > MOST, "level {level}: {held}: the excess is reported");
        let guilty = outcome.summary["ended"]["guilty"].as_str().unwrap_or_default().to_owned();
        assert!(guilty.contains("grow"), "level {level}: {guilty}");
    }
}

#[test]
fn pages_that_forks_share_do_not_end_the_task() {
    // Five processes share 200 MiB, which would count once for each.
    let script = "import os, time\nkeep = bytearray(200 << 20)\nkids = []\nfor _ in range(4):\n    \
                  kid = os.fork()\n    if not kid:\n        time.sleep(1); os._exit(0)\n    \
                  kids.append(kid)\nfor kid in kids: os.waitpid(kid, 0)\n";
    let mut ways = vec![vec![], vec!["--mechanism", "wait4,procfs"]];
    ways.push(vec!["--mechanism", "wait4,procfs,ptrace"]);
    for way in ways {
        let outcome =
            limited("memory=400MiB", &[&way[..], &["--", "python3", "-c", script]].concat());
        let ended = &outcome.summary["ended"];
        assert_eq!(
            (outcome.code, &ended["exit_type"]),
            (Some(0), &"normal".into()),
            "{way:?}: {ended}"
        );
    }
}

#[test]
fn forks_with_pages_of_their_own_are_ended_by_looks() {
    let hold = program("hold");
    let script = format!("{0} 60 60000 & {0} 60 60000 & wait", hold.display());
    for mechanisms in ["wait4,procfs", "wait4,procfs,ptrace"] {
        let args = ["--mechanism", mechanisms, "--", "sh", "-c", &script];
        is_ended_for(&limited("memory=100MiB", &args), "memory");
    }
}

#[test]
fn nine_tenths_of_the_wall_time_are_reported_between_two_samples() {
    // The time between samples grows: here there is no sample between 1.3 s and 2.5 s.
    let args = ["--series", "1m", "--limit", "wall=2s", "--", "sleep", "60"];
    let ran = monitor(&args).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.contains("skopos: wall: ") && stderr.contains(" of 2.0 s"), "{stderr}");
}

#[test]
fn a_process_that_may_not_be_killed_is_released_and_named() {
    let Some(mut command) = as_user() else { return };
    let mut other = Command::new("sleep").arg("60").spawn().expect("it starts");
    let pid = other.id().to_string();
    command.args(["run", "--json", "--limit", "wall=300ms", "--attach", &pid]);
    let outcome = measure_by(command);
    is_ended_for(&outcome, "wall");
    let finding = outcome.summary["findings"][1]["what"].as_str().unwrap_or_default().to_owned();
    assert!(finding.contains(&format!("sleep 60 (pid {pid})")), "{}", outcome.summary["findings"]);
    assert!(other.try_wait().expect("asked").is_none(), "the process of another user lives");
    other.kill().expect("killed");
    other.wait().expect("it ends");
}

#[test]
fn the_report_says_whether_the_kernel_enforces_a_limit() {
    let outcome = limited("memory=1GiB", &["--", "true"]);
    let mechanisms = outcome.summary["mechanisms"].as_array().expect("a list");
    let cgroup = mechanisms.iter().find(|m| m["name"] == "cgroup").expect("it is listed");
    if cgroup["used"] != true {
        eprintln!("skipped: no control group of its own");
        return;
    }
    let why = cgroup["why"].as_str().expect("a reason");
    let keeps =
        why.contains("limits that the kernel enforces") || why.contains("limit on memory that");
    let reading = &outcome.summary["resources"]["cgroup_bytes_max"];
    assert_eq!(keeps, !reading["value"].is_null(), "{why}: {reading}");
}

#[test]
fn a_limit_that_is_too_small_to_begin_with_ends_the_task_and_not_the_monitor() {
    for level in ["1", "2"] {
        let outcome = limited("memory=4096", &["--level", level, "--", "sleep", "60"]);
        is_ended_for(&outcome, "memory");
    }
}

#[test]
fn the_process_that_wrote_too_much_is_named_and_not_the_shell_that_waited() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("written").display().to_string();
    // The monitor samples the shell between the two writes: the shell has waited for the first, and the
    // second exceeds the limit.
    let dd = |mib| format!("dd if=/dev/zero of={file} bs=1M count={mib} status=none");
    let script = format!("{}; sleep 0.5; {}; sleep 60; true", dd(15), dd(10));
    let outcome = limited("written=20MiB", &["--level", "2", "--", "sh", "-c", &script]);
    is_ended_for(&outcome, "written");
    let guilty = outcome.summary["ended"]["guilty"].as_str().unwrap_or_default().to_owned();
    assert!(guilty.starts_with("dd if=") && guilty.contains("count=15"), "{guilty}");
}

#[test]
fn nothing_of_the_task_is_left_after_a_limit() {
    let mark = format!("61{}", std::process::id());
    let script = format!(
        "setsid sleep {mark} & (setsid sh -c 'trap \"\" TERM; sleep {mark}' &); sleep {mark}"
    );
    for level in ["1", "2"] {
        let outcome = limited("wall=400ms", &["--level", level, "--", "sh", "-c", &script]);
        is_ended_for(&outcome, "wall");
        let wall = outcome.value("wall_seconds");
        assert!(wall >= 0.4, "{wall}");
        assert!(is_gone(&mark), "level {level}");
    }
}

#[test]
fn a_task_has_its_grace_to_end_by_itself() {
    let script = "trap 'echo saved; exit 3' TERM; while :; do sleep 0.05; done";
    let outcome = limited("wall=300ms", &["--kill-after", "30s", "--", "sh", "-c", script]);
    assert_eq!(outcome.stdout, "saved\n");
    assert_eq!(
        (outcome.code, &outcome.summary["ended"]["exit_type"]),
        (Some(3), &Json::from("limit"))
    );
}

#[test]
fn a_task_that_forks_without_end_is_ended() {
    let bomb = program("bomb");
    let folder = tempfile::tempdir().expect("a folder");
    let escaped = folder.path().join("escaped");
    for (limit, level) in
        [("processes=100", "1"), ("processes=100", "2"), ("processes=100,memory=1GiB", "1")]
    {
        let outcome = limited(limit, &["--level", level, "--", text(&bomb), text(&escaped)]);
        is_ended_for(&outcome, "processes");
        assert!(outcome.value("processes_max") > 100.0, "{limit}, level {level}");
        assert!(is_gone(text(&bomb)), "{limit}, level {level}");
        assert!(!escaped.exists(), "{limit}, level {level}: it ended by itself");
    }
}

#[test]
fn a_limit_that_ended_the_task_is_reported_without_a_terminal() {
    let limited = ["--limit", "wall=200ms"];
    for (more, is_reported) in [(&[][..], true), (&["--quiet"][..], false)] {
        let task = [&limited[..], more, &["--", "sleep", "60"]].concat();
        let ran = monitor(&task).output().expect("it starts");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        let report = "skopos: a limit ended the task: wall: ";
        assert_eq!(stderr.contains(report), is_reported, "{stderr}");
        assert_eq!(ran.status.code(), Some(137));
    }
}

#[test]
fn a_process_whose_first_thread_has_exited_is_searched_for_children() {
    let leader = program("leader");
    for level in ["1", "2"] {
        let outcome = limited("wall=500ms", &["--level", level, "--", text(&leader)]);
        is_ended_for(&outcome, "wall");
        assert!(is_gone(text(&leader)), "level {level}");
    }
}

#[test]
fn bytes_written_and_processor_time_are_limited_too() {
    is_ended_for(
        &limited("written=10MB", &["--", "sh", "-c", "cat /dev/zero >/dev/null"]),
        "written",
    );
    is_ended_for(&limited("cpu=300ms", &["--", "sh", "-c", "while :; do :; done"]), "cpu");
}

#[test]
fn files_of_the_present_folder_are_limited() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = monitor(&[
        "--json",
        "--limit",
        "files=20",
        "--",
        "sh",
        "-c",
        "i=0; while :; do i=$((i+1)); : > f$i; sleep 0.001; done",
    ]);
    command.current_dir(folder.path());
    is_ended_for(&measure_by(command), "files");
}

#[test]
fn wrong_limits_are_refused_before_anything_runs() {
    for (limit, said) in [
        ("memroy=1GiB", "did you mean `memory`?"),
        ("memory=-1", "a size looks like `4GiB`"),
        ("wall=soon", "a time looks like `30s`"),
        ("instructions=5", "cannot be limited"),
        ("memory", "a limit looks like `memory=4GiB`"),
    ] {
        let ran = monitor(&["--limit", limit, "--", "touch", "/nonexistent/ran"])
            .output()
            .expect("it starts");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{limit}");
        assert!(stderr.contains(said), "{limit}: {stderr}");
    }
}

#[test]
fn memory_in_files_is_within_the_limit_of_samples() {
    let Ok(place) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: there is no /dev/shm");
    };
    let file = place.path().join("x");
    // The file is open, then it has its name only.
    for after in ["sleep 60 3<", "sleep 60; : "] {
        let script = format!("head -c 300000000 /dev/zero > {0}; {after}{0}", file.display());
        let args = ["--mechanism", "wait4,procfs", "--", "sh", "-c", &script];
        let outcome = limited("memory=100MiB,wall=30s", &args);
        is_ended_for(&outcome, "memory");
        let findings = outcome.summary["findings"].to_string();
        assert!(findings.contains("samples enforced the limit on memory"), "{findings}");
        let _ = std::fs::remove_file(&file);
    }
}

/// A group of version 1 around a monitor, with a limit of its own.
struct Around(PathBuf);

impl Around {
    fn new(bytes: u64) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = own.lines().find_map(|line| line.split_once(":memory:"))?.1.to_owned();
        let folder = Path::new("/sys/fs/cgroup/memory").join(path.trim_start_matches('/'));
        let group = Self(folder.join(format!("around-{}", std::process::id())));
        std::fs::create_dir(&group.0).ok()?;
        std::fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Around {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_kill_for_the_limit_of_a_group_above_is_not_the_limit_of_the_task() {
    let Some(around) = Around::new(200 << 20) else {
        return eprintln!("skipped: no group of version 1 can be made here");
    };
    let script = format!(
        "echo $$ > {}/cgroup.procs; exec {} run --json --limit memory=1GiB -- {} 400 10000",
        around.0.display(),
        env!("CARGO_BIN_EXE_skopos"),
        program("hold").display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    let outcome = measure_by(command);
    let ended = &outcome.summary["ended"];
    assert_eq!((&ended["exit_type"], &ended["signal"]), (&"signal".into(), &9.into()), "{ended}");
}
