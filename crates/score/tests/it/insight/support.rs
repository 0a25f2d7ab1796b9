//! One insight on a handful of facts, written as text.

use std::sync::Arc;

use serde_json::Value as Json;
use skopos_model::{Scalar, Structured, Timestamp, Topic, TopicPattern, Value, ValueType, schema};
use skopos_score::insight::{DEFINITIONS, Definition, Subject, Tiers};
use skopos_score::{Cell, Inputs, Outcome, Slot, Unknown};

/// Seconds between two polls.
pub(super) const INTERVAL: i64 = 10;

/// The time of the first poll.
pub(super) const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

/// Returns the value of the insight `metric` about `instance` on `n01`.
///
/// A line of `facts` is `block/vda/read_bytes_total 1 | 2`: a fact of the schema and its values at
/// polls ten seconds apart, in JSON. `?no battery` is an unknown value, `-` is a value before its
/// first poll. `smart: no smartctl` is the reason why a family is not measured.
pub(super) fn value(metric: &str, instance: &str, tiers: &str, facts: &str) -> Outcome {
    let definition = definition(metric);
    let mut cells = Vec::new();
    let mut missing = Vec::new();
    for line in facts.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.split_once(": ") {
            Some((family, reason)) if !family.contains(['/', ' ']) => {
                missing.push((family, reason))
            }
            _ => cells.push(cell(line)),
        }
    }
    cells.sort_by(|a: &Cell, b| a.topic().cmp(b.topic()));
    let subject = Subject {
        node: "n01".into(),
        instance: instance.into(),
        tiers: Arc::new(Tiers::parse(tiers).expect("a good tiers file")),
    };
    let inputs: Vec<_> = definition.inputs.iter().map(|i| i.input("n01", instance)).collect();
    let slots: Vec<_> = inputs
        .iter()
        .map(|input| {
            let pattern = TopicPattern::new(&input.pattern).expect("a pattern");
            let cells: Vec<_> = cells.iter().filter(|c| pattern.matches(c.topic())).collect();
            assert!(cells.iter().all(|c| Some(c.unit()) == input.unit), "{pattern}");
            let family =
                |(family, _): &&(&str, &str)| input.pattern.contains(&format!("/{family}/"));
            let missing = missing.iter().find(family).map(|(_, reason)| *reason);
            Slot { input, cells, missing }
        })
        .collect();
    (definition.compute)(&subject, &Inputs::new(START, &slots))
}

pub(super) fn definition(metric: &str) -> &'static Definition {
    DEFINITIONS.iter().find(|d| d.metric.name == metric).unwrap_or_else(|| panic!("no {metric}"))
}

fn cell(line: &str) -> Cell {
    let (topic, values) = line.split_once(' ').unwrap_or_else(|| panic!("{line}: no value"));
    let topic = Topic::new(&format!("n01/{topic}")).expect("a topic");
    let metric = schema::lookup(&topic).unwrap_or_else(|| panic!("{topic} is not in the schema"));
    let mut cell = Cell::new(topic, metric.unit, metric.kind);
    let mut time = START;
    for value in values.split(" | ").map(str::trim) {
        match value.strip_prefix('?') {
            _ if value == "-" => {}
            Some(reason) => {
                cell.take(time, Err(Unknown::new(reason)));
            }
            None => {
                cell.take(time, Ok(parse(metric.value_type, value)));
            }
        }
        time = time.saturating_add(std::time::Duration::from_secs(INTERVAL as u64));
    }
    cell
}

fn parse(value_type: ValueType, text: &str) -> Value {
    match value_type {
        ValueType::Structured => {
            Value::Structured(Structured::from_json(text).unwrap_or_else(|e| panic!("{text}: {e}")))
        }
        ValueType::F64 => Scalar::F64(text.parse().expect(text)).into(),
        ValueType::I64 => Scalar::I64(text.parse().expect(text)).into(),
        ValueType::U64 => Scalar::U64(text.parse().expect(text)).into(),
    }
}

/// The expected text: a number, a record, or `unknown: ` and a reason.
pub(super) fn check(metric: &str, instance: &str, facts: &str, expected: &str) {
    check_with_tiers(metric, instance, "", facts, expected);
}

pub(super) fn check_with_tiers(
    metric: &str,
    instance: &str,
    tiers: &str,
    facts: &str,
    expected: &str,
) {
    let found = value(metric, instance, tiers, facts);
    match (&found, expected.strip_prefix("unknown: ")) {
        (Err(unknown), Some(reason)) => assert_eq!(unknown.reason(), reason, "{facts}"),
        (Ok(Value::F64(number)), None) => {
            let wanted: f64 = expected.parse().unwrap_or_else(|_| panic!("{number}: {facts}"));
            let error = (number - wanted).abs() / wanted.abs().max(f64::MIN_POSITIVE);
            assert!(error < 1e-12, "{number}, not {wanted}: {facts}");
        }
        (Ok(Value::Structured(record)), None) => {
            let wanted: Json =
                serde_json::from_str(expected).unwrap_or_else(|_| panic!("{record}"));
            assert_eq!(*record.as_json(), wanted, "{facts}");
        }
        _ => panic!("{found:?}, not {expected}: {facts}"),
    }
}
