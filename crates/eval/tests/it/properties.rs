//! After any sequence of additions, changes and removals, the value equals that of a plain computation over
//! all current rows.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use skopos_eval::{Evaluator, MAX_WINDOW_SAMPLES, Row, Statement, Unknown};
use skopos_model::{Kind, Timestamp, Topic, Unit};

#[derive(Clone, Debug)]
enum Step {
    Add(u32),
    Change(u32, Option<f64>),
    Remove(u32),
}

const KEYS: u32 = 24;

fn step() -> impl Strategy<Value = Step> {
    let number = prop_oneof![
        4 => (-50i32..50).prop_map(f64::from),
        2 => -1e6..1e6f64,
        // Beside these numbers, a running double would lose small ones.
        1 => prop_oneof![Just(1e300), Just(-1e300), Just(1e-300), Just(1e17), Just(-0.0)],
    ];
    prop_oneof![
        2 => (0..KEYS).prop_map(Step::Add),
        6 => (0..KEYS, prop::option::weighted(0.9, number)).prop_map(|(k, v)| Step::Change(k, v)),
        1 => (0..KEYS).prop_map(Step::Remove),
    ]
}

fn argument() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "value",
        "abs(value)",
        "value * 2 + 1",
        "CASE WHEN value > 0 THEN value ELSE 1 END",
        "greatest(value, 3)",
        "10 / value",
        "CASE WHEN topic LIKE 'n1/%' THEN value END",
    ])
}

fn predicate() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("topic LIKE 'n1/%'".to_owned()),
        Just("topic LIKE '%/d_/x'".to_owned()),
        Just("node IN ('n0', 'n2')".to_owned()),
        Just("topic = 'n1/d1/x'".to_owned()),
        Just("kind <> 'gauge'".to_owned()),
        (-40i32..40).prop_map(|bound| format!("value > {bound}")),
        (-40i32..0, 0i32..40).prop_map(|(a, b)| format!("value BETWEEN {a} AND {b}")),
        Just("value IS NOT NULL".to_owned()),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} AND {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} OR {b})")),
            inner.prop_map(|a| format!("NOT ({a})")),
        ]
    })
}

fn topic(key: u32) -> Topic {
    Topic::new(&format!("n{}/d{}/x", key % 3, key % 7)).expect("topic")
}

fn kind(key: u32) -> Kind {
    if key.is_multiple_of(2) { Kind::Gauge } else { Kind::Counter }
}

fn second(second: usize) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000).saturating_add(Duration::from_secs(second as u64))
}

/// Runs the steps, and compares the value with a computation over all rows after each step.
fn check(sql: &str, steps: &[Step]) -> Result<(), TestCaseError> {
    let statement = Statement::new(sql).map_err(|e| TestCaseError::fail(format!("{sql}: {e}")))?;
    let mut evaluator = Evaluator::new(&statement);
    let mut rows: BTreeMap<u32, (Timestamp, Option<f64>)> = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        let now = second(at + 1);
        match *step {
            Step::Add(key) => {
                evaluator.row_added(key, &topic(key), Unit::NONE, kind(key));
                rows.entry(key).or_insert((Timestamp::default(), None));
            }
            Step::Change(key, value) => {
                evaluator.row_changed(key, now, value);
                rows.entry(key).and_modify(|row| *row = (now, value));
            }
            Step::Remove(key) => {
                evaluator.row_removed(key);
                rows.remove(&key);
            }
        }
        let topics: Vec<Topic> = rows.keys().map(|key| topic(*key)).collect();
        let anew = rows.iter().zip(&topics).map(|((key, (time, value)), topic)| Row {
            topic,
            unit: Unit::NONE,
            kind: kind(*key),
            time: *time,
            checked_at: *time,
            value: *value,
        });
        let expected = statement.once(now, anew);
        for (output, expected) in expected.into_iter().enumerate() {
            let found = evaluator.value(output, now);
            prop_assert_eq!(
                kind_of(&found),
                kind_of(&expected),
                "{} after {:?}",
                sql,
                &steps[..=at]
            );
        }
    }
    Ok(())
}

/// Compares numbers to the last bit, and reasons by their kind: the row in a reason may depend on the order
/// of changes.
fn kind_of(value: &Result<f64, Unknown>) -> Result<u64, std::mem::Discriminant<Unknown>> {
    value.as_ref().map(|number| number.to_bits()).map_err(std::mem::discriminant)
}

proptest! {
    #![proptest_config(crate::cases(400))]

    #[test]
    fn incremental_values_equal_recomputed_ones(
        argument in argument(),
        filter in predicate(),
        selection in predicate(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let sql = format!(
            "SELECT sum({argument}), avg({argument}) FILTER (WHERE {filter}), min({argument}), \
             max({argument}) FILTER (WHERE {filter}), count({argument}), count(*), \
             median({argument}), quantile({argument}, 0.9), value, \
             sum({argument}) / count(*) AS share FROM latest WHERE {selection}"
        );
        check(&sql, &steps)?;
    }

    /// The property above runs the same code on both sides, so this one computes the aggregates itself.
    #[test]
    fn aggregates_equal_a_plain_computation(
        values in prop::collection::vec((0..KEYS, -1000i32..1000), 1..60),
        bound in -1000i32..1000,
    ) {
        let sql = format!(
            "SELECT sum(value), min(value), max(value), count(*), avg(value), median(value) \
             FROM latest WHERE value >= {bound}"
        );
        let mut evaluator = Evaluator::new(&Statement::new(&sql).expect("statement"));
        let mut rows = BTreeMap::new();
        for (at, (key, value)) in values.iter().enumerate() {
            evaluator.row_added(*key, &topic(*key), Unit::NONE, Kind::Gauge);
            evaluator.row_changed(*key, second(at), Some(f64::from(*value)));
            rows.insert(*key, *value);
        }
        let mut kept: Vec<f64> = rows.values().filter(|v| **v >= bound).map(|v| f64::from(*v)).collect();
        kept.sort_by(f64::total_cmp);
        let sum: f64 = kept.iter().sum();
        let (n, now) = (kept.len(), second(values.len()));
        prop_assert_eq!(evaluator.value(3, now), Ok(n as f64));
        if n == 0 {
            prop_assert!(evaluator.value(0, now).is_err());
            return Ok(());
        }
        prop_assert_eq!(evaluator.value(0, now), Ok(sum));
        prop_assert_eq!(evaluator.value(1, now), Ok(kept[0]));
        prop_assert_eq!(evaluator.value(2, now), Ok(kept[n - 1]));
        prop_assert_eq!(evaluator.value(4, now), Ok(sum / n as f64));
        prop_assert_eq!(evaluator.value(5, now), Ok((kept[(n - 1) / 2] + kept[n / 2]) / 2.0));
    }

    /// Compares a window with the list of all samples.
    #[test]
    fn a_window_has_exactly_the_recent_samples(
        samples in prop::collection::vec((0u64..4000, -1000i32..1000), 1..300),
        length in 1u64..60_000,
    ) {
        let sql = format!(
            "SELECT sum(value), min(value), max(value), count(*), first(value), last(value), \
             rate(value), median(value) FROM samples \
             WHERE topic = 'n0/d0/x' AND time > now() - INTERVAL '{length} ms'"
        );
        let mut evaluator = Evaluator::new(&Statement::new(&sql).expect("statement"));
        evaluator.row_added(7, &topic(0), Unit::NONE, Kind::Gauge);
        let (mut now, mut all): (Timestamp, Vec<(Timestamp, f64)>) = (second(0), Vec::new());
        for (pause, value) in samples {
            now = now.saturating_add(Duration::from_millis(pause + 1));
            evaluator.row_changed(7, now, Some(f64::from(value)));
            all.push((now, f64::from(value)));
            let begin = now.saturating_sub(Duration::from_millis(length));
            let kept: Vec<_> = all.iter().filter(|(time, _)| *time > begin).copied().collect();
            let mut sorted: Vec<f64> = kept.iter().map(|(_, value)| *value).collect();
            sorted.sort_by(f64::total_cmp);
            let n = kept.len();
            let ((first_at, first), (last_at, last)) = (kept[0], kept[n - 1]);
            let seconds = last_at.since(first_at).as_secs_f64();
            let middle = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
            let expected = [sorted.iter().sum(), sorted[0], sorted[n - 1], n as f64, first, last];
            for (output, expected) in expected.into_iter().enumerate() {
                prop_assert_eq!(evaluator.value(output, now), Ok(expected), "output {}", output);
            }
            prop_assert_eq!(evaluator.value(7, now), Ok(middle));
            match evaluator.value(6, now) {
                Ok(rate) => prop_assert!((rate * seconds - (last - first)).abs() < 1e-6),
                Err(_) => prop_assert_eq!(n, 1),
            }
        }
    }

    #[test]
    fn any_text_is_a_statement_or_an_error(text in "[ -~\n]{0,200}") {
        if let Ok(statement) = Statement::new(&text) {
            prop_assert!(statement.outputs().len() > 0);
        }
    }

    /// Words of the language in any order reach more code than random characters.
    #[test]
    fn any_words_are_a_statement_or_an_error(words in prop::collection::vec(
        prop::sample::select(vec![
            "SELECT", "sum", "(", ")", "value", "FROM", "latest", "samples", "WHERE", "topic", "=",
            "'a/b'", "LIKE", "'%'", "AND", "NOT", "OR", "time", ">", "now()", "-", "INTERVAL",
            "'60 s'", "CASE", "WHEN", "THEN", "END", "FILTER", ",", "*", "5", "IN", "IS", "NULL",
        ]), 0..40)
    ) {
        let text = format!("SELECT {}", words.join(" "));
        let _ = Statement::new(&text);
    }
}

#[test]
fn an_overrun_window_is_unknown_until_the_dropped_samples_are_too_old() {
    let sql = "SELECT count(*) FROM samples WHERE topic = 'n0/d0/x' AND time > now() - INTERVAL '10000 s'";
    let mut evaluator = Evaluator::new(&Statement::new(sql).expect("statement"));
    evaluator.row_added(1, &topic(0), Unit::NONE, Kind::Gauge);
    for at in 0..MAX_WINDOW_SAMPLES + 3 {
        evaluator.row_changed(1, second(at), Some(at as f64));
    }
    let now = second(MAX_WINDOW_SAMPLES + 3);
    assert_eq!(evaluator.value(0, now), Err(Unknown::WindowOverrun { dropped: 3 }));
    // The last dropped sample is from second 2.
    assert_eq!(evaluator.value(0, second(10_002)), Ok((MAX_WINDOW_SAMPLES) as f64));
}

#[test]
fn a_sum_does_not_drift() {
    let sql = "SELECT sum(value) FROM latest WHERE topic LIKE 'n0/%'";
    let mut evaluator = Evaluator::new(&Statement::new(sql).expect("statement"));
    evaluator.row_added(0, &topic(0), Unit::NONE, Kind::Gauge);
    evaluator.row_added(3, &topic(3), Unit::NONE, Kind::Gauge);
    evaluator.row_changed(3, second(1), Some(0.1));
    for at in 0..100_000 {
        let value = f64::from(at % 977) * 1e9 + 0.1;
        evaluator.row_changed(0, second(at as usize + 2), Some(value));
    }
    evaluator.row_removed(0);
    assert_eq!(evaluator.value(0, second(200_000)), Ok(0.1));
}

#[test]
fn expected_units_come_from_the_known_metrics() {
    let check = |sql: &str, expected: Option<&str>| {
        let statement = Statement::new(sql).expect("statement");
        let found = statement.expected_unit(0).map(|unit| unit.to_string());
        assert_eq!(found.as_deref(), expected, "{sql}");
    };
    check(
        "SELECT sum(value) FROM latest WHERE topic LIKE '%/fs/nvme%/available_bytes'",
        Some("bytes"),
    );
    check(
        "SELECT sum(rate(value)) FROM latest WHERE topic LIKE '%/read_bytes_total'",
        Some("bytes/s"),
    );
    check("SELECT count(*) FROM latest WHERE topic LIKE '%/what/ever'", Some(""));
    check("SELECT sum(value) FROM latest WHERE topic LIKE '%/what/ever'", None);
    check("SELECT sum(value) FROM latest WHERE node = 'n01'", None);
    check("SELECT max(age) FROM latest", Some("seconds"));
}

#[test]
fn topics_are_narrowed_by_the_predicate() {
    let check = |predicate: &str, expected: &[&str]| {
        let sql = format!("SELECT count(*) FROM latest WHERE {predicate}");
        let statement = Statement::new(&sql).expect("statement");
        let found: Vec<&str> = statement.topics().iter().map(|p| p.as_str()).collect();
        assert_eq!(found, expected, "{predicate}");
    };
    check("topic = 'n01/a'", &["n01/a"]);
    check("topic IN ('n01/b', 'n01/a')", &["n01/a", "n01/b"]);
    check("topic LIKE '%/fs/nvme%/available_bytes'", &["**/fs/nvme*/**/available*bytes"]);
    check("topic LIKE 'n01/%' OR topic LIKE 'n02/%'", &["n01/**", "n02/**"]);
    check("topic LIKE 'n01/%' OR value > 3", &["**"]);
    check(
        "topic LIKE 'n01/%' AND topic LIKE '%/available_bytes' AND value > 3",
        &["**/available*bytes"],
    );
    check("node = 'n01' AND value > 3", &["n01/**"]);
    check("NOT topic = 'n01/a'", &["**"]);
    check("topic = 'n01/a' AND false", &[]);
}
