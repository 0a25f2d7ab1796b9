//! Inputs with different units.

use skopos_model::Unit;
use skopos_score::Graph;

use super::support::{fact_in, outcome, run, set, sum, try_sum};

#[test]
fn topics_of_different_units_are_refused_by_name() {
    let mut graph = Graph::default();
    fact_in(&mut graph, "n/x/a", Unit::BYTES);
    fact_in(&mut graph, "n/x/b", Unit::SECONDS);
    let refused = |graph: &mut Graph, input: &str| {
        try_sum(graph, "n/total", &[input]).expect_err("another unit").to_string()
    };
    assert_eq!(
        refused(&mut graph, "n/x/* bytes"),
        "n/total: different units in the input `n/x/*`: n/x/a is in bytes, n/x/b in seconds"
    );
    assert_eq!(
        refused(&mut graph, "n/x/b ratio"),
        "n/total: the input `n/x/b` takes ratio, and n/x/b is in seconds"
    );
    assert_eq!(graph.len(), 2, "nothing of it is left");
    sum(&mut graph, "n/total", &["n/x/*"]);
}

#[test]
fn a_later_vertex_of_another_unit_makes_an_insight_unknown_while_it_exists() {
    let mut graph = Graph::default();
    let a = fact_in(&mut graph, "n/x/a", Unit::BYTES);
    set(&mut graph, a, 1, 1.0);
    let total = sum(&mut graph, "n/total", &["n/x/* bytes"]);
    run(&mut graph, 1);
    let b = fact_in(&mut graph, "n/x/b", Unit::SECONDS);
    let reason = "different units in the input `n/x/*`: n/x/a is in bytes, n/x/b in seconds";
    assert_eq!(run(&mut graph, 2), [format!("n/total?{reason}")]);
    set(&mut graph, b, 3, 5.0);
    set(&mut graph, a, 3, 2.0);
    assert_eq!(run(&mut graph, 3), ["n/total@"]);
    let refused: Vec<_> = graph.view(total).expect("it is there").refused().collect();
    assert_eq!((refused.len(), refused[0].0), (1, b));
    graph.remove(b).expect("it is there");
    assert_eq!(run(&mut graph, 4), ["n/total=2"]);
    assert_eq!(outcome(&graph, total), "2");
}

#[test]
fn an_insight_of_another_unit_is_refused_by_those_above_it() {
    let mut graph = Graph::default();
    let a = fact_in(&mut graph, "n/a", Unit::NONE);
    set(&mut graph, a, 1, 1.0);
    let above = sum(&mut graph, "n/above", &["n/below bytes"]);
    let below = sum(&mut graph, "n/below", &["n/a"]);
    run(&mut graph, 1);
    let reason = "?the input `n/below` takes bytes, and n/below is in plain numbers";
    assert_eq!(outcome(&graph, above), reason);
    graph.remove(below).expect("it is there");
    run(&mut graph, 2);
    assert_eq!(outcome(&graph, above), "?no n/below");
}
