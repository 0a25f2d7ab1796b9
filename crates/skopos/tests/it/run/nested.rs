//! Monitors inside the task: they are listed, bounded, and never added to the sums.

use super::*;

const EXE: &str = env!("CARGO_BIN_EXE_skopos");

fn nested(outcome: &Outcome) -> Vec<&Json> {
    outcome.summary["nested"].as_array().map(|all| all.iter().collect()).unwrap_or_default()
}

#[test]
fn three_levels_of_monitors_are_listed_and_count_once() {
    // `env -i` clears the environment on the way.
    let script = format!(
        "head -c 1000000 /dev/zero >/dev/null; exec env -i {EXE} run --name second -- sh -c \
         'head -c 500000 /dev/zero >/dev/null; {EXE} run --name third -- sh -c \"head -c 3 /dev/zero \
         >/dev/null; exit 3\"; exit 2'"
    );
    let outcome = measure(&["--name", "first", "--", "sh", "-c", &script]);
    let all = nested(&outcome);
    assert_eq!((all.len(), outcome.code), (2, Some(2)), "{}", outcome.summary);
    let (second, third) = (all[0], all[1]);
    assert_eq!((&second["class"], &second["status"]), (&"second".into(), &2.into()), "{second}");
    assert_eq!((&third["class"], &third["status"]), (&"third".into(), &3.into()), "{third}");
    assert_eq!(third["inside_of"], second["pid"], "{third}");
    assert_eq!(third["resources"]["wall_seconds"]["completeness"], "all", "{third}");
    // The bytes count once, and not once more for each monitor. The monitors themselves write little.
    let written = outcome.value("written_bytes");
    assert!((1_500_003.0..1_600_000.0).contains(&written), "{written}");
    crate::json::check("summary", &outcome.summary);
}

#[test]
fn values_of_a_nested_monitor_raise_incomplete_ones() {
    let hold = program("hold");
    // A monitor that samples once an hour misses a moment.
    let args = ["--level", "1", "--series", "1h", "--", EXE, "run", "--level", "2", "--"];
    let args: Vec<&str> = args.into_iter().chain([text(&hold), "200"]).collect();
    let outcome = measure(&args);
    let memory = &outcome.summary["resources"]["resident_bytes_max"];
    let inner = &nested(&outcome)[0]["resources"]["resident_bytes_max"];
    if inner["completeness"] != "all" {
        eprintln!("skipped: tracing is not allowed here, so the monitor inside saw no more");
        return;
    }
    assert!(outcome.value("resident_bytes_max") > 199.0 * 1024.0 * 1024.0, "{memory}");
    if memory["method"] == "nested" {
        assert_eq!(memory["completeness"], "at_least", "{memory}");
    }
    assert_ne!(
        outcome.of("written_bytes", "method"),
        "nested",
        "the count is complete without the nested report"
    );
}

#[test]
fn a_monitor_inside_that_is_killed_is_listed_without_an_end() {
    let script =
        format!("{EXE} run --name victim -- sh -c 'sleep 0.2; kill -9 $PPID; exit 0'; true");
    let outcome = measure(&["--", "sh", "-c", &script]);
    let all = nested(&outcome);
    assert_eq!(all.len(), 1, "{}", outcome.summary);
    let victim = all[0];
    assert_eq!((&victim["class"], &victim["exit_type"]), (&"victim".into(), &"unknown".into()));
    assert_eq!(victim["end_seconds"], Json::Null, "{victim}");
    assert_eq!(outcome.code, Some(0));
}

#[test]
fn an_outer_monitor_that_does_not_listen_delays_the_inner_one_briefly() {
    // A stopped monitor reads nothing. Some 64 messages may wait for it, and the monitors inside go on
    // all the same.
    let folder = tempfile::tempdir().expect("a folder");
    let done = folder.path().join("done");
    let script = format!(
        "kill -STOP $PPID; i=0; while [ $i -lt 36 ]; do {EXE} run --mechanism wait4 -- true; i=$((i+1)); done; \
         echo yes > {}; kill -CONT $PPID",
        done.display()
    );
    // The run is at level 1, since a stopped tracer stops its task at the next birth.
    let outcome = measure(&["--level", "1", "--", "sh", "-c", &script]);
    assert_eq!(std::fs::read_to_string(&done).expect("it went on"), "yes\n");
    assert!(!nested(&outcome).is_empty(), "{}", outcome.summary);
}

#[test]
fn a_stranger_with_the_name_of_the_outer_monitor_gets_nothing() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/run/above.py");
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    for (who, outcome) in [
        ("same", "connections told\n"),
        ("stranger", "connections nothing\n"),
        ("user", "connections nothing\n"),
    ] {
        if who == "user" && !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can be another user");
            continue;
        }
        let mut command = Command::new("python3");
        command.arg(&script).args([who, EXE, "run", "-q", "--level", "1", "--", "true"]);
        let Output { status, stdout, stderr } = command.output().expect("it starts");
        assert!(status.success(), "{who}: {}", String::from_utf8_lossy(&stderr));
        assert_eq!(String::from_utf8_lossy(&stdout), outcome, "{who}");
    }
}
