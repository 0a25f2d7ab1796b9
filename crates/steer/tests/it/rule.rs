//! Rules: when subjects fire and resolve, and which actions are due.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, json};
use skopos_model::Timestamp;
use skopos_steer::rule::{
    Due, Event, FLAP_CHANGES, FLAP_WINDOW, Kind, MAX_QUIET, MAX_SUBJECTS, Row, Terms, Tracker,
};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000_000).saturating_add(Duration::from_secs(seconds))
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn rows(names: &str) -> Vec<Row> {
    let row = |name: &str| Row { subject: name.to_owned(), values: Map::new() };
    names.split_whitespace().map(row).collect()
}

fn tracker(terms: Terms) -> Tracker {
    Tracker::new(terms).expect("valid terms")
}

/// Steps through answers and returns `time kind subject due` of each event. An answer that begins with `!` failed.
fn run(tracker: &mut Tracker, answers: &[(u64, &str)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (time, answer) in answers {
        let answer = match answer.strip_prefix('!') {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(rows(answer)),
        };
        for event in tracker.step(at(*time), answer) {
            let due = event.due.reason().unwrap_or("due");
            lines.push(format!("{time} {} {} {due}", event.kind.name(), event.subject));
        }
    }
    lines
}

#[test]
fn a_subject_fires_after_its_time_in_every_answer_and_resolves_after_its_absence() {
    let terms = Terms { hold: seconds(30), keep: seconds(10), ..Terms::default() };
    let lines = run(
        &mut tracker(terms),
        &[
            (0, "a b"),
            (10, "a"),
            (20, "a b"),
            (29, "a b"),
            (30, "a b"),
            (35, "b"),
            (39, "b"),
            (40, "b"),
            (50, "b"),
            (51, "b a"),
            (90, ""),
        ],
    );
    assert_eq!(
        lines,
        ["30 firing a due", "40 resolved a due", "50 firing b due", "90 resolved b due"]
    );
}

#[test]
fn an_evaluation_that_fails_neither_fires_nor_resolves() {
    let terms = Terms { hold: seconds(30), gap: seconds(15), ..Terms::default() };
    let lines = run(
        &mut tracker(terms),
        &[
            (0, "a"),
            (10, "a"),
            (20, "!the hub is overloaded"),
            (25, "!the hub is overloaded"),
            // The gap is longer than two answers in a row may have, so `a` begins anew.
            (31, "a"),
            (45, "a"),
            (60, "a"),
            (61, "a"),
            (70, "!no answer"),
            (71, "a"),
            (72, ""),
        ],
    );
    assert_eq!(
        lines,
        [
            "20 failed  silent",
            "31 recovered  silent",
            "61 firing a due",
            "70 failed  silent",
            "71 recovered  silent",
            "72 resolved a due",
        ]
    );
}

#[test]
fn an_answer_with_too_many_rows_is_a_failure() {
    let mut tracker = tracker(Terms::default());
    let many = |count: usize| -> Vec<Row> {
        (0..count).map(|n| Row { subject: n.to_string(), values: Map::new() }).collect()
    };
    let events = tracker.step(at(0), Ok(many(MAX_SUBJECTS + 1)));
    assert_eq!((events.len(), events[0].kind), (1, Kind::Failed));
    assert!(events[0].reason.contains("1001 rows"), "{}", events[0].reason);
    assert_eq!(tracker.step(at(1), Ok(many(MAX_SUBJECTS))).len(), 1 + MAX_SUBJECTS);
    assert_eq!(tracker.firing(), MAX_SUBJECTS);
}

#[test]
fn the_limit_holds_actions_back_and_gives_them_later() {
    let terms = Terms { most: 2, per: seconds(100), ..Terms::default() };
    let lines = run(
        &mut tracker(terms),
        &[(0, "a b c d"), (50, "b c d"), (60, "b d"), (100, "b d"), (101, "b d"), (102, "")],
    );
    assert_eq!(
        lines,
        [
            "0 firing a due",
            "0 firing b due",
            "0 firing c limit",
            "0 firing d limit",
            "50 resolved a due",
            "60 resolved c silent",
            "100 still_firing d due",
            "102 resolved b due",
            "102 resolved d due",
        ]
    );
}

#[test]
fn an_action_is_repeated_while_its_subject_fires() {
    let terms = Terms { repeat: Some(seconds(60)), ..Terms::default() };
    let answers = [(0, "a"), (59, "a"), (60, "a"), (119, "a"), (121, "a"), (122, "")];
    assert_eq!(
        run(&mut tracker(terms), &answers),
        ["0 firing a due", "60 still_firing a due", "121 still_firing a due", "122 resolved a due"]
    );
}

#[test]
fn a_subject_that_changes_too_often_is_told_once_until_it_is_steady() {
    let mut tracker = tracker(Terms::default());
    let lines = run(
        &mut tracker,
        &[(0, "a"), (10, ""), (20, "a"), (30, ""), (40, "a"), (50, ""), (60, "a"), (659, "a")],
    );
    assert_eq!(
        lines,
        [
            "0 firing a due",
            "10 resolved a due",
            "20 firing a due",
            "30 resolved a flapping",
            "30 flapping a due",
            "40 firing a flapping",
            "50 resolved a flapping",
            "60 firing a flapping",
        ]
    );
    assert_eq!(
        run(&mut tracker, &[(660, "a"), (670, "")]),
        ["660 steady a due", "670 resolved a due"]
    );
    assert_eq!((FLAP_CHANGES, FLAP_WINDOW), (4, seconds(600)));
}

#[test]
fn rows_with_equal_names_are_one_subject() {
    let mut tracker = tracker(Terms::default());
    let row = |n: u64| Row {
        subject: "a".to_owned(),
        values: json!({"n": n}).as_object().cloned().unwrap_or_default(),
    };
    let events = tracker.step(at(0), Ok(vec![row(1), row(2)]));
    assert_eq!((events.len(), &events[0].values["n"]), (1, &json!(1)));
    assert_eq!(tracker.duplicates(), 1);
}

#[test]
fn a_clock_that_is_set_back_changes_nothing() {
    let terms = Terms { hold: seconds(30), ..Terms::default() };
    let lines = run(&mut tracker(terms), &[(100, "a"), (0, "a"), (120, "a"), (130, "a"), (5, "")]);
    assert_eq!(lines, ["130 firing a due", "5 resolved a due"]);
}

#[test]
fn a_subject_that_fired_before_a_restart_fires_after_it_without_a_second_action() {
    let mut before = tracker(Terms::default());
    let mut past: Vec<Event> = Vec::new();
    for (time, names) in [(0, "a b c"), (1, "a b")] {
        past.extend(before.step(at(time), Ok(rows(names))));
    }
    let restored = |was_told: fn(&Event) -> bool| {
        let mut after = tracker(Terms { keep: seconds(5), ..Terms::default() });
        past.iter().for_each(|event| after.restore(event, was_told(event)));
        after
    };
    let mut after = restored(|_| true);
    assert_eq!((after.firing(), after.pending()), (2, 0));
    let answers = [(1000, "a b"), (1001, "b"), (1006, "b")];
    assert_eq!(run(&mut after, &answers), ["1006 resolved a due"]);
    // The process ended before the action of `b` was done.
    let mut after = restored(|event| event.subject != "b");
    assert_eq!(run(&mut after, &[(1000, "a b")]), ["1000 still_firing b due"]);
}

#[test]
fn terms_outside_of_their_ranges_are_refused() {
    let usual = Terms::default();
    for (terms, entry) in [
        (Terms { hold: Duration::MAX, ..usual }, "for"),
        (Terms { keep: Duration::MAX, ..usual }, "keep"),
        (Terms { repeat: Some(Duration::ZERO), ..usual }, "repeat"),
        (Terms { per: Duration::ZERO, ..usual }, "per"),
        (Terms { most: 0, ..usual }, "at_most"),
        (Terms { most: 1001, ..usual }, "at_most"),
    ] {
        let error = Tracker::new(terms).expect_err(entry);
        assert!(error.to_string().contains(&format!("`{entry}`")), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn ever_new_subjects_are_forgotten_and_counted() {
    let mut tracker = tracker(Terms::default());
    for step in 0..8 {
        let fresh = (0..MAX_SUBJECTS).map(|n| format!("{step}-{n}"));
        let fresh = fresh.map(|subject| Row { subject, values: Map::new() }).collect();
        tracker.step(at(step), Ok(fresh));
    }
    let expected = 7 * MAX_SUBJECTS - MAX_QUIET;
    assert_eq!(tracker.forgotten(), expected as u64);
}

proptest! {
    /// Actions within a period keep to the limit, and each end that is told belongs to a begin that was.
    #[test]
    fn actions_keep_to_the_limit(
        steps in prop::collection::vec((0u64..200, prop::collection::vec(0u8..6, 0..6), any::<bool>()), 1..60),
        most in 1u32..4,
        per in 1u64..300,
    ) {
        let mut tracker = tracker(Terms { most, per: seconds(per), repeat: Some(seconds(40)), ..Terms::default() });
        let (mut now, mut begins, mut told) = (0, Vec::new(), 0i64);
        for (pause, subjects, fails) in steps {
            now += pause;
            let rows = subjects.iter().map(|n| Row { subject: n.to_string(), values: Map::new() }).collect();
            let answer = if fails { Err("no".to_owned()) } else { Ok(rows) };
            for event in tracker.step(at(now), answer) {
                if event.due != Due::Now {
                    continue;
                }
                match event.kind {
                    Kind::Firing | Kind::StillFiring | Kind::Flapping => {
                        begins.push(now);
                        told += 1;
                    }
                    // It says that the subject fires on.
                    Kind::Steady if event.is_firing => {}
                    _ => told -= 1,
                }
            }
            prop_assert!(told >= 0, "more ends than begins");
            let recent = begins.iter().filter(|at| now - **at < per).count();
            prop_assert!(recent <= most as usize, "{recent} actions in {per} s");
        }
    }
}
