//! Functions of this project, compared with plain models of them.

use proptest::prelude::*;
use skopos_model::Unit;
use skopos_query::Engine;

use crate::world::{World, ask, rows};

/// Number of cases. Each is planned, which takes long in a debug build.
const CASES: u32 = 48;

/// A second in nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// Returns rows `(time in seconds, key, value)` as a relation of several parts, which are several partitions,
/// in the given order.
fn relation(rows: &[(i64, i64, Option<i64>)]) -> String {
    let row = |(time, key, value): &(i64, i64, Option<i64>)| {
        let value =
            value.map_or("CAST(NULL AS DOUBLE)".to_owned(), |v| format!("CAST({v} AS DOUBLE)"));
        format!("(to_timestamp({time}), {key}, {value})")
    };
    let part = |rows: &[(i64, i64, Option<i64>)]| {
        let rows: Vec<String> = rows.iter().map(row).collect();
        format!(
            "SELECT column1 AS time, column2 AS k, column3 AS value FROM (VALUES {})",
            rows.join(", ")
        )
    };
    let parts: Vec<String> = rows.chunks(rows.len().div_ceil(3).max(1)).map(part).collect();
    format!("({})", parts.join(" UNION ALL "))
}

fn some_rows() -> impl Strategy<Value = Vec<(i64, i64, Option<i64>)>> {
    let row = (0_i64..20, 0_i64..2, proptest::option::weighted(0.8, 0_i64..50));
    proptest::collection::vec(row, 1..12)
}

/// Keeps one value for each key and time.
fn without_ties(rows: Vec<(i64, i64, Option<i64>)>) -> Vec<(i64, i64, Option<i64>)> {
    let mut seen = std::collections::HashSet::new();
    rows.into_iter().filter(|(time, key, _)| seen.insert((*time, *key))).collect()
}

fn engine() -> Engine {
    World::default().with("n01/a", Unit::NONE, &[1.0]).engine(&[])
}

fn answer(engine: &Engine, sql: &str) -> Vec<String> {
    rows(&ask(engine, sql)).1
}

fn cell(value: Option<f64>) -> String {
    value.map_or("NULL".to_owned(), |value| format!("{value:?}"))
}

/// Returns the values of one key in the order of their times.
fn of_key(rows: &[(i64, i64, Option<i64>)], key: i64) -> Vec<(i64, Option<f64>)> {
    let of_key = rows.iter().filter(|row| row.1 == key);
    let mut found: Vec<_> = of_key.map(|row| (row.0, row.2.map(|v| v as f64))).collect();
    found.sort_by_key(|row| row.0);
    found
}

fn model_rate(samples: &[(i64, Option<f64>)]) -> Option<f64> {
    let (mut risen, mut seconds) = (0.0, 0);
    for pair in samples.windows(2) {
        if let (Some(before), Some(after)) = (pair[0].1, pair[1].1)
            && after >= before
        {
            risen += after - before;
            seconds += pair[1].0 - pair[0].0;
        }
    }
    (seconds > 0).then(|| risen / seconds as f64)
}

fn model_delta(samples: &[(i64, Option<f64>)]) -> Option<f64> {
    let known: Vec<_> = samples.iter().filter_map(|(_, value)| *value).collect();
    (known.len() > 1).then(|| known[known.len() - 1] - known[0])
}

fn model_quantile(samples: &[(i64, Option<f64>)], share: f64) -> Option<f64> {
    let mut known: Vec<f64> = samples.iter().filter_map(|(_, value)| *value).collect();
    known.sort_by(f64::total_cmp);
    let place = share * known.len().checked_sub(1)? as f64;
    let (low, high) = (known[place.floor() as usize], known[place.ceil() as usize]);
    Some(low + (high - low) * place.fract())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn aggregates_are_those_of_a_plain_model(rows in some_rows().prop_map(without_ties)) {
        let sql = format!(
            "SELECT k, rate(value), delta(value), first(value), last(value), quantile(value, 0.25)
             FROM {} GROUP BY k", relation(&rows));
        let expected = [0, 1].into_iter().filter_map(|key| {
            let samples = of_key(&rows, key);
            let (first, last) = (samples.first()?.1, samples.last()?.1);
            let cells = [model_rate(&samples), model_delta(&samples), first, last,
                         model_quantile(&samples, 0.25)];
            Some(format!("{key} | {}", cells.map(cell).join(" | ")))
        });
        prop_assert_eq!(answer(&engine(), &sql), expected.collect::<Vec<_>>());
    }

    #[test]
    fn an_asof_join_is_that_of_a_plain_model(
        left in some_rows(), right in some_rows(),
        op in proptest::sample::select(vec![">=", ">", "<=", "<"]), by_key in any::<bool>(),
    ) {
        // The greatest value of one key and time matches. Without keys each time occurs once.
        let mut seen = std::collections::HashSet::new();
        let right: Vec<_> = right.into_iter().filter(|r| by_key || seen.insert(r.0)).collect();
        let on = if by_key { "ON a.k = b.k" } else { "" };
        let sql = format!(
            "SELECT a.value AS x, b.value AS y, CAST(b.time AS BIGINT) AS t FROM {} a ASOF JOIN {} b
             MATCH_CONDITION (a.time {op} b.time) {on}", relation(&left), relation(&right));
        let mut expected: Vec<String> = left.iter().map(|a| {
            let fits = right.iter().filter(|b| (!by_key || a.1 == b.1) && match op {
                ">=" => a.0 >= b.0, ">" => a.0 > b.0, "<=" => a.0 <= b.0, _ => a.0 < b.0,
            });
            let found = fits.min_by_key(|b| ((a.0 - b.0).abs(), std::cmp::Reverse(b.2)));
            let time = found.map_or("NULL".to_owned(), |b| (b.0 * SECOND).to_string());
            let value = |v: Option<i64>| cell(v.map(|v| v as f64));
            format!("{} | {} | {time}", value(a.2), value(found.and_then(|b| b.2)))
        }).collect();
        expected.sort();
        prop_assert_eq!(answer(&engine(), &sql), expected, "{}", sql);
    }

    #[test]
    fn gaps_are_filled_as_by_a_plain_model(rows in some_rows().prop_map(without_ties), step in 1_i64..5) {
        let (from, to) = (2, 17);
        let sql = format!(
            "SELECT CAST(time_bucket_gapfill('{step}s', time) AS BIGINT) AS at, k, max(value),
                    locf(max(value)), interpolate(max(value))
             FROM {} WHERE time >= to_timestamp({from}) AND time < to_timestamp({to})
             GROUP BY time_bucket_gapfill('{step}s', time), k", relation(&rows));
        let mut expected = Vec::new();
        for key in [0, 1] {
            let samples = of_key(&rows, key);
            let inside: Vec<_> = samples.into_iter().filter(|s| (from..to).contains(&s.0)).collect();
            if inside.is_empty() {
                continue;
            }
            // `Some` for a bucket with rows, and their greatest value.
            let buckets: Vec<(i64, Option<Option<f64>>)> = (from / step..=(to - 1) / step).map(|bucket| {
                let here: Vec<_> = inside.iter().filter(|s| s.0 / step == bucket).collect();
                let greatest = here.iter().filter_map(|s| s.1).reduce(f64::max);
                (bucket * step, (!here.is_empty()).then_some(greatest))
            }).collect();
            for (at, (time, value)) in buckets.iter().enumerate() {
                let before = buckets[..at].iter().rev().find(|b| b.1.is_some());
                let after = buckets[at..].iter().find(|b| b.1.is_some());
                let (carried, straight) = match value {
                    Some(value) => (*value, *value),
                    None => (before.and_then(|b| b.1).flatten(), before.zip(after).and_then(|(b, a)| {
                        let (low, high) = (b.1??, a.1??);
                        let share = (time - b.0) as f64 / (a.0 - b.0) as f64;
                        Some(low + (high - low) * share)
                    })),
                };
                let cells = [value.flatten(), carried, straight].map(cell).join(" | ");
                expected.push(format!("{} | {key} | {cells}", time * SECOND));
            }
        }
        expected.sort();
        prop_assert_eq!(answer(&engine(), &sql), expected, "{}", sql);
    }
}

#[test]
fn ties_and_nulls_of_an_asof_join_are_settled() {
    let right = relation(&[(5, 0, Some(1)), (5, 0, Some(3)), (5, 0, Some(2)), (5, 0, None)]);
    let left = relation(&[(5, 0, Some(7)), (4, 0, Some(8))]);
    for (op, expected) in [(">=", ["7.0 | 3.0", "8.0 | NULL"]), ("<=", ["7.0 | 3.0", "8.0 | 3.0"])]
    {
        let sql = format!(
            "SELECT a.value AS x, b.value AS y FROM {left} a ASOF JOIN {right} b
             MATCH_CONDITION (a.time {op} b.time) ON a.k = b.k"
        );
        assert_eq!(answer(&engine(), &sql), expected, "{op}");
    }
    let nulls = "(SELECT CAST(NULL AS BIGINT) AS k, to_timestamp(5) AS time, 1 AS value)";
    let sql = format!(
        "SELECT a.value AS x, b.value AS y FROM {nulls} a ASOF JOIN {nulls} b
         MATCH_CONDITION (a.time >= b.time) ON a.k = b.k"
    );
    assert_eq!(answer(&engine(), &sql), ["1 | NULL"]);
}

#[test]
fn tables_of_topics_stand_beside_each_other() {
    let engine = World::default()
        .with("n01/a", Unit::NONE, &[1.0, 2.0, 3.0])
        .with("n01/b", Unit::NONE, &[10.0])
        .engine(&[]);
    let sql = "SELECT a.metric AS a, b.metric AS b FROM \"n01/a\" a ASOF JOIN \"n01/b\" b
               MATCH_CONDITION (b.timestamp <= a.timestamp)";
    assert_eq!(answer(&engine, sql), ["1.0 | NULL", "2.0 | NULL", "3.0 | 10.0"]);
    let filled = "SELECT time_bucket_gapfill('500ms', time) AS at, topic, locf(avg(value)) AS v
                  FROM samples WHERE time BETWEEN '1970-01-01T00:16:39Z' AND '1970-01-01T00:16:40Z'
                  GROUP BY at, topic HAVING count(*) > 0 ORDER BY at";
    let expected = [
        "1970-01-01T00:16:39Z | n01/a | 2.0",
        "1970-01-01T00:16:39Z | n01/b | NULL",
        "1970-01-01T00:16:39.500Z | n01/a | 2.0",
        "1970-01-01T00:16:39.500Z | n01/b | NULL",
        "1970-01-01T00:16:40Z | n01/a | 3.0",
        "1970-01-01T00:16:40Z | n01/b | 10.0",
    ];
    let mut found = answer(&engine, filled);
    found.sort();
    let mut expected = expected.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected);
}
