//! The insights that a run evaluates, how often, and in which order.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use skopos_model::{Kind, Scalar, Unit, Value, ValueType};
use skopos_score::{Cell, Error, Graph, Inputs, Insight, InsightSpec, Outcome, Unknown};

use super::support::{at, fact, known, outcome, run, set, spec, sum};

#[test]
fn a_diamond_is_computed_once_and_its_top_last() {
    let mut graph = Graph::default();
    let x = known(&mut graph, "x", 1, 1.0);
    // The top is added first, so that the order cannot come from the order of adding.
    sum(&mut graph, "top", &["left", "right", "x"]);
    sum(&mut graph, "left", &["lower"]);
    sum(&mut graph, "lower", &["x"]);
    sum(&mut graph, "right", &["x"]);
    let reports = run(&mut graph, 1);
    assert_eq!(reports.len(), 4, "{reports:?}");
    assert_eq!(reports.last().map(String::as_str), Some("top=3"));
    set(&mut graph, x, 2, 5.0);
    let ran = graph.run(at(2), &mut |_| {});
    assert_eq!((ran.evaluated, ran.changed), (4, 4));
}

#[test]
fn a_change_that_changes_nothing_stops_there() {
    let mut graph = Graph::default();
    let (a, b) = (known(&mut graph, "a", 1, 1.0), known(&mut graph, "b", 1, 2.0));
    sum(&mut graph, "sum", &["a", "b"]);
    sum(&mut graph, "above", &["sum"]);
    run(&mut graph, 1);
    // Another poll, so that the rate of the sum has been zero once.
    for second in [2, 3] {
        set(&mut graph, a, second, 1.0);
        set(&mut graph, b, second, 2.0);
        run(&mut graph, second);
    }
    set(&mut graph, a, 4, 2.0);
    set(&mut graph, b, 4, 1.0);
    let ran = graph.run(at(4), &mut |_| {});
    assert_eq!((ran.evaluated, ran.changed), (1, 0));
    assert_eq!(graph.run(at(5), &mut |_| {}).evaluated, 0);
}

/// Writes down the calls that it gets.
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn write(&self, line: String) {
        self.0.lock().expect("one thread").push(line);
    }
}

impl Insight for Diary {
    fn joined(&mut self, slot: usize, _: u32, cell: &Cell) {
        self.write(format!("+{slot} {}", cell.topic()));
    }

    fn left(&mut self, slot: usize, _: u32) {
        self.write(format!("-{slot}"));
    }

    fn changed(&mut self, slot: usize, _: u32, cell: &Cell) {
        let number = cell.number().map_or("?".to_owned(), |number| number.to_string());
        self.write(format!("{slot} {}={number}", cell.topic()));
    }

    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome {
        self.write(format!("evaluate {}", inputs.all(0).len()));
        Ok(Value::F64(0.0))
    }
}

#[test]
fn an_insight_gets_each_change_once_before_it_is_evaluated() {
    let mut graph = Graph::default();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let reports = || std::mem::take(&mut *lines.lock().expect("one thread"));
    let a = known(&mut graph, "n/a", 1, 1.0);
    let diary = Box::new(Diary(Arc::clone(&lines)));
    graph.add_insight(spec("diary", &["n/*", "n/a"]), diary).expect("no cycle");
    assert_eq!(reports(), ["+0 n/a", "0 n/a=1", "+1 n/a", "1 n/a=1"]);
    run(&mut graph, 1);
    assert_eq!(reports(), ["evaluate 1"]);
    let b = fact(&mut graph, "n/b");
    set(&mut graph, b, 2, 5.0);
    set(&mut graph, a, 2, 2.0);
    set(&mut graph, a, 2, 3.0);
    run(&mut graph, 2);
    assert_eq!(reports(), ["+0 n/b", "0 n/b=5", "0 n/a=3", "1 n/a=3", "evaluate 2"]);
    set(&mut graph, a, 3, 3.0);
    set(&mut graph, a, 4, 3.0);
    run(&mut graph, 4);
    assert_eq!(reports(), ["0 n/a=3", "1 n/a=3", "evaluate 2"], "its rate is zero now");
    set(&mut graph, a, 5, 3.0);
    run(&mut graph, 5);
    assert_eq!(reports(), [""; 0]);
    graph.remove(a).expect("it is there");
    run(&mut graph, 6);
    assert_eq!(reports(), ["-0", "-1"], "without a needed input there is nothing to evaluate");
}

#[test]
fn a_vertex_that_joins_between_a_change_and_its_run_is_reported_once() {
    let mut graph = Graph::default();
    let x = known(&mut graph, "x", 1, 1.0);
    sum(&mut graph, "sum", &["x"]);
    run(&mut graph, 1);
    set(&mut graph, x, 2, 2.0);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let diary = Box::new(Diary(Arc::clone(&lines)));
    graph.add_insight(spec("diary", &["x"]), diary).expect("no cycle");
    run(&mut graph, 2);
    assert_eq!(*lines.lock().expect("one thread"), ["+0 x", "0 x=2", "evaluate 1"]);
}

/// Returns the given outcome.
struct Gives(Outcome);

impl Insight for Gives {
    fn evaluate(&mut self, _: &Inputs<'_>) -> Outcome {
        self.0.clone()
    }
}

#[test]
fn an_outcome_has_the_declared_type_and_is_a_number() {
    for (gives, value_type, expected) in [
        (Ok(Value::U64(3)), ValueType::F64, "3"),
        (
            Ok(Value::F64(f64::NAN)),
            ValueType::F64,
            "?its formula gives NaN, which is not a finite number: it divides by zero or overflows",
        ),
        (
            Ok(Value::F64(f64::INFINITY)),
            ValueType::F64,
            "?its formula gives inf, which is not a finite number: it divides by zero or overflows",
        ),
        (
            Ok(Value::F64(1.5)),
            ValueType::U64,
            "?its formula gives a value of type f64, and its declared type is u64",
        ),
        (Err(Unknown::new("busy")), ValueType::U64, "?busy"),
    ] {
        let mut graph = Graph::default();
        let spec = InsightSpec { value_type, ..spec("i", &[]) };
        let id = graph.add_insight(spec, Box::new(Gives(gives))).expect("no cycle");
        run(&mut graph, 1);
        assert_eq!(outcome(&graph, id), expected);
    }
}

/// Returns the seconds of the time.
struct Clock;

impl Insight for Clock {
    fn is_timed(&self) -> bool {
        true
    }

    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome {
        Ok(Value::I64(inputs.now().as_nanos() / 1_000_000_000))
    }
}

#[test]
fn a_timed_insight_is_evaluated_each_second() {
    let mut graph = Graph::default();
    let spec = InsightSpec { value_type: ValueType::I64, ..spec("clock", &["?x"]) };
    let id = graph.add_insight(spec, Box::new(Clock)).expect("no cycle");
    sum(&mut graph, "above", &["clock"]);
    assert_eq!(run(&mut graph, 7), ["clock=7", "above=7"]);
    let ran = graph.run(at(7).saturating_add(std::time::Duration::from_millis(800)), &mut |_| {});
    assert_eq!(ran.evaluated, 0);
    assert_eq!(run(&mut graph, 8), ["clock=8", "above=8"]);
    // The run before was a little late, and this run is on time.
    let late = at(9).saturating_add(std::time::Duration::from_micros(700));
    assert_eq!(graph.run(late, &mut |_| {}).evaluated, 2);
    assert_eq!(run(&mut graph, 10), ["clock=10", "above=10"]);
    graph.remove(id).expect("it is there");
    assert_eq!(run(&mut graph, 11), ["above?no clock"]);
}

#[test]
fn a_timed_insight_goes_on_after_the_clock_was_set_back() {
    let mut graph = Graph::default();
    let spec = InsightSpec { value_type: ValueType::I64, ..spec("clock", &["?x"]) };
    graph.add_insight(spec, Box::new(Clock)).expect("no cycle");
    assert_eq!(run(&mut graph, 10_002), ["clock=10002"]);
    assert_eq!(run(&mut graph, 6400), ["clock=6400"]);
    assert_eq!(run(&mut graph, 6401), ["clock=6401"]);
}

#[test]
fn an_insight_cannot_be_set() {
    let mut graph = Graph::default();
    let id = sum(&mut graph, "i", &["x"]);
    assert!(matches!(graph.set(id, at(1), Scalar::U64(1)), Err(Error::Computed(_))));
    assert!(graph.set_value(id, at(1), Value::U64(1)).is_err());
    assert!(graph.set_unknown(id, at(1), Unknown::new("no")).is_err());
}

#[test]
fn resets_of_counters_are_counted() {
    let mut graph = Graph::default();
    let topic = "n/c".parse().expect("a topic");
    let c = graph.add_fact(topic, Unit::NONE, Kind::Counter).expect("room");
    for (second, value) in [(1, 5u64), (2, 9), (3, 2), (4, 8), (5, 0)] {
        graph.set(c, at(second), value.into()).expect("a fact");
    }
    graph.set_value(c, at(6), Value::U64(1)).expect("a fact");
    assert_eq!(graph.view(c).expect("it is there").cell().resets(), 2);
    graph.remove(c).expect("it is there");
    assert_eq!(graph.resets(), 2);
}

#[test]
fn the_callers_clock_measures_costs() {
    let mut graph = Graph::default();
    let x = known(&mut graph, "x", 1, 1.0);
    let id = sum(&mut graph, "i", &["x"]);
    let clock = Rc::new(RefCell::new(0u64));
    for second in 1..4 {
        set(&mut graph, x, second, second as f64);
        let mut tick = || {
            *clock.borrow_mut() += 10;
            *clock.borrow()
        };
        graph.run_timed(at(second), Some(&mut tick), &mut |_| {});
    }
    let view = graph.view(id).expect("it is there");
    let cost = view.cost().expect("an insight");
    assert_eq!((cost.runs, cost.last_ns, cost.total_ns), (3, 10, 30));
    assert_eq!(graph.view(x).expect("it is there").cost(), None);
    assert_eq!((view.changes(), view.changes_per_second(at(3))), (3, Some(1.0)));
}

#[test]
fn a_view_leads_from_an_insight_to_its_facts_and_back() {
    let mut graph = Graph::default();
    let x = known(&mut graph, "n/x", 1, 1.0);
    let y = known(&mut graph, "n/y", 1, 1.0);
    let id = sum(&mut graph, "i", &["n/*", "?n/x", "n/z"]);
    let view = graph.view(id).expect("it is there");
    assert!(view.is_insight());
    assert_eq!((view.name(), view.formula(), view.height()), (Some("i"), Some("sum"), 1));
    let inputs: Vec<_> = view
        .inputs()
        .map(|input| {
            let matched: Vec<_> = input.matched().map(|v| v.topic().to_string()).collect();
            (input.input().pattern.clone(), input.input().needed, matched.join(" "))
        })
        .collect();
    let expected = [("n/*", true, "n/x n/y"), ("n/x", false, "n/x"), ("n/z", true, "")];
    assert_eq!(inputs, expected.map(|(p, n, m)| (p.to_owned(), n, m.to_owned())));
    assert_eq!(graph.view(x).expect("it is there").dependents(), [id]);
    assert!(!graph.view(y).expect("it is there").is_insight());
    let topics: Vec<_> = graph.views().map(|view| view.topic().to_string()).collect();
    assert_eq!(topics, ["i", "n/x", "n/y"]);
}
