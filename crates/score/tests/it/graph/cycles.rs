//! The graph has no cycle, whichever vertex comes last.

use proptest::prelude::*;
use skopos_score::graph::{MAX_HEIGHT, MAX_INPUTS};
use skopos_score::{Error, Graph};

use super::support::{known, outcome, run, sum, try_sum};

fn refused(graph: &mut Graph, topic: &str, inputs: &[&str]) -> String {
    try_sum(graph, topic, inputs).expect_err("a cycle").to_string()
}

#[test]
fn the_error_names_the_path() {
    let mut graph = Graph::default();
    sum(&mut graph, "b", &["a"]);
    sum(&mut graph, "c", &["b", "x"]);
    assert_eq!(refused(&mut graph, "a", &["b"]), "a cycle: a → b → a");
    assert_eq!(refused(&mut graph, "a", &["x", "c"]), "a cycle: a → b → c → a");
    let hint = try_sum(&mut graph, "a", &["c"]).expect_err("a cycle").hint();
    assert!(hint.is_some_and(|hint| hint.contains("pattern")));
    assert_eq!(graph.len(), 2, "nothing of it is left");
    sum(&mut graph, "a", &["x"]);
    known(&mut graph, "x", 1, 1.0);
    assert_eq!(run(&mut graph, 1), ["a=1", "b=1", "c=2"]);
}

#[test]
fn an_insight_that_closes_a_cycle_through_a_pattern_is_refused() {
    let mut graph = Graph::default();
    known(&mut graph, "n/x", 1, 1.0);
    let all = sum(&mut graph, "n/all", &["n/*"]);
    assert_eq!(refused(&mut graph, "n/more", &["n/all"]), "a cycle: n/more → n/all → n/more");
    assert_eq!(refused(&mut graph, "n/any", &["**"]), "a cycle: n/any → n/all → n/any");
    sum(&mut graph, "m/more", &["n/all"]);
    run(&mut graph, 1);
    assert_eq!(outcome(&graph, all), "1");
}

#[test]
fn an_edge_that_was_refused_still_closes_a_cycle() {
    let mut graph = Graph::default();
    known(&mut graph, "x", 1, 1.0);
    // `a` is a plain number, so `b` refuses it; another `b` might accept it.
    sum(&mut graph, "b", &["a bytes"]);
    assert_eq!(refused(&mut graph, "a", &["b", "x"]), "a cycle: a → b → a");
}

#[test]
fn insights_pile_up_to_a_bound() {
    let mut graph = Graph::default();
    known(&mut graph, "l/0", 1, 1.0);
    for layer in 1..=MAX_HEIGHT {
        sum(&mut graph, &format!("l/{layer}"), &[&format!("l/{}", layer - 1)]);
    }
    let top = format!("l/{}", MAX_HEIGHT + 1);
    let error = try_sum(&mut graph, &top, &[&format!("l/{MAX_HEIGHT}")]).expect_err("too high");
    assert!(matches!(error, Error::Height(_)), "{error}");
    // From below as well.
    let first = graph.find("l/0").expect("it is there");
    graph.remove(first).expect("it is there");
    known(&mut graph, "x", 1, 1.0);
    let error = try_sum(&mut graph, "l/0", &["x"]).expect_err("too high");
    assert!(matches!(error, Error::Height(_)), "{error}");
    known(&mut graph, "l/0", 1, 1.0);
    assert_eq!(run(&mut graph, 1).len(), MAX_HEIGHT);
}

#[test]
fn ranks_fall_when_a_layer_goes() {
    let mut graph = Graph::default();
    known(&mut graph, "x", 1, 1.0);
    let one = sum(&mut graph, "one", &["x"]);
    sum(&mut graph, "two", &["one", "x"]);
    let three = sum(&mut graph, "three", &["?two"]);
    let height = |graph: &Graph, id| graph.view(id).expect("it is there").height();
    assert_eq!(height(&graph, three), 3);
    graph.remove(one).expect("it is there");
    assert_eq!(height(&graph, three), 2);
    sum(&mut graph, "one", &["x"]);
    assert_eq!(height(&graph, three), 3);
}

#[test]
fn inputs_are_bounded_and_must_be_patterns() {
    let mut graph = Graph::default();
    let many = vec!["x"; MAX_INPUTS + 1];
    let error = try_sum(&mut graph, "i", &many).expect_err("too many");
    assert_eq!(error.to_string(), "i has 65 inputs, and an insight has at most 64");
    sum(&mut graph, "i", &many[1..]);
    let error = try_sum(&mut graph, "j", &["n//x"]).expect_err("no pattern");
    assert_eq!(error.to_string(), "j: the input `n//x` is not a pattern of topics");
}

proptest! {
    /// For any vertices in any order: the accepted graph has no cycle, and each refused vertex
    /// would have closed one.
    #[test]
    fn exactly_the_cycles_are_refused(
        edges in proptest::collection::vec(proptest::collection::vec(0usize..12, 0..4), 12),
        order in Just((0usize..12).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut graph = Graph::default();
        let mut taken = vec![None; 12];
        for vertex in order {
            let inputs: Vec<usize> =
                edges[vertex].iter().copied().filter(|&input| input != vertex).collect();
            taken[vertex] = Some(inputs.clone());
            let closes = has_cycle(&taken);
            let topics: Vec<String> = inputs.iter().map(|input| format!("v/{input}")).collect();
            let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
            let added = try_sum(&mut graph, &format!("v/{vertex}"), &topics);
            prop_assert_eq!(added.is_err(), closes, "{:?}", added);
            if let Err(Error::Cycle(path)) = added {
                prop_assert_eq!(path.first(), path.last());
                prop_assert!(is_path(&path, &taken), "{:?}", path);
                taken[vertex] = None;
            }
        }
    }
}

fn is_path(path: &[skopos_model::Topic], taken: &[Option<Vec<usize>>]) -> bool {
    let number = |topic: &skopos_model::Topic| -> usize {
        topic.as_str().trim_start_matches("v/").parse().expect("a number")
    };
    path.windows(2).all(|step| {
        let (from, to) = (number(&step[0]), number(&step[1]));
        taken[to].as_ref().is_some_and(|inputs| inputs.contains(&from))
    })
}

/// Removes vertices whose inputs are all removed until none is left to remove: the remaining
/// vertices are in or behind a cycle.
fn has_cycle(taken: &[Option<Vec<usize>>]) -> bool {
    let mut left: Vec<usize> = (0..taken.len()).filter(|&v| taken[v].is_some()).collect();
    loop {
        let before = left.len();
        let now = left.clone();
        left.retain(|&v| taken[v].iter().flatten().any(|input| now.contains(input)));
        if left.len() == before {
            return before > 0;
        }
    }
}
