//! An insight is as old as its oldest needed input.

use std::time::Duration;

use skopos_score::{Graph, Unknown};

use super::support::{age, at, fact, known, outcome, run, set, sum};

#[test]
fn age_passes_all_layers_and_names_its_source() {
    let mut graph = Graph::default();
    let slow = known(&mut graph, "n/slow", 1, 1.0);
    let fast = known(&mut graph, "n/fast", 5, 1.0);
    let first = sum(&mut graph, "i/first", &["n/slow", "n/fast"]);
    let second = sum(&mut graph, "i/second", &["i/first", "n/fast"]);
    run(&mut graph, 5);
    assert_eq!(age(&graph, first), (1, "n/slow".into()));
    assert_eq!(age(&graph, second), (1, "i/first".into()));
    // A poll that finds the same value causes no work and makes no insight younger.
    set(&mut graph, fast, 6, 1.0);
    run(&mut graph, 6);
    set(&mut graph, fast, 7, 1.0);
    assert_eq!(run(&mut graph, 7), [""; 0]);
    set(&mut graph, slow, 8, 1.0);
    assert_eq!(run(&mut graph, 8), ["i/first@", "i/second@"]);
    assert_eq!(age(&graph, first), (7, "n/fast".into()));
    assert_eq!(age(&graph, second).0, 7);
}

#[test]
fn an_optional_input_makes_no_insight_older() {
    let mut graph = Graph::default();
    known(&mut graph, "n/a", 9, 1.0);
    known(&mut graph, "n/b", 2, 1.0);
    let total = sum(&mut graph, "n/total", &["n/a", "?n/b"]);
    let loose = sum(&mut graph, "n/loose", &["?n/a", "?n/b"]);
    run(&mut graph, 9);
    assert_eq!(age(&graph, total), (9, "n/a".into()));
    assert_eq!(age(&graph, loose), (2, "n/b".into()), "of all, where none is needed");
}

#[test]
fn an_older_input_that_joins_makes_it_older() {
    let mut graph = Graph::default();
    let total = sum(&mut graph, "n/total", &["n/x/*"]);
    let above = sum(&mut graph, "n/above", &["n/total"]);
    known(&mut graph, "n/x/a", 9, 1.0);
    run(&mut graph, 9);
    let b = known(&mut graph, "n/x/b", 3, 1.0);
    run(&mut graph, 10);
    assert_eq!(age(&graph, total), (3, "n/x/b".into()));
    assert_eq!(age(&graph, above), (3, "n/total".into()));
    graph.remove(b).expect("it is there");
    run(&mut graph, 11);
    assert_eq!(age(&graph, above), (9, "n/total".into()));
}

#[test]
fn an_unknown_needed_input_is_never_shown_as_fresh() {
    let mut graph = Graph::default();
    let a = known(&mut graph, "n/a", 1, 1.0);
    let first = sum(&mut graph, "i/first", &["n/a"]);
    let second = sum(&mut graph, "i/second", &["i/first"]);
    run(&mut graph, 1);
    graph.set_unknown(a, at(2), Unknown::new("hung mount")).expect("a fact");
    run(&mut graph, 2);
    assert_eq!(outcome(&graph, first), "?n/a is unknown: hung mount");
    assert_eq!(outcome(&graph, second), "?i/first is unknown: n/a is unknown: hung mount");
    assert_eq!(age(&graph, second).1, "");
    graph.remove(a).expect("it is there");
    run(&mut graph, 3);
    assert_eq!(outcome(&graph, second), "?i/first is unknown: no n/a");
    fact(&mut graph, "n/a");
    run(&mut graph, 4);
    assert_eq!(outcome(&graph, first), "?n/a has no value yet");
}

#[test]
fn a_dead_source_grows_old_after_the_clock_was_set_back() {
    let mut graph = Graph::default();
    let dead = known(&mut graph, "n/dead", 1000, 1.0);
    let live = known(&mut graph, "n/live", 1000, 1.0);
    let total = sum(&mut graph, "n/total", &["n/dead", "n/live"]);
    graph.limit_age(total, Some(Duration::from_secs(5))).expect("an insight");
    assert_eq!(run(&mut graph, 1000), ["n/total=2"]);
    // Two seconds later the clock is set back by a quarter of an hour.
    graph.clock_set_back(Duration::from_secs(900));
    set(&mut graph, live, 102, 2.0);
    assert_eq!(run(&mut graph, 102), ["n/total=3"]);
    assert_eq!(graph.view(dead).expect("there").checked_at(), at(100));
    assert_eq!(graph.view(live).expect("there").checked_at(), at(102), "it is polled on");
    assert_eq!(run(&mut graph, 105), [""; 0]);
    assert_eq!(run(&mut graph, 106), ["n/total?n/dead is more than 5 s old"]);
}

#[test]
fn an_insight_older_than_allowed_is_unknown_until_the_next_poll() {
    let mut graph = Graph::default();
    let a = known(&mut graph, "n/a", 1, 1.0);
    let b = known(&mut graph, "n/b", 3, 1.0);
    let total = sum(&mut graph, "n/total", &["n/a", "n/b"]);
    graph.limit_age(total, Some(Duration::from_secs(5))).expect("an insight");
    run(&mut graph, 3);
    assert_eq!(outcome(&graph, total), "2");
    assert_eq!(run(&mut graph, 6), [""; 0]);
    assert_eq!(run(&mut graph, 7), ["n/total?n/a is more than 5 s old"]);
    assert_eq!(run(&mut graph, 7), [""; 0], "it is said once");
    // The change of another input is not a reason to report it again.
    set(&mut graph, b, 8, 2.0);
    assert_eq!(run(&mut graph, 8), [""; 0]);
    set(&mut graph, a, 9, 1.0);
    assert_eq!(run(&mut graph, 9), ["n/total=3"]);
    graph.limit_age(total, None).expect("an insight");
    run(&mut graph, 100);
    assert_eq!(outcome(&graph, total), "3");
    assert!(graph.limit_age(a, None).is_err(), "a fact is as old as it is");
}
