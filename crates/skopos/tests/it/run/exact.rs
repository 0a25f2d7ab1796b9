//! A number that is called complete is complete: otherwise the reading lists what it cannot contain.

use super::*;

const MIB: f64 = 1024.0 * 1024.0;

/// The monitor as this user and, if that is possible, as a user without rights.
fn users() -> Vec<(&'static str, Command)> {
    let own = ("this user", Command::new(env!("CARGO_BIN_EXE_skopos")));
    [own].into_iter().chain(as_user().map(|command| ("a user", command))).collect()
}

/// Runs a task as each user; `check` gets the outcome and a description.
fn by_each(args: &[&str], check: impl Fn(&Outcome, &str)) {
    for (user, mut command) in users() {
        command.args(["run", "--json"]).args(args);
        check(&measure_by(command), &format!("{user}: {args:?}"));
    }
}

fn agrees(outcome: &Outcome, name: &str, truth: std::ops::Range<f64>, what: &str) {
    let reading = &outcome.summary["resources"][name];
    let value = reading["value"].as_f64().unwrap_or_else(|| panic!("{what}: {name} {reading}"));
    let lists = reading["missing"].as_array().map_or(0, Vec::len);
    if reading["completeness"] == "all" {
        assert!(truth.contains(&value) && lists == 0, "{what}: {name} {reading}");
    } else {
        assert!(value < truth.end && lists > 0, "{what}: {name} {reading}");
        assert!(reading["error_bound"].is_null(), "{what}: {name} {reading}");
    }
}

#[test]
fn bytes_that_a_user_may_not_read_at_the_exit_are_not_called_complete() {
    for level in ["1", "2"] {
        let args = ["--level", level, "--", "head", "-c", "200000000", "/dev/zero"];
        by_each(&args, |outcome, what| {
            for name in ["read_bytes", "written_bytes"] {
                agrees(outcome, name, 2e8..2.01e8, what);
            }
        });
    }
    by_each(&["--level", "2", "--", "head", "-c", "9000000", "/dev/zero"], |outcome, what| {
        assert_eq!(outcome.of("written_bytes", "completeness"), "all", "{what}");
    });
}

#[test]
fn the_peak_of_memory_outlives_an_exec() {
    let (first, hold) = (program("become"), program("hold"));
    for by in ["--level=1", "--level=2", "--mechanism=wait4,procfs,ptrace"] {
        // The process, and a child of a shell.
        let script = format!("{} 300 {} 20; true", first.display(), hold.display());
        for command in [vec![text(&first), "300", text(&hold), "20"], vec!["sh", "-c", &script]] {
            let args = [&[by, "--"], &command[..]].concat();
            by_each(&args, |outcome, what| {
                let peak = outcome.value("resident_bytes_max") / MIB;
                assert!((300.0..304.0).contains(&peak), "{what}: {peak}");
            });
        }
    }
}

/// Two busy children that their limit ended were once charged with the time of their shell: "0.002 s, all".
#[test]
fn the_processor_time_of_a_tree_that_its_limit_ended_is_not_lost() {
    let script = "while :; do :; done & while :; do :; done & wait";
    for by in
        ["--level=1", "--level=2", "--mechanism=wait4,procfs", "--mechanism=wait4,procfs,ptrace"]
    {
        let args = [by, "--limit", "cpu=1s", "--", "sh", "-c", script];
        by_each(&args, |outcome, what| {
            assert_eq!(outcome.summary["ended"]["exit_type"], "limit", "{what}");
            let reading = &outcome.summary["resources"]["cpu_seconds"];
            let value = reading["value"].as_f64().unwrap_or_default();
            assert!(value >= 1.0, "{what}: {reading}");
        });
    }
}

#[test]
fn bytes_around_the_counted_calls_are_listed_as_missing() {
    let around = program("around");
    for way in ["mmap", "aio"] {
        for level in ["1", "2", "3"] {
            let folder = tempfile::tempdir().expect("a folder");
            std::fs::set_permissions(
                folder.path(),
                std::os::unix::fs::PermissionsExt::from_mode(0o777),
            )
            .expect("a folder of all");
            for (at, (user, mut command)) in users().into_iter().enumerate() {
                let file = folder.path().join(at.to_string());
                let args = ["--level", level, "--", text(&around), way, text(&file), "256"];
                command.args(["run", "--json"]).args(args);
                let outcome = measure_by(command);
                if outcome.code == Some(77) {
                    eprintln!("skipped: {way} may not be used here");
                    continue;
                }
                let reading = &outcome.summary["resources"]["written_bytes"];
                let what = format!("{user}, {way}, level {level}: {reading}");
                assert_eq!(reading["completeness"], "at_least", "{what}");
                let missing = reading["missing"].to_string();
                // A busy machine may have no sample while the file is mapped. Then an ordinary user's reading at level 1
                // says that it is one of samples.
                let is_sampled = level == "1" && missing.contains("other");
                let is_named = missing.contains(way) || missing.contains("unexplained");
                assert!(is_named || is_sampled, "{what}");
                let _ = std::fs::remove_file(&file);
            }
        }
    }
}

#[test]
fn bytes_of_ordinary_calls_are_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "dd if=/dev/zero of={} bs=64k count=1024 status=none",
        text(&folder.path().join("x"))
    );
    for level in ["1", "2", "3"] {
        let outcome = measure(&["--level", level, "--", "sh", "-c", &script]);
        for name in ["read_bytes", "written_bytes"] {
            let reading = &outcome.summary["resources"][name];
            assert_eq!(reading["completeness"], "all", "level {level}: {name} {reading}");
            assert!(reading["missing"].is_null(), "level {level}: {name} {reading}");
        }
    }
}

#[test]
fn threads_that_started_are_counted() {
    let threads = program("threads");
    for by in ["--level=2", "--mechanism=wait4,procfs,ptrace"] {
        by_each(&[by, "--", text(&threads), "200"], |outcome, what| {
            assert_eq!(outcome.value("threads_total"), 201.0, "{what}");
            assert_eq!(outcome.of("threads_total", "completeness"), "all", "{what}");
        });
    }
}
