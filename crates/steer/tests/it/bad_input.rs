//! Values that are missing, old, impossible or untrue, and profiles that are not valid.

use skopos_model::Timestamp;
use skopos_steer::Error;
use skopos_steer::rank::{
    Basis, Fault, Inputs, MAX_CANDIDATES, Method, Metric, Outcome, Profile, Ranker, Reading, Stale,
    State,
};

use crate::table::{SECOND, at, inputs, order, profile, rank, reading, weight};

const NAMES: [&str; 3] = ["a", "b", "c"];
const GOOD: [f64; 3] = [0.001, 1e-3, 1.0];

#[test]
fn all_stale_gives_the_order_of_the_caller() {
    for stale in [Stale::Distrust, Stale::Hold, Stale::Exclude] {
        let profile = Profile { stale, ..profile(Method::Equal) };
        let mut ranker = Ranker::new(profile, 1).expect("a profile");
        let rows = [[0.09, 1e-3, 1.0], GOOD, GOOD];
        let old = inputs(&rows, 0.0);
        let ranking = ranker.rank(at(3600.0), &NAMES, &old).expect("a ranking");
        assert_eq!(ranking.basis(), Basis::Native, "{stale:?}");
        assert_eq!(order(&ranking, &NAMES), NAMES);
        assert!((weight(&ranking, 0) - 1.0 / 3.0).abs() < 1e-12);
    }
}

#[test]
fn no_candidates_give_an_empty_ranking() {
    let mut ranker = Ranker::new(profile(Method::Equal), 1).expect("a profile");
    let ranking = ranker.rank(at(0.0), &[], &Inputs::new(0, 3)).expect("a ranking");
    assert!(ranking.entries().is_empty());
    assert_eq!(ranking.basis(), Basis::Native);
}

#[test]
fn the_rule_for_stale_values_is_followed() {
    let score = |stale, age: f64| {
        let mut ranker = Ranker::new(Profile { stale, ..profile(Method::Latency) }, 1).expect("it");
        let mut inputs = inputs(&[[0.001; 3], [0.001; 3], [0.05; 3]], 100.0);
        inputs.set(2, 0, reading(0.05, 100.0 - age));
        let ranking = ranker.rank(at(100.0), &NAMES, &inputs).expect("a ranking");
        let entry = ranking.entries().iter().find(|e| e.candidate == 2).expect("it").clone();
        (entry.score, entry.state, entry.weight)
    };
    let (fresh, ..) = score(Stale::Distrust, 1.0);
    let (old, ..) = score(Stale::Distrust, 10.0);
    assert!(old < 0.6 * fresh, "an old bad value counts less: {fresh} then {old}");
    assert_eq!(score(Stale::Hold, 10.0).0, fresh);
    let (_, state, weight) = score(Stale::Exclude, 10.0);
    assert_eq!((state, weight), (State::Excluded, 0.0));
    assert_eq!(score(Stale::Exclude, 1000.0).1, State::Excluded);
    assert_eq!(score(Stale::Distrust, 1000.0).1, State::Unknown);
}

#[test]
fn impossible_values_are_faults_and_not_scores() {
    let mut ranker = Ranker::new(profile(Method::Equal), 1).expect("a profile");
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5] {
        let mut inputs = inputs(&[GOOD, GOOD], 0.0);
        inputs.set(1, 0, reading(value, 0.0));
        let ranking = ranker.rank(at(0.0), &["a", "b"], &inputs).expect("a ranking");
        let fault = ranking.explain(1)[0].fault;
        assert_eq!(fault, Some(Fault::NotANumber), "{value}");
        let unknown = ranking.explain(1).iter().find(|c| c.name == "unknown").map(|c| c.part);
        assert!(unknown.is_some_and(|part| part > 0.0));
    }
}

#[test]
fn a_clock_that_is_a_second_ahead_is_tolerated_and_an_hour_is_not() {
    let mut ranker = Ranker::new(profile(Method::Equal), 1).expect("a profile");
    let mut inputs = inputs(&[GOOD, GOOD], 1.0);
    inputs.set(1, 1, reading(1e-3, 3600.0));
    let ranking = ranker.rank(at(0.0), &["a", "b"], &inputs).expect("a ranking");
    assert_eq!(ranking.explain(0)[0].fault, None);
    assert_eq!(ranking.explain(1)[1].fault, Some(Fault::Future));
    // The ends of time.
    for nanos in [i64::MIN, i64::MAX] {
        let end = Reading { value: 1.0, at: Timestamp::from_nanos(nanos), samples: 1 };
        inputs.set(0, 0, end);
        assert!(ranker.rank(at(0.0), &["a", "b"], &inputs).is_ok());
        assert!(ranker.rank(Timestamp::from_nanos(nanos), &["a", "b"], &inputs).is_ok());
    }
}

#[test]
fn a_report_that_two_peers_contradict_is_replaced_and_remembered() {
    let mut ranker = Ranker::new(profile(Method::Equal), 1).expect("a profile");
    let mut lying = inputs(&[[0.001, 2e-4, 1.0], GOOD, GOOD], 0.0);
    lying.add_peer(0, 1, reading(0.05, 0.0));
    let ranking = ranker.rank(at(0.0), &NAMES, &lying).expect("a ranking");
    assert_eq!(order(&ranking, &NAMES)[0], "a", "one peer alone could be the liar");
    lying.add_peer(0, 1, reading(0.06, 0.0));
    let ranking = ranker.rank(at(1.0), &NAMES, &lying).expect("a ranking");
    assert_eq!(order(&ranking, &NAMES)[2], "a");
    assert_eq!(ranking.explain(0)[1].fault, Some(Fault::Contradicted));
    assert_eq!(ranking.explain(0)[1].value, Some(0.06));
    let last = &ranking.entries()[2];
    assert_eq!((last.candidate, last.state), (0, State::Contradicted));
    // The peers are away: the discredit stays for a while, and fades.
    let best = inputs(&[[0.001, 2e-4, 1.0], GOOD, GOOD], 2.0);
    let ranking = ranker.rank(at(2.0), &NAMES, &best).expect("a ranking");
    let discredit = |r: &skopos_steer::rank::Ranking| {
        r.explain(0).iter().find(|c| c.name == "contradicted").map_or(0.0, |c| c.part)
    };
    assert!(discredit(&ranking) > 0.3);
    let later = inputs(&[[0.001, 2e-4, 1.0], GOOD, GOOD], 900.0);
    let ranking = ranker.rank(at(900.0), &NAMES, &later).expect("a ranking");
    assert!(discredit(&ranking) < 0.001);
}

#[test]
fn peers_that_agree_within_reason_change_nothing() {
    let mut ranker = Ranker::new(profile(Method::Equal), 1).expect("a profile");
    let mut inputs = inputs(&[GOOD, GOOD], 0.0);
    for value in [8e-4, 1.5e-3, 2e-3] {
        inputs.add_peer(0, 1, reading(value, 0.0));
    }
    // Peers with nonsense or old values do not count.
    inputs.add_peer(1, 1, reading(f64::NAN, 0.0));
    inputs.add_peer(1, 1, reading(9.0, -100.0));
    inputs.add_peer(1, 1, reading(9.0, 0.0));
    let ranking = ranker.rank(at(0.0), &["a", "b"], &inputs).expect("a ranking");
    assert!(ranking.entries().iter().all(|e| e.state == State::Known));
}

#[test]
fn values_out_of_the_table_are_counted() {
    let mut inputs = Inputs::new(1, 3);
    inputs.set(1, 0, reading(1.0, 0.0));
    inputs.add_peer(0, 3, reading(1.0, 0.0));
    for _ in 0..9 {
        inputs.add_peer(0, 0, reading(1.0, 0.0));
    }
    assert_eq!(inputs.refused(), 3);
}

#[test]
fn a_profile_that_is_not_valid_is_refused_with_a_hint() {
    let refused = |change: fn(&mut Profile)| {
        let mut profile = profile(Method::Given);
        change(&mut profile);
        let error = Ranker::new(profile, 1).err().expect("an error");
        assert!(error.hint().is_some(), "{error}");
        error.to_string()
    };
    let zero = refused(|p| p.metrics.iter_mut().for_each(|m| m.weight = 0.0));
    assert_eq!(zero, "the weights of the profile `test` sum to zero");
    let nan = refused(|p| p.metrics[0].weight = f64::NAN);
    assert_eq!(nan, "the profile `test`: `read_seconds: weight` is NaN; it must be 0 to 1000000");
    for text in [
        refused(|p| p.metrics[0].weight = -1.0),
        refused(|p| p.metrics[1].floor = 0.0),
        refused(|p| p.metrics[1].max_age_seconds = f64::INFINITY),
        refused(|p| p.hysteresis = -0.1),
        refused(|p| p.sharpness = 9.0),
        refused(|p| p.exploration = 0.6),
    ] {
        assert!(text.contains("it must be"), "{text}");
    }
    assert!(refused(|p| p.metrics.clear()).contains("0 metrics"));
    assert!(refused(|p| p.metrics[0].name = "queue".into()).contains("two metrics `queue`"));
    assert!(refused(|p| p.metrics = vec![Metric::new("m", 1.0); 33]).contains("33 metrics"));
    let none = Profile::new("test", Method::Latency, vec![Metric::new("queue", 1.0)]);
    assert!(matches!(none.check(), Err(Error::WeightsZero(_))));
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    let mut ranker = Ranker::new(profile(Method::Learned), 1).expect("a profile");
    let many = vec!["a"; MAX_CANDIDATES + 1];
    let error = ranker.rank(at(0.0), &many, &Inputs::new(0, 3)).err();
    assert!(matches!(error, Some(Error::Candidates(_))));
    let error = ranker.rank(at(0.0), &NAMES, &Inputs::new(2, 3)).err();
    assert!(matches!(error, Some(Error::Inputs { .. })));
    let error = ranker.rank(at(0.0), &["a", "a"], &inputs(&[GOOD, GOOD], 0.0)).err();
    assert!(matches!(error, Some(Error::CandidateTwice(name)) if name == "a"));
    rank(&mut ranker, &NAMES, &[GOOD; 3], 1.0);
    let outcome = Outcome { candidate: "a", seconds: 0.001, failed: false };
    assert!(ranker.learn(&outcome).is_ok());
    let unknown = Outcome { candidate: "z", ..outcome };
    assert!(matches!(ranker.learn(&unknown), Err(Error::UnknownCandidate(_))));
    for seconds in [f64::NAN, f64::INFINITY, -0.001, 1_000_000.5] {
        let odd = Outcome { seconds, ..outcome };
        assert!(matches!(ranker.learn(&odd), Err(Error::Cost { .. })), "{seconds}");
    }
    rank(&mut ranker, &["b"], &[GOOD], 2.0);
    assert!(matches!(ranker.learn(&outcome), Err(Error::UnknownCandidate(_))));
    assert!(at(0.0).since(at(1.0)) < SECOND);
}
