//! `skopos watch`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value as Json;

use crate::support::{Running, signal, skopos, terminate};

#[test]
fn every_change_of_a_published_fact_comes_once_and_in_order() {
    let agent = Running::start(&[]);
    assert_eq!(agent.run(&["publish", "app/step", "0"]).code, 0);
    let mut child = skopos(agent.path(), &["watch", "app/step", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || -> Json {
        serde_json::from_str(&lines.next().expect("a line").expect("UTF-8")).expect("JSON")
    };
    assert_eq!(next()["value"], 0.0, "the current value comes first");
    for step in 1..=20 {
        assert_eq!(agent.run(&["publish", "app/step", &step.to_string()]).code, 0);
        let line = next();
        assert_eq!((&line["event"], &line["value"]), (&"change".into(), &f64::from(step).into()));
    }
    assert_eq!(agent.run(&["publish", "app/step", "--remove"]).code, 0);
    assert_eq!(next()["event"], "gone");
    terminate(child);
}

#[test]
fn a_topic_that_appears_later_joins_the_pattern() {
    let agent = Running::start(&[]);
    let mut child =
        skopos(agent.path(), &["watch", "late/**", "--json", "--count", "1", "--for", "60s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
    let mut said = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut said).expect("a line");
    assert!(said.contains("nothing matches"), "{said}");
    // The pattern was typed without a node, and topics have one: a new topic matches all the same.
    assert_eq!(agent.run(&["publish", "late/comer", "7"]).code, 0);
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert!(line.contains("n01/late/comer"), "{line}");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn counts_and_times_end_it() {
    let agent = Running::start(&[]);
    let ran = agent.run(&["watch", "self/sensor/mem/polls_total", "--count", "3", "--plain"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let values: Vec<u64> = ran
        .stdout
        .lines()
        .map(|l| l.split('\t').nth(2).and_then(|v| v.parse().ok()).expect("a number"))
        .collect();
    assert_eq!(values.len(), 3, "{ran:?}");
    // The current values come first. From then on each poll of a followed topic is published.
    assert!(values[1] > values[0], "one change came twice: {values:?}");
    assert_eq!(values[2], values[1] + 1, "one poll was missed or came twice: {values:?}");
    let ran = agent.run(&["watch", "mem/total_bytes", "--for", "300ms"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (0, 1), "{ran:?}");
}

#[test]
fn several_patterns_are_followed_and_listed_at_once() {
    let agent = Running::start(&[]);
    for (topic, value) in [("app/a", "1"), ("app/b", "2"), ("app/c", "3")] {
        assert_eq!(agent.run(&["publish", topic, value]).code, 0);
    }
    let ran = agent.run(&["watch", "app/a", "app/[", "--count", "1"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    // A topic that matches two patterns comes once.
    let ran = agent.run(&["watch", "app/a", "app/c", "*/app/a", "--for", "300ms", "--plain"]);
    let topics: Vec<_> = ran.stdout.lines().filter_map(|l| l.split('\t').nth(1)).collect();
    assert_eq!(topics, ["n01/app/a", "n01/app/c"], "{ran:?}");
    let ran = agent.run(&["ls", "app/c", "app/a", "app/*"]);
    let listed: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(listed, ["n01/app/c", "n01/app/a", "n01/app/b"], "{ran:?}");
    let ran = agent.run(&["ls", "app/c", "app/d"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("no topic matches `app/d`"), "{ran:?}");
}

#[test]
fn the_death_of_the_agent_is_reported() {
    let mut agent = Running::start(&[]);
    let mut child = skopos(agent.path(), &["watch", "mem/total_bytes", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.next().expect("a line").expect("UTF-8").contains("change"));
    agent.kill();
    assert!(lines.next().expect("a line").expect("UTF-8").contains("gone"));
    terminate(child);
}

#[test]
fn a_fact_that_vanished_and_returned_unseen_is_followed_again() {
    // At this interval there is no second poll: facts that sensors register later would make the watch
    // look for new topics anyway.
    let agent = Running::start(&["--interval", "1h"]);
    assert_eq!(agent.run(&["publish", "app/a", "1"]).code, 0);
    let mut child = skopos(agent.path(), &["watch", "app/a", "--json", "--for", "60s"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || -> Json {
        serde_json::from_str(&lines.next().expect("a line").expect("UTF-8")).expect("JSON")
    };
    assert_eq!(next()["value"], 1.0);
    signal(&child, "STOP");
    assert_eq!(agent.run(&["publish", "app/a", "--remove"]).code, 0);
    assert_eq!(agent.run(&["publish", "app/a", "2"]).code, 0);
    signal(&child, "CONT");
    assert_eq!(next()["event"], "gone");
    assert_eq!(next()["value"], 2.0);
    assert_eq!(agent.run(&["publish", "app/a", "3"]).code, 0);
    assert_eq!(next()["value"], 3.0);
    terminate(child);
}

#[test]
fn a_time_that_no_clock_can_tell_is_for_ever() {
    let agent = Running::start(&[]);
    let args = ["watch", "mem/total_bytes", "--count", "1", "--for", "200000000000000d"];
    assert_eq!(agent.run(&args).code, 0);
}
