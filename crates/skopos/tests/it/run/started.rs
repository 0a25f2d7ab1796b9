//! A task starts as it would without its monitor, and the limits of the task do not limit the monitor.

use super::*;

/// Returns two outputs of a shell that runs `begin`: it then becomes the program, or its monitor.
fn both(begin: &str, options: &str, script: &str) -> (Output, Output) {
    let run = |monitor: &str| {
        let script = format!("{begin} exec timeout 60 {monitor} sh -c '{script}'");
        Command::new("sh").args(["-c", &script]).output().expect("it starts")
    };
    let monitor = format!("{} run {options} --", env!("CARGO_BIN_EXE_skopos"));
    (run(""), run(&monitor))
}

#[test]
fn signals_that_were_ignored_still_are_and_others_are_not() {
    for begin in ["", "trap \"\" PIPE;", "trap \"\" XFSZ;", "trap \"\" PIPE XFSZ HUP;"] {
        let (bare, watched) = both(begin, "", "grep -E \"Sig(Ign|Blk)\" /proc/self/status");
        assert_eq!(bare.stdout, watched.stdout, "{begin} {watched:?}");
        assert!(watched.status.success());
    }
}

#[test]
fn a_monitor_that_is_to_ignore_its_children_waits_for_them_all_the_same() {
    let begun = |monitor: &[&str]| {
        let mut command = Command::new("env");
        command.arg("--ignore-signal=CHLD").args(monitor);
        command.args(["grep", "SigIgn", "/proc/self/status"]);
        command
    };
    let bare = begun(&[]).output().expect("it starts");
    if !bare.status.success() {
        eprintln!("skipped: this `env` sets no signals");
        return;
    }
    let mut watched = begun(&[env!("CARGO_BIN_EXE_skopos"), "run", "--level", "1", "--"]);
    let mut child = watched.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    let start = std::time::Instant::now();
    while child.try_wait().expect("asked").is_none() {
        if start.elapsed() > crate::support::PATIENCE {
            child.kill().expect("killed");
            panic!("the monitor waits for ever");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let watched = child.wait_with_output().expect("it ended");
    assert_eq!(watched.stdout, bare.stdout);
    assert!(watched.status.success());
}

#[test]
fn streams_that_were_closed_still_are() {
    for begin in ["exec 0<&-;", "exec 2>&-;", "exec 0<&- 2>&-;"] {
        for options in ["", "--mechanism wait4,procfs", "--level 3"] {
            let (bare, watched) = both(begin, options, "cd /proc/$$/fd; echo *");
            let (bare, watched) = (bare.stdout, watched.stdout);
            let texts = [&bare, &watched].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            assert_eq!(texts[0], texts[1], "{begin} {options}");
        }
    }
}

#[test]
fn few_descriptors_cost_mechanisms_and_not_the_task() {
    // The second set takes descriptors once the child exists, and the child waits for an answer until
    // then.
    for options in ["", "--level 3 --mechanism wait4,procfs,ptrace,seccomp"] {
        for most in 8..=40 {
            let begin = format!("ulimit -n {most};");
            let (_, watched) = both(&begin, options, "ulimit -n; exit 3");
            let stdout = String::from_utf8_lossy(&watched.stdout);
            let expected = format!("{most}\n");
            assert_eq!((&*stdout, watched.status.code()), (&*expected, Some(3)), "{watched:?}");
        }
    }
}

#[test]
fn too_few_descriptors_for_a_monitor_leave_a_task_that_runs() {
    for most in 4..=7 {
        let begin = format!("ulimit -n {most};");
        let begin = format!("{begin} trap \"\" PIPE; exec 0<&-;");
        let (bare, watched) = both(&begin, "", "ulimit -n; grep SigIgn /proc/self/status; exit 3");
        if bare.status.code() != Some(3) {
            // The loader needs some descriptors, too.
            continue;
        }
        assert_eq!(watched.stdout, bare.stdout, "{watched:?}");
        assert_eq!(watched.status.code(), Some(3), "{watched:?}");
        let stderr = String::from_utf8_lossy(&watched.stderr);
        assert!(stderr.contains("nothing is measured"), "{most}: {stderr}");
        let (_, limited) = both(&format!("ulimit -n {most};"), "--limit wall=1h", "exit 3");
        assert_eq!(limited.status.code(), Some(2), "{limited:?}");
    }
}

#[test]
fn a_limit_that_may_be_raised_is_the_tasks_alone() {
    let names = |begin: &str| {
        let (_, watched) = both(begin, "--json", "ulimit -S -n");
        let stderr = String::from_utf8_lossy(&watched.stderr).into_owned();
        let summary: Json =
            serde_json::from_str(stderr.trim()).unwrap_or_else(|e| panic!("{e}: {stderr}"));
        let used = |m: &&Json| m["used"] == true;
        let all = summary["mechanisms"].as_array().expect("a list").iter().filter(used);
        let names: Vec<String> = all.map(|m| m["name"].to_string()).collect();
        (names, String::from_utf8_lossy(&watched.stdout).into_owned())
    };
    let (usual, _) = names("");
    let (few, limit) = names("ulimit -S -n 10;");
    assert_eq!((few, &*limit), (usual, "10\n"));
}

#[test]
fn a_limit_of_file_sizes_costs_the_report_and_not_the_task() {
    let folder = tempfile::tempdir().expect("a folder");
    // The limit cuts the task's own file short, with and without a monitor.
    let own = folder.path().join("own");
    let script = format!("head -c 1000000 /dev/zero >{}; echo $?; exit 3", own.display());
    let place = folder.path().join("out");
    let report = format!("--report {}", place.display());
    for options in ["", "--level 1", "--level 3", &report] {
        let (bare, watched) = both("ulimit -f 1;", options, &script);
        assert_eq!(watched.stdout, bare.stdout, "{options}");
        assert_eq!(watched.status.code(), Some(3), "{options}: {watched:?}");
        let stderr = String::from_utf8_lossy(&watched.stderr);
        let is_told = stderr.contains("the report could not be written");
        assert_eq!(is_told, options == report, "{options}: {stderr}");
    }
    let left = std::fs::read_dir(&place).expect("the folder").count();
    assert_eq!(left, 0, "nothing is left that looks like a report");
}

#[test]
fn no_warning_comes_to_who_wants_quiet() {
    let script = "while :; do :; done";
    let stderr = |options: &[&str]| {
        let limited = ["--limit", "cpu=2s", "--", "sh", "-c", script];
        let ran = monitor(&[options, &limited].concat()).output().expect("it starts");
        assert_eq!(ran.status.code(), Some(137));
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    assert!(stderr(&[]).contains("cpu"), "there is a warning otherwise");
    assert_eq!(stderr(&["--quiet"]), "");
}

#[test]
fn a_task_with_little_address_space_runs_and_keeps_its_limit() {
    let ends = |script: String| {
        let ran = Command::new("bash").args(["-c", &script]).output().expect("it starts");
        (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let own = env!("CARGO_BIN_EXE_skopos");
    let mut tried = 0;
    for kib in (60_000..600_000).step_by(20_000) {
        // Below some size the kernel cannot load the program at all.
        if ends(format!("ulimit -v {kib}; exec {own} --version")).0 != Some(0) {
            continue;
        }
        for options in ["", "--level 3"] {
            let task = "bash -c 'ulimit -v; exit 3'";
            let expected = (Some(3), format!("{kib}\n"));
            let script = format!("ulimit -v {kib}; exec {own} run {options} -- {task} 2>/dev/null");
            assert_eq!(ends(script), expected, "{options}");
            let script =
                format!("ulimit -S -v {kib}; exec {own} run {options} -- {task} 2>/dev/null");
            assert_eq!(ends(script), expected, "{options}, a soft limit");
        }
        tried += 1;
    }
    assert!(tried > 0, "the program can be loaded");
}
