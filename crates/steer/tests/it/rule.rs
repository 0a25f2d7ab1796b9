//! Rules: when subjects fire and resolve, and which actions are due.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, json};
use skopos_model::Timestamp;
use skopos_steer::rule::{
    Due, Event, FLAP_CHANGES, FLAP_WINDOW, Kind, MAX_ABSENT, MAX_QUIET, MAX_SUBJECTS, Moment, Row,
    Terms, Tracker,
};

fn time(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000_000).saturating_add(Duration::from_secs(seconds))
}

fn at(seconds: u64) -> Moment {
    Moment::on_one_clock(time(seconds))
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

/// Steps through answers and returns `time kind subject due` of each event. An answer that begins with `!` failed. All actions
/// are done at once.
fn run(tracker: &mut Tracker, answers: &[(u64, &str)]) -> Vec<String> {
    run_with(tracker, answers, Some(true))
}

/// Steps through answers as [`run`] does. All actions have this outcome at once, or none yet.
fn run_with(tracker: &mut Tracker, answers: &[(u64, &str)], is_done: Option<bool>) -> Vec<String> {
    let mut lines = Vec::new();
    for (time, answer) in answers {
        let answer = match answer.strip_prefix('!') {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(rows(answer)),
        };
        for event in tracker.step(at(*time), answer) {
            let due = event.due.reason().unwrap_or("due");
            lines.push(format!("{time} {} {} {due}", event.kind.name(), event.subject));
            if let Some(is_done) = is_done.filter(|_| event.due == Due::Now) {
                tracker.note_outcome(at(*time), &event.subject, event.at, is_done);
            }
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
fn an_action_that_runs_or_that_failed_is_not_repeated() {
    let mut tracker = tracker(Terms { repeat: Some(seconds(10)), ..Terms::default() });
    let mut tried = Vec::new();
    for second in 0..120 {
        for event in tracker.step(at(second), Ok(rows("a"))) {
            tried.push(second);
            if second > 0 {
                tracker.note_outcome(at(second), "a", event.at, true);
            }
        }
        // The server of the first action hangs, and its pause is a minute.
        if second == 36 {
            tracker.note_outcome(at(second), "a", time(0), false);
        }
    }
    assert_eq!(tried, [0, 96, 106, 116]);
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
fn a_clock_that_is_set_back_delays_no_rule() {
    let terms = Terms { hold: seconds(30), keep: seconds(10), ..Terms::default() };
    let mut tracker = tracker(terms);
    let mut lines = Vec::new();
    // The clock is an hour ahead at first.
    for (clock, steady, names) in
        [(3600, 0, "a"), (20, 20, "a"), (30, 30, "a"), (40, 40, ""), (41, 41, "")]
    {
        let now = Moment { at: time(clock), steady: time(steady) };
        for event in tracker.step(now, Ok(rows(names))) {
            assert_eq!(event.at, time(clock));
            lines.push((clock, event.kind));
        }
    }
    assert_eq!(lines, [(30, Kind::Firing), (40, Kind::Resolved)]);
}

#[test]
fn times_of_the_past_that_are_ahead_of_the_clock_hold_the_limit_for_its_period_at_most() {
    let terms = Terms { most: 1, per: seconds(100), ..Terms::default() };
    let mut before = tracker(terms);
    let ahead = before.step(at(3600), Ok(rows("a")));
    let mut after = tracker(terms);
    restore(&mut after, at(0), ahead.into_iter().map(|event| (event, Some(true))));
    let answers = [(0, "a b"), (99, "a b"), (100, "a b")];
    assert_eq!(run(&mut after, &answers), ["0 firing b limit", "100 still_firing b due"]);
}

#[test]
fn a_steady_clock_that_goes_back_changes_nothing() {
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
    let restored = |is_done: fn(&Event) -> Option<bool>| {
        let mut after = tracker(Terms { keep: seconds(5), ..Terms::default() });
        let past = past.iter().map(|event| (event.clone(), is_done(event)));
        restore(&mut after, at(1000), past);
        after
    };
    let mut after = restored(|_| Some(true));
    assert_eq!((after.firing(), after.pending()), (2, 0));
    let answers = [(1000, "a b"), (1001, "b"), (1006, "b")];
    assert_eq!(run(&mut after, &answers), ["1006 resolved a due"]);
    // The process ended before the action of `b` was done.
    let mut after = restored(|event| (event.subject != "b").then_some(true));
    assert_eq!(run(&mut after, &[(1000, "a b")]), ["1000 still_firing b due"]);
}

/// Restores events, each with the outcome of its action if it is known.
fn restore(
    tracker: &mut Tracker,
    now: Moment,
    past: impl IntoIterator<Item = (Event, Option<bool>)>,
) {
    for (event, is_done) in past {
        tracker.restore(now, &event);
        if let Some(is_done) = is_done {
            tracker.note_outcome(now.earlier(event.at), &event.subject, event.at, is_done);
        }
    }
}

#[test]
fn an_action_that_failed_is_tried_again_after_ever_longer_pauses_within_the_limit() {
    let terms = Terms { most: 4, per: seconds(10_000), pause: seconds(10), ..Terms::default() };
    let mut tracker = tracker(terms);
    let mut tried = Vec::new();
    for second in 0..10_200 {
        for event in tracker.step(at(second), Ok(rows("a"))) {
            assert_eq!((event.due, event.since), (Due::Now, time(0)));
            tried.push((second, event.kind.name()));
            tracker.note_outcome(at(second + 1), "a", event.at, second > 10_000);
        }
    }
    let first = [(0, "firing"), (11, "still_firing"), (32, "still_firing"), (73, "still_firing")];
    assert_eq!(tried[..4], first);
    assert_eq!(tried[4..], [(10_000, "still_firing"), (10_161, "still_firing")]);
}

#[test]
fn pauses_after_failures_are_an_hour_at_most() {
    let mut tracker = tracker(Terms { most: 1000, ..Terms::default() });
    let mut tried = Vec::new();
    for minute in 0..60 * 50 {
        for event in tracker.step(at(60 * minute), Ok(rows("a"))) {
            tried.push(minute);
            tracker.note_outcome(at(60 * minute), "a", event.at, false);
        }
    }
    assert_eq!(tried[..8], [0, 1, 3, 7, 15, 31, 63, 123]);
    assert!(tried[7..].windows(2).all(|two| two[1] - two[0] == 60), "{tried:?}");
}

#[test]
fn an_end_whose_action_failed_or_did_not_come_before_a_restart_is_told_later() {
    let terms = Terms { pause: seconds(10), ..Terms::default() };
    let mut before = tracker(terms);
    let mut past: Vec<(Event, Option<bool>)> = Vec::new();
    for (second, names) in [(0, "a b"), (5, "")] {
        for event in before.step(at(second), Ok(rows(names))) {
            let is_done = match event.kind {
                Kind::Resolved => (event.subject == "a").then_some(false),
                _ => Some(true),
            };
            if let Some(is_done) = is_done {
                before.note_outcome(at(second), &event.subject, event.at, is_done);
            }
            past.push((event, is_done));
        }
    }
    let kept = before.kept(at(6));
    for past in [past, kept] {
        let mut after = tracker(terms);
        restore(&mut after, at(8), past);
        // The pause of `a` is over at 15.
        let events = run(&mut after, &[(8, ""), (14, ""), (15, ""), (16, "")]);
        assert_eq!(events, ["8 resolved b due", "15 resolved a due"]);
    }
    assert_eq!(run(&mut before, &[(14, ""), (15, "")]), ["15 resolved a due"]);
}

#[test]
fn an_end_that_cannot_be_told_for_a_day_is_given_up_and_counted() {
    let mut tracker = tracker(Terms::default());
    let mut last = 0;
    for minute in 0..60 * 30 {
        let names = if minute == 0 { "a" } else { "" };
        for event in tracker.step(at(60 * minute), Ok(rows(names))) {
            last = minute;
            tracker.note_outcome(at(60 * minute), "a", event.at, false);
        }
    }
    assert!((23 * 60..=24 * 60 + 1).contains(&last), "{last}");
    assert_eq!(tracker.forgotten(), 1);
}

#[test]
fn an_end_that_was_given_up_before_a_restart_is_not_told_after_it() {
    const DAY: u64 = 86_400;
    let terms = Terms { most: 1, ..Terms::default() };
    let mut before = tracker(terms);
    let mut past = Vec::new();
    for (second, names) in [(0, "a"), (5, "")] {
        for event in before.step(at(second), Ok(rows(names))) {
            before.note_outcome(at(second), "a", event.at, event.kind == Kind::Firing);
            past.push(event);
        }
    }
    for end in [Some(false), None] {
        let restored = |days: u64| {
            let mut after = tracker(terms);
            let is_done = |event: &Event| if event.is_firing { Some(true) } else { end };
            let past = past.iter().map(|event| (event.clone(), is_done(event)));
            restore(&mut after, at(days * DAY), past);
            after
        };
        let mut after = restored(3);
        // The limit has its room for the others.
        assert_eq!(run(&mut after, &[(3 * DAY, "b")]), [format!("{} firing b due", 3 * DAY)]);
        assert_eq!(after.forgotten(), 1);
        let mut after = restored(1);
        assert_eq!(run(&mut after, &[(DAY, "")]), [format!("{DAY} resolved a due")]);
    }
}

/// Returns a tracker whose subject `a` fires again since 501, without an action, while the action of its end at 500 runs. The
/// limit has room again at 1000. Four changes take longer than a subject that flaps.
fn ended_and_limited() -> Tracker {
    let terms = Terms { most: 1, per: seconds(1000), pause: seconds(10), ..Terms::default() };
    let mut tracker = tracker(terms);
    assert_eq!(run(&mut tracker, &[(0, "a")]), ["0 firing a due"]);
    let lines = run_with(&mut tracker, &[(500, ""), (501, "a")], None);
    assert_eq!(lines, ["500 resolved a due", "501 firing a limit"]);
    tracker
}

#[test]
fn an_end_that_fails_after_its_subject_fires_again_is_tried_again_after_the_next_end() {
    let mut tracker = ended_and_limited();
    tracker.note_outcome(at(502), "a", time(500), false);
    let answers = [(700, ""), (999, ""), (1000, ""), (1001, "")];
    let expected = ["700 resolved a silent", "1000 resolved a due"];
    assert_eq!(run(&mut tracker, &answers), expected);
    // The outcome may come after the next end, too.
    let mut tracker = ended_and_limited();
    assert_eq!(run(&mut tracker, &[(700, "")]), ["700 resolved a silent"]);
    tracker.note_outcome(at(701), "a", time(500), false);
    assert_eq!(run(&mut tracker, &[(1000, ""), (1001, "")]), ["1000 resolved a due"]);
    // An end that is done is not tried again.
    let mut tracker = ended_and_limited();
    tracker.note_outcome(at(502), "a", time(500), true);
    assert_eq!(run(&mut tracker, &[(700, ""), (1000, "")]), ["700 resolved a silent"]);
}

#[test]
fn a_subject_that_fires_again_after_an_end_that_failed_has_its_action_once_there_is_room() {
    let mut tracker = ended_and_limited();
    tracker.note_outcome(at(502), "a", time(500), false);
    let answers = [(700, "a"), (999, "a"), (1000, "a"), (1001, "")];
    let expected = ["1000 still_firing a due", "1001 resolved a due"];
    assert_eq!(run(&mut tracker, &answers), expected);
}

#[test]
fn an_end_without_an_outcome_whose_subject_fires_again_outlives_a_restart() {
    let kept = ended_and_limited().kept(at(502));
    let lines: Vec<_> =
        kept.iter().map(|(event, is_done)| (event.kind, event.is_firing, *is_done)).collect();
    assert_eq!(lines[0], (Kind::Resolved, false, None));
    assert_eq!((lines.len(), lines[1].0, lines[1].1), (2, Kind::StillFiring, true));
    let mut after = tracker(Terms { most: 1, ..Terms::default() });
    // They may come a second time.
    restore(&mut after, at(503), kept.iter().chain(&kept).cloned());
    assert_eq!(after.firing(), 1);
    let expected = ["503 still_firing a due", "504 resolved a due"];
    assert_eq!(run(&mut after, &[(503, "a"), (504, "")]), expected);
    let mut after = tracker(Terms { most: 1, ..Terms::default() });
    restore(&mut after, at(503), kept);
    let expected = ["503 resolved a silent", "504 resolved a due"];
    assert_eq!(run(&mut after, &[(503, ""), (504, "")]), expected);
}

#[test]
fn an_end_that_fails_while_its_subject_flaps_without_an_action_is_tried_again() {
    let mut tracker = tracker(Terms { most: 1, per: seconds(1000), ..Terms::default() });
    assert_eq!(run(&mut tracker, &[(0, "a")]), ["0 firing a due"]);
    assert_eq!(run_with(&mut tracker, &[(10, "")], None), ["10 resolved a due"]);
    let expected = ["20 firing a limit", "30 resolved a flapping", "30 flapping a limit"];
    assert_eq!(run(&mut tracker, &[(20, "a"), (30, "")]), expected);
    tracker.note_outcome(at(31), "a", time(10), false);
    let expected = ["630 steady a silent", "1000 resolved a due"];
    assert_eq!(run(&mut tracker, &[(500, ""), (630, ""), (1000, ""), (1001, "")]), expected);
}

#[test]
fn a_failure_that_comes_after_the_next_change_changes_nothing() {
    let mut tracker = tracker(Terms { pause: seconds(1), ..Terms::default() });
    let lines = run_with(&mut tracker, &[(0, "a"), (5, "")], None);
    assert_eq!(lines, ["0 firing a due", "5 resolved a due"]);
    tracker.note_outcome(at(6), "a", time(0), false);
    tracker.note_outcome(at(7), "a", time(5), true);
    assert_eq!(run(&mut tracker, &[(20, ""), (30, "")]), [""; 0]);
}

#[test]
fn kept_events_restore_subjects_that_fire_flap_or_were_told() {
    let terms = Terms { most: 2, per: seconds(5000), ..Terms::default() };
    let mut before = tracker(terms);
    // `a` and `c` were told, `b` is held back, `f` flaps, `q` has ended.
    for (second, names) in [(0, "a c f q"), (1, "a c"), (2, "a c f"), (3, "a b c"), (4, "a b c")] {
        for event in before.step(at(second), Ok(rows(names))) {
            before.note_outcome(at(second), &event.subject, event.at, true);
        }
    }
    let kept = before.kept(at(10));
    let names: Vec<&str> = kept.iter().map(|(event, _)| event.subject.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "f"]);
    let mut after = tracker(terms);
    // They may come a second time, after the events that they stand for.
    restore(&mut after, at(20), kept.iter().chain(&kept).cloned());
    assert_eq!(after.firing(), 3);
    for mut tracker in [before, after] {
        let answers = [(20, "a b c"), (30, "b c"), (700, "b c"), (5000, "b c"), (5001, "b c")];
        let expected = ["30 resolved a due", "700 steady f silent", "5000 still_firing b due"];
        assert_eq!(run(&mut tracker, &answers), expected);
    }
}

#[test]
fn terms_outside_of_their_ranges_are_refused() {
    let usual = Terms::default();
    for (terms, entry) in [
        (Terms { hold: Duration::MAX, ..usual }, "for"),
        (Terms { keep: Duration::MAX, ..usual }, "keep"),
        (Terms { repeat: Some(Duration::ZERO), ..usual }, "repeat"),
        (Terms { per: Duration::ZERO, ..usual }, "per"),
        (Terms { pause: Duration::ZERO, ..usual }, "pause"),
        (Terms { most: 0, ..usual }, "at_most"),
        (Terms { most: 1001, ..usual }, "at_most"),
    ] {
        let error = Tracker::new(terms).expect_err(entry);
        assert!(error.to_string().contains(&format!("`{entry}`")), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn absent_subjects_that_are_too_many_are_resolved_before_their_time_and_counted() {
    let mut tracker = tracker(Terms { keep: seconds(3600), ..Terms::default() });
    let mut resolved = Vec::new();
    for step in 0..8 {
        let fresh = (0..MAX_SUBJECTS).map(|n| format!("{step}-{n}"));
        let fresh = fresh.map(|subject| Row { subject, values: Map::new() }).collect();
        let events = tracker.step(at(step), Ok(fresh));
        resolved.extend(events.into_iter().filter(|event| event.kind == Kind::Resolved));
        assert!(tracker.firing() <= MAX_SUBJECTS + MAX_ABSENT, "{}", tracker.firing());
    }
    assert_eq!(resolved.len(), 6 * MAX_SUBJECTS);
    assert!(resolved[..MAX_SUBJECTS].iter().all(|event| event.subject.starts_with("0-")));
    let quiet = resolved.len() - MAX_QUIET;
    assert_eq!(tracker.forgotten(), (resolved.len() + quiet) as u64);
}

#[test]
fn subjects_that_fire_are_restored_after_many_that_ended() {
    let mut before = tracker(Terms::default());
    let mut past = Vec::new();
    for step in 0..10 {
        let names = (0..MAX_SUBJECTS).map(|n| format!("{step}-{n}"));
        let names: Vec<String> = names.collect();
        past.extend(before.step(at(step), Ok(rows(&names.join(" ")))));
    }
    let mut after = tracker(Terms::default());
    restore(&mut after, at(10), past.into_iter().map(|event| (event, Some(true))));
    assert_eq!(after.firing(), MAX_SUBJECTS);
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

/// An entry of a history.
enum Entry {
    Event(Event),
    Outcome { at: Moment, subject: String, event: Timestamp, is_done: bool },
}

/// The end of an action.
#[derive(Clone, Copy, Debug)]
enum End {
    Done,
    Failed,
    /// The receiver has the event, and its answer is lost.
    Unanswered,
}

/// A rule with a queue of actions, and the subjects that fire by the events that its receiver has.
struct Delivery {
    terms: Terms,
    tracker: Tracker,
    queue: VecDeque<Event>,
    history: Vec<Entry>,
    received: BTreeSet<String>,
}

impl Delivery {
    fn new(terms: Terms) -> Self {
        Self {
            terms,
            tracker: tracker(terms),
            queue: VecDeque::new(),
            history: Vec::new(),
            received: BTreeSet::new(),
        }
    }

    fn step(&mut self, now: u64, names: &str) {
        for event in self.tracker.step(at(now), Ok(rows(names))) {
            self.history.push(Entry::Event(event.clone()));
            if event.due == Due::Now {
                self.queue.push_back(event);
            }
        }
    }

    /// Ends the first action of the queue.
    fn act(&mut self, now: u64, end: End) {
        let Some(event) = self.queue.pop_front() else { return };
        if !matches!(end, End::Failed) {
            self.receive(&event);
        }
        let (at, is_done) = (at(now), matches!(end, End::Done));
        self.tracker.note_outcome(at, &event.subject, event.at, is_done);
        let (subject, event) = (event.subject, event.at);
        self.history.push(Entry::Outcome { at, subject, event, is_done });
    }

    fn receive(&mut self, event: &Event) {
        let subject = event.subject.clone();
        match event.kind {
            Kind::Firing | Kind::StillFiring | Kind::Flapping => self.received.insert(subject),
            Kind::Steady if event.is_firing => self.received.insert(subject),
            _ => self.received.remove(&subject),
        };
    }

    /// Restarts the rule from its history, from the events that stand for it, or from both. The receiver may have the event of
    /// the action that ran.
    fn restart(&mut self, now: u64, (has_history, has_kept): (bool, bool), is_received: bool) {
        if let Some(event) = self.queue.front().cloned().filter(|_| is_received) {
            self.receive(&event);
        }
        self.queue.clear();
        let mut after = tracker(self.terms);
        for entry in self.history.iter().filter(|_| has_history) {
            match entry {
                Entry::Event(event) => after.restore(at(now), event),
                Entry::Outcome { at, subject, event, is_done } => {
                    after.note_outcome(*at, subject, *event, *is_done);
                }
            }
        }
        if has_kept {
            restore(&mut after, at(now), self.tracker.kept(at(now)));
        }
        self.tracker = after;
    }
}

/// Subjects of an answer, some twice.
fn subjects() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c", "d", "e", "f"]);
    prop::collection::vec(name, 0..6).prop_map(|names| names.join(" "))
}

/// Outcomes of actions that end after an answer.
fn ends() -> impl Strategy<Value = Vec<End>> {
    let end = prop::sample::select(vec![End::Done, End::Failed, End::Unanswered]);
    prop::collection::vec(end, 0..4)
}

/// The parts from which a rule restarts, if it does.
fn restarts() -> impl Strategy<Value = Option<((bool, bool), bool)>> {
    let parts = prop::sample::select(vec![(true, false), (false, true), (true, true)]);
    prop::option::weighted(0.1, (parts, any::<bool>()))
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
                tracker.note_outcome(at(now), &event.subject, event.at, true);
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

    /// Actions fail and rules restart at any time. Once they are done, the receiver knows the subjects that fire, and no others.
    #[test]
    fn a_receiver_knows_in_the_end_which_subjects_fire(
        steps in prop::collection::vec((1u64..200, subjects(), ends(), restarts()), 1..60),
        last in subjects(),
        most in 1u32..4,
        per in 1u64..300,
    ) {
        let mut delivery = Delivery::new(Terms { most, per: seconds(per), ..Terms::default() });
        let mut now = 0;
        for (pause, names, ends, restart) in steps {
            now += pause;
            delivery.step(now, &names);
            ends.into_iter().for_each(|end| delivery.act(now, end));
            if let Some((parts, is_received)) = restart {
                delivery.restart(now, parts, is_received);
            }
        }
        // Pauses are an hour at most, and the day in which ends are tried is not over.
        for _ in 0..200 {
            now += 200;
            delivery.step(now, &last);
            while !delivery.queue.is_empty() {
                delivery.act(now, End::Done);
            }
        }
        let firing: BTreeSet<String> = last.split_whitespace().map(str::to_owned).collect();
        prop_assert_eq!(&delivery.received, &firing);
        prop_assert_eq!(delivery.tracker.forgotten(), 0);
    }
}
