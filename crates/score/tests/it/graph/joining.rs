//! Vertices join by pattern at any time.

use skopos_score::{Error, Graph};

use super::support::{fact, known, outcome, run, set, sum};

#[test]
fn a_vertex_that_appears_later_joins_and_one_that_goes_leaves() {
    let mut graph = Graph::default();
    let left = sum(&mut graph, "n/left", &["n/fs/*/bytes"]);
    assert_eq!(run(&mut graph, 1), ["n/left?no n/fs/*/bytes"]);
    let a = known(&mut graph, "n/fs/a/bytes", 2, 3.0);
    let b = known(&mut graph, "n/fs/b/bytes", 2, 4.0);
    known(&mut graph, "n/other/c/bytes", 2, 100.0);
    assert_eq!(run(&mut graph, 2), ["n/left=7"]);
    graph.remove(a).expect("it is there");
    assert_eq!(run(&mut graph, 3), ["n/left=4"]);
    graph.remove(b).expect("it is there");
    assert_eq!(run(&mut graph, 4), ["n/left?no n/fs/*/bytes"]);
    assert_eq!(outcome(&graph, left), "?no n/fs/*/bytes");
}

#[test]
fn an_insight_takes_other_insights_by_pattern_and_never_itself() {
    let mut graph = Graph::default();
    known(&mut graph, "a/x", 1, 1.0);
    known(&mut graph, "b/x", 1, 2.0);
    let all = sum(&mut graph, "all/total", &["*/total"]);
    assert_eq!(run(&mut graph, 1), ["all/total?no */total"]);
    sum(&mut graph, "a/total", &["a/x"]);
    sum(&mut graph, "b/total", &["b/x"]);
    assert_eq!(run(&mut graph, 2), ["a/total=1", "b/total=2", "all/total=3"]);
    assert_eq!(graph.view(all).expect("it is there").height(), 2);
}

#[test]
fn ids_are_never_confused() {
    let mut graph = Graph::default();
    let old = known(&mut graph, "n/a", 1, 1.0);
    graph.remove(old).expect("it is there");
    let new = known(&mut graph, "n/b", 1, 2.0);
    assert_ne!(old, new);
    let gone = graph.set(old, super::support::at(2), 5u64.into());
    assert!(matches!(gone, Err(Error::Gone(id)) if id == old), "{gone:?}");
    assert!(matches!(graph.remove(old), Err(Error::Gone(_))));
    assert!(graph.view(old).is_err());
    assert_eq!(outcome(&graph, new), "2");
    // More often than one index can be reused.
    let mut seen = std::collections::HashSet::from([old, new]);
    for _ in 0..20_000 {
        let id = fact(&mut graph, "n/c");
        assert!(seen.insert(id), "{id} twice");
        graph.remove(id).expect("it is there");
    }
}

#[test]
fn a_topic_has_one_vertex() {
    let mut graph = Graph::default();
    let id = fact(&mut graph, "n/a");
    let twice = graph.add_fact(
        "n/a".parse().expect("a topic"),
        skopos_model::Unit::NONE,
        skopos_model::Kind::Gauge,
    );
    assert!(matches!(twice, Err(Error::Exists(_))), "{twice:?}");
    assert!(matches!(super::support::try_sum(&mut graph, "n/a", &["n/b"]), Err(Error::Exists(_))));
    assert_eq!((graph.find("n/a"), graph.len()), (Some(id), 1));
}

#[test]
fn a_missing_input_has_a_reason() {
    let mut graph = Graph::default();
    let health = sum(&mut graph, "n/health", &["n/smart/vda/bad"]);
    graph.set_missing("smart", "no smartctl");
    run(&mut graph, 1);
    let reason = "?no n/smart/vda/bad: smart: skipped: no smartctl";
    assert_eq!(outcome(&graph, health), reason);
    let later = sum(&mut graph, "n/later", &["n/smart/*/bad"]);
    run(&mut graph, 2);
    assert_eq!(outcome(&graph, later), "?no n/smart/*/bad: smart: skipped: no smartctl");
    graph.clear_missing("smart");
    run(&mut graph, 3);
    assert_eq!(outcome(&graph, health), "?no n/smart/vda/bad");
    known(&mut graph, "n/smart/vda/bad", 4, 0.0);
    assert_eq!(run(&mut graph, 4), ["n/health=0", "n/later=0"]);
}

#[test]
fn an_optional_input_may_be_missing_or_unknown() {
    let mut graph = Graph::default();
    let total = sum(&mut graph, "n/total", &["n/a", "?n/b"]);
    let a = known(&mut graph, "n/a", 1, 1.0);
    assert_eq!(run(&mut graph, 1), ["n/total=1"]);
    let b = known(&mut graph, "n/b", 1, 1.0);
    assert_eq!(run(&mut graph, 1), ["n/total=2"]);
    let why = skopos_score::Unknown::new("unplugged");
    graph.set_unknown(b, super::support::at(2), why.clone()).expect("a fact");
    assert_eq!(run(&mut graph, 2), ["n/total=1"]);
    graph.set_unknown(a, super::support::at(3), why).expect("a fact");
    assert_eq!(run(&mut graph, 3), ["n/total?n/a is unknown: unplugged"]);
    set(&mut graph, a, 4, 1.0);
    assert_eq!(run(&mut graph, 4), ["n/total=1"]);
    assert_eq!(outcome(&graph, total), "1");
}
