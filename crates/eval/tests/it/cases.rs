//! Runs `tests/cases/*.txt`. A file is a list of events and queries, one on each line:
//!
//! ```text
//! row n01/mem/free_bytes bytes gauge     adds a row; `-` means no unit
//! at 3 n01/mem/free_bytes 100            its value at second 3; `null` means no value
//! held 4 n01/mem/free_bytes              a poll at second 4 without a change
//! gone n01/mem/free_bytes                removes the row
//! now 5                                  sets the time of the statements below
//! clear                                  forgets all events
//! > SELECT sum(value) FROM latest        a statement, followed by its result
//! 100 bytes
//! ```
//!
//! With `UPDATE_CASES=1` the results are written anew: review the difference before you commit it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use skopos_eval::{Evaluator, Statement};
use skopos_model::{Timestamp, Topic, Unit};

#[test]
fn case_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut wrong = String::new();
    let mut files = 0;
    for entry in fs::read_dir(&folder).expect("folder of cases") {
        let path = entry.expect("entry").path();
        let text = fs::read_to_string(&path).expect("case file");
        let found = run(&text);
        files += 1;
        if found == text {
            continue;
        }
        if std::env::var_os("UPDATE_CASES").is_some() {
            fs::write(&path, found).expect("writable case file");
            continue;
        }
        writeln!(wrong, "{}:", path.display()).expect("string");
        for (expected, found) in text.lines().zip(found.lines()).filter(|(a, b)| a != b).take(5) {
            writeln!(wrong, "  expected {expected}\n  found    {found}").expect("string");
        }
        let (expected, found) = (text.lines().count(), found.lines().count());
        writeln!(wrong, "  {expected} lines expected, {found} found").expect("string");
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(files >= 5, "only {files} case files were found");
}

/// Returns the text with the actual results.
fn run(text: &str) -> String {
    let mut events: Vec<&str> = Vec::new();
    let mut now = 0.0;
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").expect("string");
        let Some((word, rest)) = line.split_once(' ').or((line == "clear").then_some((line, "")))
        else {
            continue;
        };
        match word {
            "clear" => events.clear(),
            "now" => now = rest.trim().parse().expect("seconds"),
            "row" | "at" | "held" | "gone" => events.push(line),
            ">" => {
                let mut sql = rest.to_owned();
                while let Some(more) = lines.peek().and_then(|line| line.strip_prefix("> ")) {
                    writeln!(out, "> {more}").expect("string");
                    sql = format!("{sql}\n{more}");
                    lines.next();
                }
                out.push_str(&answer(&sql, &events, seconds(now)));
                while lines.peek().is_some_and(|line| !line.is_empty()) {
                    lines.next();
                }
            }
            "#" => {}
            _ => panic!("unknown line `{line}`"),
        }
    }
    out
}

fn seconds(seconds: f64) -> Timestamp {
    // Time does not start at zero, because no real clock does.
    Timestamp::from_nanos(1_000_000_000_000).saturating_add(Duration::from_secs_f64(seconds))
}

fn answer(sql: &str, events: &[&str], now: Timestamp) -> String {
    let mut out = String::new();
    let statement = match Statement::new(sql) {
        Ok(statement) => statement,
        Err(error) => {
            writeln!(out, "error: {error}").expect("string");
            if let Some(hint) = error.hint() {
                writeln!(out, "hint: {hint}").expect("string");
            }
            return out;
        }
    };
    let mut evaluator = Evaluator::new(&statement);
    replay(&mut evaluator, &statement, events);
    let several = statement.outputs().len() > 1;
    for (at, name) in statement.outputs().enumerate() {
        if several {
            write!(out, "{name}: ").expect("string");
        }
        match evaluator.value(at, now) {
            Ok(value) => {
                let unit = evaluator.unit(at).expect("a value has a unit").map(|u| u.to_string());
                let unit = unit.filter(|unit| !unit.is_empty()).map(|unit| format!(" {unit}"));
                writeln!(out, "{value}{}", unit.unwrap_or_default()).expect("string");
            }
            Err(unknown) => writeln!(out, "unknown: {unknown}").expect("string"),
        }
    }
    if evaluator.resets() > 0 {
        writeln!(out, "resets: {}", evaluator.resets()).expect("string");
    }
    out
}

fn replay(evaluator: &mut Evaluator, statement: &Statement, events: &[&str]) {
    let mut keys: BTreeMap<&str, u32> = BTreeMap::new();
    for line in events {
        let words: Vec<&str> = line.split_whitespace().collect();
        let key = |topic: &str| *keys.get(topic).unwrap_or_else(|| panic!("no row {topic}"));
        match words.as_slice() {
            ["row", topic, unit, kind] => {
                let next = keys.len() as u32;
                let name = *topic;
                let key = *keys.entry(name).or_insert(next);
                let topic = Topic::new(topic).expect("topic");
                let unit = Unit::new(if *unit == "-" { "" } else { unit }).expect("unit");
                let is_read = evaluator.row_added(key, &topic, unit, kind.parse().expect("kind"));
                assert!(
                    !is_read || statement.matches(&topic),
                    "{topic} is read and does not match"
                );
                let listed = statement.topics().iter().any(|pattern| pattern.matches(&topic));
                assert!(!is_read || listed, "{topic} is in no pattern of {:?}", statement.topics());
            }
            ["at", time, topic, value] => {
                let value = (*value != "null").then(|| value.parse().expect("value"));
                let time = seconds(time.parse().expect("seconds"));
                evaluator.row_changed(key(topic), time, value);
            }
            ["held", time, topic] => {
                evaluator.row_held(key(topic), seconds(time.parse().expect("seconds")));
            }
            ["gone", topic] => evaluator.row_removed(key(topic)),
            _ => panic!("unknown line `{line}`"),
        }
    }
}
