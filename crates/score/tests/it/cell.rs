//! A cell's reaction to the polls of one vertex.

use skopos_model::{Kind, Scalar, Timestamp, Unit};
use skopos_score::{Cell, Unknown};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

fn cell(kind: Kind) -> Cell {
    Cell::new("n/a/b".parse().expect("a topic"), Unit::NONE, kind)
}

/// One poll per line: second, value (`None`: unknown), whether it matters, and the rate after it.
type Polls<'a> = &'a [(i64, Option<f64>, bool, Option<f64>)];

fn check(kind: Kind, polls: Polls<'_>) -> Cell {
    let mut cell = cell(kind);
    for &(second, value, matters, rate) in polls {
        let found = match value {
            Some(value) => cell.take_number(at(second), Scalar::F64(value)),
            None => cell.take(at(second), Err(Unknown::new("unplugged"))),
        };
        assert_eq!(found, matters, "at {second}: {value:?}");
        assert_eq!(cell.rate().ok(), rate, "at {second}: {value:?}");
    }
    cell
}

#[test]
fn a_change_of_value_or_of_rate_matters() {
    check(
        Kind::Gauge,
        &[
            (0, Some(5.0), true, None),
            (2, Some(5.0), true, Some(0.0)),
            (4, Some(5.0), false, Some(0.0)),
            (6, Some(9.0), true, Some(2.0)),
            (8, Some(9.0), true, Some(0.0)),
            (10, Some(9.0), false, Some(0.0)),
            (12, None, true, None),
            (14, None, false, None),
            (16, Some(9.0), true, None),
            (17, Some(9.0), true, Some(0.0)),
        ],
    );
}

#[test]
fn a_counter_that_steps_back_is_counted_and_has_no_rate() {
    let cell = check(
        Kind::Counter,
        &[
            (0, Some(100.0), true, None),
            (1, Some(110.0), true, Some(10.0)),
            (2, Some(4.0), true, None),
            (3, Some(4.0), true, Some(0.0)),
            (4, Some(6.0), true, Some(2.0)),
        ],
    );
    assert_eq!(cell.resets(), 1);
    assert_eq!(check(Kind::Gauge, &[(0, Some(9.0), true, None)]).resets(), 0);
}

#[test]
fn a_second_poll_at_the_same_time_replaces_the_first() {
    check(
        Kind::Gauge,
        &[
            (0, Some(1.0), true, None),
            (2, Some(3.0), true, Some(1.0)),
            (2, Some(5.0), true, Some(2.0)),
            // A time before the last one counts as the last one.
            (1, Some(7.0), true, Some(3.0)),
        ],
    );
}

#[test]
fn a_nan_that_stays_nan_has_not_changed() {
    check(Kind::Gauge, &[(0, Some(f64::NAN), true, None), (1, Some(f64::NAN), false, None)]);
}

#[test]
fn errors_say_which_topic_and_why() {
    let mut cell = cell(Kind::Gauge);
    let reason = |cell: &Cell| cell.number().expect_err("unknown").to_string();
    assert_eq!(reason(&cell), "n/a/b has no value yet");
    cell.take(at(1), Err(Unknown::new("unplugged")));
    assert_eq!(reason(&cell), "n/a/b is unknown: unplugged");
    cell.take_number(at(1), Scalar::F64(f64::INFINITY));
    assert_eq!(reason(&cell), "n/a/b is not a finite number");
    cell.take_number(at(1), Scalar::U64(3));
    let rate = cell.rate().expect_err("one poll").to_string();
    assert_eq!(rate, "n/a/b was polled once, and a rate needs two polls");
    assert!(cell.structured().is_err());
}
