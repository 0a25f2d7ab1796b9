//! `skopos up` and `skopos agent`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::support::{Running, eventually, listeners, run, runtime_dir, signal, skopos, terminate};

#[test]
fn up_says_what_it_senses_and_what_to_try_and_ends_by_itself() {
    let dir = runtime_dir();
    let args = ["up", "--for", "2500ms", "--interval", "200ms", "--skip", "numa"];
    let ran = run(dir.path(), &[&args[..], &listeners(&[])[..]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let first = ran.stdout.lines().next().expect("a line");
    assert!(first.starts_with("skopos "), "{first}");
    for part in ["facts from", "mem (", "numa: left out by --skip", "top", "get ", "watch "] {
        assert!(ran.stdout.contains(part), "no `{part}` in {}", ran.stdout);
    }
    // A line of live values has the memory of this machine as the kernel reports it.
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("procfs");
    let kib: f64 = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .expect("MemTotal");
    let total = format!(" of {:.1} GiB", kib / 1024.0 / 1024.0);
    let live = ran
        .stdout
        .lines()
        .find(|l| l.contains("  mem ") && l.contains(" of "))
        .expect("live values");
    assert!(live.contains(&total), "no `{total}` in `{live}`");
    assert!(live.contains("cpu "), "{live}");
}

#[test]
fn the_segment_is_gone_after_an_orderly_end_and_each_signal_is_one() {
    for name in ["INT", "TERM", "HUP"] {
        let mut agent = Running::start(&[]);
        assert!(agent.path().join("agent.seg").exists());
        signal(&agent.child, name);
        let status = agent.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "SIG{name}");
        for file in ["agent.seg", "agent.sock"] {
            assert!(!agent.path().join(file).exists(), "{file} is left after SIG{name}");
        }
    }
}

#[test]
fn the_second_agent_says_who_holds_the_segment() {
    let agent = Running::start(&[]);
    let second = agent.run(&["agent"]);
    assert_eq!(second.code, 2, "{second:?}");
    let pid = agent.child.id().to_string();
    assert!(second.stderr.starts_with("error: "), "{second:?}");
    assert!(second.stderr.contains(&format!("process {pid}")), "{second:?}");
    assert!(second.stderr.contains("hint: "), "{second:?}");
    // The first agent is unharmed.
    assert_eq!(agent.run(&["get", "mem/total_bytes"]).code, 0);
}

#[test]
fn an_agent_that_was_killed_is_seen_as_dead_and_its_place_is_taken() {
    let mut agent = Running::start(&[]);
    agent.kill();
    assert!(agent.path().join("agent.seg").exists(), "SIGKILL leaves the files");
    let get = agent.run(&["get", "mem/total_bytes"]);
    assert_eq!(get.code, 2, "{get:?}");
    assert!(get.stderr.contains("nothing is running"), "{get:?}");
    let doctor = agent.run(&["doctor"]);
    assert!(doctor.stdout.contains("its publisher is dead"), "{doctor:?}");
    let again = agent.run(&["agent", "--for", "300ms"]);
    assert_eq!(again.code, 0, "{again:?}");
}

#[test]
fn a_sensor_is_polled_at_its_interval_and_publishes_what_it_costs() {
    let agent = Running::start(&[]);
    let number = |topic: &str| -> f64 {
        let ran = agent.run(&["get", topic, "--plain"]);
        ran.stdout.split('\t').nth(1).and_then(|v| v.parse().ok()).unwrap_or(0.0)
    };
    eventually("20 polls of mem", || number("self/sensor/mem/polls_total") >= 20.0);
    assert!(number("self/sensor/mem/poll_seconds") > 0.0);
    assert!(number("self/cpu_seconds_total") > 0.0);
    assert!(number("self/resident_bytes") > 1e5);
    assert!((number("self/sensor/mem/interval_seconds") - 0.1).abs() < 1e-9);
    assert!(number("self/facts") > 50.0);
}

#[test]
fn wrong_options_are_refused_with_a_hint() {
    let dir = runtime_dir();
    for (args, part) in [
        (&["agent", "--interval", "1ms"][..], "out of range"),
        (&["agent", "--interval", "5x"], "not a unit of time"),
        (&["agent", "--interval", "soon"], "not a duration"),
        (&["agent", "--node", "Two Words"], "not a valid name of a node"),
        (&["agent", "--node", "a/b"], "not a valid name of a node"),
        (&["agent", "--skip", "memm"], "no family `memm`"),
    ] {
        let ran = run(dir.path(), args);
        assert_eq!(ran.code, 2, "{args:?} {ran:?}");
        assert!(ran.stderr.contains(part), "{args:?} {ran:?}");
        assert!(ran.stdout.is_empty(), "{args:?} {ran:?}");
    }
}

#[test]
fn a_runtime_directory_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = runtime_dir();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    for verb in [&["agent", "--for", "1s"][..], &["ls"]] {
        let ran = run(dir.path(), verb);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("other users may write"), "{ran:?}");
        assert!(ran.stderr.contains("SKOPOS_DIR"), "{ran:?}");
    }
}

#[test]
fn the_first_line_of_up_comes_before_any_sensor_is_opened() {
    let dir = runtime_dir();
    let args = [&["up"][..], &listeners(&[])[..]].concat();
    let mut child = skopos(dir.path(), &args).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("a line");
    assert!(first.contains("looking at this machine"), "{first}");
    let output = terminate(child);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn an_agent_whose_segment_was_removed_says_so_and_ends() {
    // The agent notices it however seldom it polls.
    let mut agent = Running::start(&["--interval", "5m"]);
    std::fs::remove_file(agent.path().join("agent.seg")).expect("ours");
    let mut status = None;
    eventually("the agent ends", || {
        status = agent.child.try_wait().expect("our own child");
        status.is_some()
    });
    assert_eq!(status.and_then(|s| s.code()), Some(2));
}

/// A warning to a closed pipe once ended the agent.
#[test]
fn an_agent_outlives_the_reader_of_its_messages() {
    let dir = runtime_dir();
    let mut child = skopos(dir.path(), &["agent", "--interval", "3s", "--node", "n01"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    stdout.read_line(&mut String::new()).expect("it has started");
    drop((stdout, child.stderr.take()));
    // The sensor registers this name at its second poll, and warns that the name is taken.
    let taken = run(dir.path(), &["publish", "cpu/total/busy_ratio", "1"]);
    assert_eq!(taken.code, 0, "{taken:?}");
    let refused = || -> Option<u64> {
        let ran = run(dir.path(), &["get", "self/facts_refused_total", "--plain"]);
        ran.stdout.split('\t').nth(1)?.parse().ok()
    };
    eventually("the fact is refused", || refused() >= Some(1));
    // An agent that the warning ended would be dead after another tick.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let output = terminate(child);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_runtime_directory_whose_name_is_too_long_for_a_socket_is_refused_at_once() {
    let dir = runtime_dir();
    let deep = dir.path().join("d".repeat(120));
    let ran = run(&deep, &["agent", "--for", "1s"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("too long") && ran.stderr.contains("hint: "), "{ran:?}");
    assert!(!deep.exists(), "nothing is left behind");
}

#[test]
fn another_hub_that_connects_to_the_hub_of_up_has_its_facts() {
    let at = format!("tcp/127.0.0.1:{}", crate::support::free_port());
    let _up = Running::start_as("up", &["--live", "--insecure", "--listen", &at]);
    let dir = runtime_dir();
    let args = ["hub", "--insecure", "--connect", &at];
    let hub = skopos(dir.path(), &[&args[..], &listeners(&[])[..]].concat()).spawn();
    let mut hub = hub.expect("it starts");
    let statement =
        "SELECT count(*) > 0 AS is_there FROM latest WHERE topic = 'n01/mem/total_bytes'";
    eventually("the other hub has the facts of the node", || {
        let ran = run(dir.path(), &["sql", "--json", statement]);
        ran.code == 0 && ran.json()["rows"][0]["is_there"] == true
    });
    hub.kill().expect("it runs");
    hub.wait().expect("it ends");
}

#[test]
fn options_of_the_live_plane_need_it() {
    let dir = runtime_dir();
    for option in [["--connect", "tcp/127.0.0.1:9"], ["--look-on", "lo"], ["--site", "a"]] {
        for verb in ["agent", "up"] {
            let ran = run(dir.path(), &[&[verb, "--for", "100ms"], &option[..]].concat());
            assert_eq!(ran.code, 2, "{ran:?}");
            let error = format!("`{}` needs `--live`", option[0]);
            assert!(ran.stderr.contains(&error) && ran.stderr.contains("hint: "), "{ran:?}");
        }
    }
}
