//! The report is true.

use super::*;

const MIB: f64 = 1024.0 * 1024.0;

#[test]
fn bytes_and_processes_of_a_script_are_exact() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x");
    let script = format!(
        "dd if=/dev/zero of={0} bs=4k count=2560 status=none; cat {0} >/dev/null; for i in 1 2 3 4 5; do /bin/true; done; exit 7",
        file.display()
    );
    // The programs read the same bytes at each start.
    let idle = measure(&[
        "--",
        "sh",
        "-c",
        "dd if=/dev/null of=/dev/null status=none; cat /dev/null >/dev/null; for i in 1 2 3 4 5; do /bin/true; done; exit 7",
    ]);
    for level in ["1", "2"] {
        let outcome = measure(&["--level", level, "--", "sh", "-c", &script]);
        assert_eq!(outcome.code, Some(7), "level {level}");
        assert_eq!(outcome.summary["ended"]["status"], 7);
        assert_eq!(outcome.summary["level"].to_string(), level);
        let read = outcome.value("read_bytes") - idle.value("read_bytes");
        let written = outcome.value("written_bytes") - idle.value("written_bytes");
        assert_eq!((read, written), (20.0 * MIB, 20.0 * MIB), "level {level}");
        let reading = &outcome.summary["resources"]["read_bytes"];
        // On a busy machine the monitor may be late for a process, and then says so.
        let says_why = reading["missing"].as_array().is_some_and(|missing| !missing.is_empty());
        assert!(reading["completeness"] == "all" || says_why, "level {level}: {reading}");
    }
    assert_eq!(idle.value("processes_total"), 8.0, "sh, dd, cat and five times true");
    assert_eq!(idle.value("processes_max"), 2.0);
}

#[test]
fn memory_that_was_held_for_a_moment_is_seen_and_so_is_that_of_several_together() {
    let hold = program("hold");
    let one = measure(&["--", text(&hold), "200"]);
    assert!((200.0..203.0).contains(&(one.value("resident_bytes_max") / MIB)), "{:?}", one.summary);
    let script = format!("{0} 100 300 & {0} 50 300 & wait", hold.display());
    let two = measure(&["--", "sh", "-c", &script]);
    let (sum, bound) =
        (two.value("resident_bytes_max"), two.of("resident_bytes_max", "error_bound"));
    assert!((150.0..160.0).contains(&(sum / MIB)), "{sum}");
    assert!(bound.as_f64().is_some_and(|bound| (50.0..60.0).contains(&(bound / MIB))), "{bound}");
    let apart = measure(&["--", "sh", "-c", &script.replace('&', ";").replace("; wait", "")]);
    assert!(
        (100.0..110.0).contains(&(apart.value("resident_bytes_max") / MIB)),
        "the programs run one after the other"
    );
}

#[test]
fn processor_time_is_that_of_the_kernel() {
    let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; times";
    let outcome = measure(&["--", "sh", "-c", script]);
    // "0m0.310000s 0m0.010000s": the times of the shell, then those of its children.
    let seconds = |text: &str| {
        let (minutes, seconds) = text.split_once('m').expect("minutes");
        minutes.parse::<f64>().expect("m") * 60.0
            + seconds.trim_end_matches('s').parse::<f64>().expect("s")
    };
    let own: f64 = outcome.stdout.split_whitespace().map(seconds).sum();
    let cpu = outcome.value("cpu_seconds");
    let shell = outcome.summary["processes"][0]["cpu_seconds"].as_f64().expect("known");
    assert!(
        (shell - cpu).abs() < 0.02 && shell.fract() * 100.0 % 1.0 != 0.0,
        "{shell}: not in ticks"
    );
    assert!(cpu >= own - 0.02 && cpu <= own + 0.1, "{cpu} for {own}");
}

#[test]
fn orphans_and_those_that_left_the_session_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x");
    // On a busy machine the bytes take longer than any fixed pause, so the file of its end is waited for.
    let daemon = format!(
        "(setsid sh -c 'head -c 5000000 /dev/zero > {0}; echo > {0}.end' &) ; while [ ! -s {0}.end ]; do sleep 0.05; done; rm {0}.end; sleep 0.3",
        file.display()
    );
    for level in ["1", "2"] {
        let outcome = measure(&["--level", level, "--", "sh", "-c", &daemon]);
        let written = outcome.value("written_bytes");
        assert!((5e6..5.1e6).contains(&written), "level {level}: {written}");
    }
}

#[test]
fn threads_are_no_processes() {
    let threads = program("threads");
    let outcome = measure(&["--", text(&threads), "1000"]);
    assert_eq!(outcome.value("processes_total"), 1.0);
    assert!((2.0..=11.0).contains(&outcome.value("threads_max")));
}

#[test]
fn a_monitor_in_a_monitor_measures_and_is_measured() {
    let inner = [
        env!("CARGO_BIN_EXE_skopos"),
        "run",
        "--json",
        "--",
        "sh",
        "-c",
        "head -c 3000000 /dev/zero; /bin/true",
    ];
    let mut all = vec!["--json", "--"];
    all.extend(inner);
    let Output { stderr, stdout, status } = monitor(&all).output().expect("it starts");
    assert!(status.success());
    assert_eq!(stdout.len(), 3_000_000);
    let stderr = String::from_utf8_lossy(&stderr);
    let reports: Vec<Json> =
        stderr.lines().map(|line| serde_json::from_str(line).expect("a report")).collect();
    assert_eq!(reports.len(), 2);
    for report in reports {
        let written = report["resources"]["written_bytes"]["value"].as_f64().expect("known");
        assert!((3e6..3.1e6).contains(&written), "{written}");
        assert_eq!(report["ended"]["status"], 0);
    }
}

#[test]
fn a_report_is_written_whole_and_never_over_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("out");
    let args = [
        "--report",
        text(&place),
        "--series",
        "20ms",
        "--watch",
        text(folder.path()),
        "--",
        "sleep",
        "1",
    ];
    assert!(monitor(&args).status().expect("it starts").success());
    let summary = std::fs::read_to_string(place.join("summary.json")).expect("written");
    let summary: Json = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary["task"]["class"], "sleep");
    assert!(summary["resources"]["files"]["value"].as_f64() >= Some(1.0));
    let series = std::fs::read_to_string(place.join("series.csv")).expect("written");
    let rows: Vec<&str> = series.lines().collect();
    assert!(rows[0].starts_with("seconds,cpu_seconds,resident_bytes"), "{series}");
    assert!(rows.len() > 5 && rows[1].split(',').count() == rows[0].split(',').count());
    let again = monitor(&args).output().expect("it starts");
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("has a report already"));
}

#[test]
fn explain_lists_the_mechanisms() {
    let Output { stdout, status, .. } =
        monitor(&["--explain", "--json"]).output().expect("it starts");
    assert!(status.success());
    let outcome: Json = serde_json::from_slice(&stdout).expect("JSON");
    let mechanisms = outcome["mechanisms"].as_array().expect("a list");
    assert!(mechanisms.iter().any(|m| m["name"] == "wait4" && m["used"] == true));
    assert!(mechanisms.iter().all(|m| m["why"].as_str().is_some_and(|why| !why.is_empty())));
}

#[test]
fn missing_usage_has_no_bound_and_survivors_are_reported() {
    // A sample finds the process before it runs `sleep 2`. The shell waits until it does, however busy
    // the machine is.
    let script = "(sleep 0.2; exec sleep 2) & \
                  until grep -q sleep /proc/$!/comm; do sleep 0.02; done; sleep 0.1";
    for level in ["1", "2"] {
        let outcome = measure(&["--level", level, "--", "sh", "-c", script]);
        let resources = outcome.summary["resources"].as_object().expect("resources");
        let at_least: Vec<_> =
            resources.iter().filter(|(_, r)| r["completeness"] == "at_least").collect();
        for of_all in ["cpu_seconds", "cores"] {
            assert!(at_least.iter().any(|(name, _)| *name == of_all), "{of_all} at {level}");
        }
        for (name, reading) in at_least {
            assert!(reading["error_bound"].is_null(), "{name}: {reading}");
        }
        let findings = outcome.summary["findings"].to_string();
        assert!(findings.contains("the task left sleep 2"), "level {level}: {findings}");
    }
}

#[test]
fn an_orphan_between_two_samples_is_missed_and_reported() {
    // The process is the monitor's child before the first sample.
    let script = "(setsid sleep 2 >/dev/null 2>&1 &)";
    for by in ["wait4", "wait4,procfs"] {
        let outcome = measure(&["--mechanism", by, "--", "sh", "-c", script]);
        assert_eq!(
            outcome.of("cpu_seconds", "completeness"),
            "at_least",
            "{by}: {}",
            outcome.summary
        );
        let findings = outcome.summary["findings"].to_string();
        assert!(findings.contains("the task left "), "{by}: {findings}");
    }
}

#[test]
fn usage_without_a_waiting_parent_is_missing_without_samples() {
    let kept = program("unwaited");
    for (argument, completeness) in [("ignore", "at_least"), ("wait", "all")] {
        let outcome = measure(&["--mechanism", "wait4", "--", text(&kept), argument]);
        for name in ["cpu_seconds", "user_seconds", "minor_faults"] {
            let what = format!("{argument}: {name} {}", outcome.summary["resources"][name]);
            assert_eq!(outcome.of(name, "completeness"), completeness, "{what}");
        }
    }
}

#[test]
fn stops_by_the_monitor_are_no_switches_of_the_task() {
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done";
    let [stopped, alone] = ["ptrace,wait4,procfs", "wait4,procfs"]
        .map(|by| measure(&["--mechanism", by, "--", "sh", "-c", script]));
    let stops = &stopped.summary["overhead"]["stops"];
    assert!(stops.as_f64() > Some(10.0), "{stops}");
    assert_eq!(stopped.of("voluntary_switches", "error_bound").as_f64(), stops.as_f64());
    assert_eq!(alone.of("voluntary_switches", "error_bound"), 0.0);
    assert!(stopped.of("cpu_delay_seconds", "error_bound").is_null());
    let [with, without] = [&stopped, &alone].map(|outcome| outcome.value("voluntary_switches"));
    assert!((with - without).abs() <= stops.as_f64().expect("known"), "{with} for {without}");
}

#[test]
fn unknown_and_absent_values_have_reasons() {
    let folder = tempfile::tempdir().expect("a folder");
    let absent = folder.path().join("none");
    let outcome =
        measure(&["--mechanism", "wait4,procfs", "--watch", text(&absent), "--", "/bin/true"]);
    let memory = &outcome.summary["resources"]["resident_bytes_max"];
    // A sample may have been in time.
    if memory["value"].is_null() {
        assert_eq!(memory["reason"], "the task ended before the first sample");
    }
    let outcome = self::measure(&["--watch", text(&absent), "--", "/bin/true"]);
    let findings = outcome.summary["findings"].to_string();
    assert!(findings.contains(&format!("never found: {}", absent.display())), "{findings}");
}

#[test]
fn no_process_is_guilty_of_the_time() {
    let outcome = measure(&["--limit", "wall=100ms", "--", "sh", "-c", "sleep 5; true"]);
    assert_eq!(outcome.summary["ended"]["exit_type"], "limit");
    assert!(outcome.summary["ended"]["guilty"].is_null(), "{}", outcome.summary["ended"]);
}
