//! Hysteresis and flapping.

use skopos_steer::rank::{FLAP_CHANGES, Method, Profile, Ranker, State};

use crate::table::{order, profile, rank, weight};

#[test]
fn a_small_change_does_not_change_the_order() {
    let steady = Profile { hysteresis: 0.1, ..profile(Method::Latency) };
    let mut ranker = Ranker::new(steady, 1).expect("a profile");
    let names = ["a", "b"];
    for round in 0..50 {
        let b = if round % 2 == 0 { 0.00104 } else { 0.00096 };
        let ranking = rank(&mut ranker, &names, &[[0.001; 3], [b; 3]], f64::from(round));
        assert_eq!(order(&ranking, &names), ["a", "b"], "round {round}");
    }
    let ranking = rank(&mut ranker, &names, &[[0.001; 3], [0.0005; 3]], 50.0);
    assert_eq!(order(&ranking, &names), ["b", "a"], "a large change counts at once");
}

#[test]
fn a_flapping_node_counts_as_bad_until_it_stays_good() {
    let mut ranker = Ranker::new(profile(Method::Latency), 1).expect("a profile");
    let names = ["steady", "flapping"];
    let mut first = 0;
    for round in 0..40_u32 {
        let value = if round % 2 == 0 { 0.05 } else { 0.0009 };
        let ranking = rank(&mut ranker, &names, &[[0.001; 3], [value; 3]], f64::from(round));
        let entry = ranking.entries().iter().find(|e| e.candidate == 1).expect("the node");
        if entry.state == State::Flapping {
            first = if first == 0 { round } else { first };
            assert!(entry.weight < 0.01, "round {round}: {}", entry.weight);
        }
    }
    assert!(f64::from(first) >= FLAP_CHANGES && first < 10, "{first}");
    let mut found = None;
    for round in 40..600_u32 {
        let ranking = rank(&mut ranker, &names, &[[0.001; 3], [0.0009; 3]], f64::from(round));
        if weight(&ranking, 1) > 0.4 {
            found = Some(round);
            break;
        }
    }
    assert!(found.is_some_and(|round| round > 60), "{found:?}");
}
