//! The chosen allocation against all others.

use proptest::collection::vec;
use proptest::prelude::*;
use skopos_store::estimate::{
    Evidence, HALF_LIFE, Minimize, Record, estimate, estimate_from, judge, judge_from, waste,
};

/// Mean waste, task by task, as the paper defines it.
fn mean_waste(records: &[Record], allocation: f64, maximum: f64) -> f64 {
    records.iter().map(|r| waste(r, allocation, maximum)).sum::<f64>() / records.len() as f64
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let value = prop_oneof![(1..20i32).prop_map(f64::from), 1.0..1e6f64];
    let record = (value, 0.01..1e3f64).prop_map(|(value, seconds)| Record { value, seconds });
    vec(record, 1..120)
}

fn risks() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), Just(0.5), Just(0.0), 0.0..1.0f64]
}

/// Share of the records that need more.
fn exceed(records: &[Record], allocation: f64) -> f64 {
    records.iter().filter(|r| r.value > allocation).count() as f64 / records.len() as f64
}

proptest! {
    #[test]
    fn no_other_allocation_wastes_less(records in records(), others in vec(0.0..1.2f64, 100), risk in risks()) {
        let found = estimate(&records, Minimize::Waste, risk).expect("records");
        prop_assert!(found.risk <= risk);
        let ours = mean_waste(&records, found.allocation, found.maximum);
        prop_assert!((found.waste - ours).abs() <= 1e-9 * ours.max(1.0));
        let anywhere = others.iter().map(|share| share * found.maximum);
        for other in records.iter().map(|r| r.value).chain(anywhere) {
            if exceed(&records, other) > risk {
                continue;
            }
            let theirs = mean_waste(&records, other, found.maximum);
            prop_assert!(ours <= theirs * (1.0 + 1e-9) + 1e-9, "{} at {}, {} at {}", ours,
                found.allocation, theirs, other);
        }
    }

    #[test]
    fn the_maximum_is_never_too_little(records in records()) {
        let found = estimate(&records, Minimize::Retries, 1.0).expect("records");
        prop_assert_eq!((found.risk, found.allocation), (0.0, found.maximum));
        prop_assert!(found.risk_bound > 0.0, "finitely many records leave a risk");
    }
}

#[test]
fn an_example_by_hand() {
    // 9 tasks use 1 for 1 s, and a tenth task uses 10. With 1 first, 9 waste nothing and the tenth wastes
    // 1; with 10 first, 9 waste 9 each.
    let mut records = vec![Record { value: 1.0, seconds: 1.0 }; 9];
    records.push(Record { value: 10.0, seconds: 1.0 });
    let found = estimate(&records, Minimize::Waste, 1.0).expect("records");
    assert_eq!((found.allocation, found.maximum, found.count), (1.0, 10.0, 10));
    assert!((found.waste - 0.1).abs() < 1e-12 && (found.risk - 0.1).abs() < 1e-12, "{found:?}");
    assert!((judge(&records, 10.0, 10.0).waste - 8.1).abs() < 1e-12);
    // A task that runs a hundred times as long is too expensive to run twice.
    records[9].seconds = 100.0;
    assert_eq!(estimate(&records, Minimize::Waste, 1.0).expect("records").allocation, 10.0);
}

#[test]
fn invalid_records_are_ignored() {
    let of = |value, seconds| Record { value, seconds };
    let none = [of(f64::NAN, 1.0), of(1.0, 0.0), of(-1.0, 1.0), of(1.0, f64::INFINITY)];
    for minimize in [Minimize::Waste, Minimize::Retries] {
        assert_eq!(estimate(&[], minimize, 0.5), None);
        assert_eq!(estimate(&none, minimize, 0.5), None);
        let zeros = estimate(&[of(0.0, 1.0); 3], minimize, 0.5).expect("records");
        assert_eq!((zeros.allocation, zeros.waste), (0.0, 0.0), "{minimize:?}");
    }
}

#[test]
fn a_limit_is_slightly_above_the_allocation() {
    use skopos_store::estimate::rounded;
    for (allocation, expected) in
        [(0.0, 0.0), (1.0, 1.0), (1.001, 1.03125), (33.0, 33.0), (1e9, 1006632960.0)]
    {
        assert_eq!(rounded(allocation), expected);
    }
    for n in 1..10_000 {
        let a = 1.37 * f64::from(n);
        assert!(
            rounded(a) >= a && rounded(a) <= a * 1.032 && rounded(rounded(a)) == rounded(a),
            "{a}"
        );
    }
}

fn evidence(value: f64, is_censored: bool) -> Evidence {
    Evidence { record: Record { value, seconds: 1.0 }, is_censored }
}

#[test]
fn an_attempt_that_a_limit_ended_needs_more() {
    let chosen = |all: &[Evidence]| estimate_from(all, Minimize::Waste, 0.1);
    let mut all = vec![evidence(100.0, false); 10];
    let before = chosen(&all).expect("records");
    assert_eq!((before.allocation, before.maximum), (100.0, 100.0));
    // Each attempt with 100 is ended: what the tasks need is not in the records of those that were not.
    all.extend(vec![evidence(100.0, true); 5]);
    let after = chosen(&all).expect("records");
    assert_eq!((after.allocation, after.maximum, after.count), (200.0, 200.0, 10));
    // One of them is known by now to need 150.
    all.push(evidence(150.0, false));
    let known = chosen(&all).expect("records");
    assert_eq!((known.allocation, known.maximum), (150.0, 150.0));
    assert_eq!(chosen(&[evidence(1.0, true); 20]), None, "no task ended by itself");
}

#[test]
fn one_allocation_has_one_cost_by_one_evidence() {
    let mut all: Vec<Evidence> = (1..40).map(|n| evidence(f64::from(n * n), n % 7 == 0)).collect();
    let found = estimate_from(&all, Minimize::Retries, 1.0).expect("records");
    assert_eq!(judge_from(&all, found.allocation, found.maximum), Some(found));
    all.retain(|one| one.is_censored);
    assert_eq!(judge_from(&all, 1.0, 1.0), None, "no task ended by itself");
}

#[test]
fn old_tasks_fade() {
    let half_lives = 8 * HALF_LIFE as usize;
    let mut all = vec![evidence(1000.0, false); 100];
    all.extend(vec![evidence(10.0, false); half_lives]);
    let found = estimate_from(&all, Minimize::Waste, 0.1).expect("records");
    assert_eq!((found.allocation, found.maximum), (10.0, 1000.0));
    assert!(found.risk < 0.01, "{found:?}");
    all.reverse();
    let found = estimate_from(&all, Minimize::Waste, 0.1).expect("records");
    assert_eq!(found.allocation, 1000.0, "the program needs more by now");
}

#[test]
fn a_task_of_long_ago_still_shows_how_much_more_an_ended_attempt_may_need() {
    // So many half-lives make a number of 64 bits zero.
    let half_lives = 1200 * HALF_LIFE as usize;
    let mut all = vec![evidence(700.0, false)];
    all.extend(vec![evidence(10.0, false); half_lives]);
    all.extend(vec![evidence(500.0, true); 20]);
    let found = estimate_from(&all, Minimize::Waste, 0.1).expect("records");
    assert_eq!((found.allocation, found.maximum), (700.0, 700.0));
    assert!(found.waste.is_finite() && found.risk_bound.is_finite(), "{found:?}");
}
