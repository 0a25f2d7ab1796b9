//! `skopos ls` and `skopos get`.

use crate::support::{Running, eventually, run, runtime_dir};

#[test]
fn the_node_may_be_left_out_and_patterns_work() {
    let agent = Running::start(&[]);
    for topic in ["n01/mem/total_bytes", "mem/total_bytes", "*/mem/total_bytes", "**/mem/tot*"] {
        let ran = agent.run(&["ls", topic]);
        assert_eq!((ran.code, ran.stdout.trim()), (0, "n01/mem/total_bytes"), "{topic}: {ran:?}");
    }
    let all = agent.run(&["ls"]);
    assert!(all.stdout.lines().count() > 100, "{all:?}");
    let long = agent.run(&["ls", "-l", "mem/available_bytes"]);
    for part in ["gauge", "u64", "bytes", "/proc/meminfo"] {
        assert!(long.stdout.contains(part), "no `{part}` in {long:?}");
    }
}

#[test]
fn get_agrees_with_the_kernel() {
    let agent = Running::start(&[]);
    let ran = agent.run(&["get", "mem/total_bytes", "--json"]);
    let reading = &ran.json()["readings"][0];
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("procfs");
    let kib: u64 = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .expect("MemTotal");
    assert_eq!(reading["value"], kib * 1024);
    assert_eq!(reading["unit"], "bytes");
    assert_eq!(reading["origin"], "measured");
}

#[test]
fn an_unchanged_value_stays_fresh() {
    let agent = Running::start(&[]);
    let reading = || agent.run(&["get", "mem/total_bytes", "--json"]).json()["readings"][0].clone();
    let first = reading();
    let mut second = reading();
    eventually("another poll of the memory", || {
        second = reading();
        second["checked_at_ns"].as_i64() > first["checked_at_ns"].as_i64()
    });
    assert_eq!(first["time_ns"], second["time_ns"], "the total does not change");
}

#[test]
fn a_program_that_reads_again_and_again_gets_the_shortest_interval() {
    // The size of the swap space does not change, so the policy lengthens the interval.
    let agent = Running::start(&["--policy", "hazard", "--interval", "200ms"]);
    let interval = || -> f64 {
        let ran = agent.run(&["get", "self/sensor/swap/interval_seconds", "--plain"]);
        ran.stdout.split('\t').nth(1).and_then(|v| v.parse().ok()).expect("a number")
    };
    eventually("the sensor is polled rarely", || interval() > 1.0);
    eventually("the reads shorten its interval", || {
        let ran = agent.run(&["get", "swap/total/size_bytes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        interval() < 0.25
    });
    eventually("the sensor is polled rarely again", || interval() > 1.0);
}

#[test]
fn an_old_value_is_refreshed_or_refused() {
    let agent = Running::start(&["--interval", "1h"]);
    let polls = || -> f64 {
        let ran = agent.run(&["get", "self/sensor/mem/polls_total", "--plain"]);
        ran.stdout.split('\t').nth(1).and_then(|v| v.parse().ok()).expect("a number")
    };
    assert!(polls() <= 1.0);
    eventually("the value is older than 50 ms", || {
        let ran = agent.run(&["get", "mem/free_bytes", "--json"]);
        ran.json()["readings"][0]["age_seconds"].as_f64() > Some(0.05)
    });
    let fresh = agent.run(&["get", "mem/free_bytes", "--max-age", "50ms", "--json"]);
    assert_eq!(fresh.code, 0, "{fresh:?}");
    let old = agent.run(&["get", "mem/total_bytes", "--json"]).json();
    let (fresh, old) = (&fresh.json()["readings"][0], &old["readings"][0]);
    assert_eq!(fresh["checked_at_ns"], old["checked_at_ns"], "one poll reads all of /proc/meminfo");

    // A user's fact has no sensor that could poll it.
    assert_eq!(agent.run(&["publish", "mine", "1"]).code, 0);
    let refused = agent.run(&["get", "mine", "--max-age", "0s"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("--max-age"), "{refused:?}");
}

#[test]
fn a_mistyped_topic_suggests_the_nearest_and_nothing_found_is_a_no() {
    let agent = Running::start(&[]);
    let ran = agent.run(&["get", "mem/availabel_bytes"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("did you mean `n01/mem/available_bytes`?"), "{ran:?}");
    let ran = agent.run(&["ls", "zzz/**"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("no topic matches"), "{ran:?}");
}

#[test]
fn nothing_running_gives_one_error_and_one_hint() {
    let dir = runtime_dir();
    for verb in [&["ls"][..], &["get", "x"], &["watch", "x"], &["publish", "x", "1"]] {
        let ran = run(dir.path(), verb);
        assert_eq!(ran.code, 2, "{verb:?} {ran:?}");
        let count = |prefix: &str| ran.stderr.lines().filter(|l| l.starts_with(prefix)).count();
        assert_eq!((count("error: "), count("hint: ")), (1, 1), "{verb:?} {ran:?}");
        assert!(ran.stderr.contains("skopos up"), "{verb:?} {ran:?}");
    }
}

/// A rate over a short time rests on a few ticks of the kernel's clock. A client must not spoil it by
/// frequent polls.
#[test]
fn no_client_can_have_a_sensor_polled_all_the_time() {
    let agent = Running::start(&["--interval", "1h"]);
    let polls = || -> u64 {
        let ran = agent.run(&["publish", "app/tick", "1"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let status = agent.run(&["doctor", "--json"]).json();
        let sensors = status["sensors"].as_array().expect("a list").clone();
        sensors.iter().find(|s| s["name"] == "mem").and_then(|s| s["polls"].as_u64()).expect("mem")
    };
    let started = std::time::Instant::now();
    let before = polls();
    for _ in 0..20 {
        agent.run(&["get", "mem/free_bytes", "--max-age", "0s"]);
    }
    let most = started.elapsed().as_millis() as u64 / 100 + 1;
    let made = polls() - before;
    assert!((1..=most).contains(&made), "{made} polls, {most} at most");
}

#[test]
fn an_agent_that_does_not_answer_is_waited_for_once() {
    let agent = Running::start(&["--interval", "1h"]);
    crate::support::eventually("values are older than 150 ms", || {
        let ran = agent.run(&["get", "mem/free_bytes", "--json"]);
        ran.json()["readings"][0]["age_seconds"].as_f64() > Some(0.15)
    });
    crate::support::signal(&agent.child, "STOP");
    let ran = agent.run(&["get", "mem/*", "--max-age", "1ms"]);
    crate::support::signal(&agent.child, "CONT");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("does not answer"), "{ran:?}");
}

#[test]
fn known_topics_are_shown_beside_errors_for_unknown_ones() {
    let agent = Running::start(&[]);
    let ran = agent.run(&["get", "mem/total_bytes", "nosuch/thing"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("mem/total_bytes"), "{ran:?}");
    assert!(ran.stderr.contains("nosuch/thing"), "{ran:?}");
}
