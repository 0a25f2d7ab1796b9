//! The choice of clients, alone and in the simulator.

use std::time::Duration;

use skopos_model::Timestamp;
use skopos_steer::rank::{Chooser, Published, Report, Settings};

use skopos_steer::simulate::{MS, Peer, Scenario, Shape, simulate};

use crate::table::at;

fn published(cost: f64) -> Published {
    Published { cost, queue: Some(0.0) }
}

fn counts(chooser: &mut Chooser, now: Timestamp, rounds: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for _ in 0..rounds {
        let chosen = chooser.pick(now, &[0, 1, 2]).expect("a candidate");
        counts[chosen] += 1;
        chooser.finish(now, chosen, false, Report::default());
    }
    counts
}

#[test]
fn odd_calls_choose_nothing_or_are_ignored() {
    let mut chooser = Chooser::new(3, Settings::default(), 1);
    assert_eq!(chooser.pick(at(0.0), &[]), None);
    assert_eq!(chooser.pick(at(0.0), &[7, 8]), None);
    assert_eq!(chooser.pick(at(0.0), &[7, 2]), Some(2));
    chooser.finish(at(0.0), 9, true, Report::default());
    for cost in [f64::NAN, f64::INFINITY, -1.0] {
        chooser.publish(at(0.0), 1, Published { cost, queue: Some(cost) });
        let report = Report { queue: Some(cost), cost: Some(cost) };
        chooser.finish(at(0.0), 1, false, report);
    }
    assert_eq!(chooser.outstanding(2), 1);
    chooser.finish(at(0.0), 2, false, Report::default());
    assert!(counts(&mut chooser, at(0.0), 300).iter().all(|c| *c > 10));
}

#[test]
fn a_failed_candidate_is_avoided_for_longer_each_time_and_found_again() {
    let mut chooser = Chooser::new(2, Settings::default(), 1);
    let step = Duration::from_millis(1);
    let mut now = at(0.0);
    let mut failures = Vec::new();
    for _ in 0..3000 {
        let chosen = chooser.pick(now, &[0, 1]).expect("a candidate");
        if chosen == 0 {
            failures.push(now);
        }
        chooser.finish(now, chosen, chosen == 0, Report::default());
        now = now.saturating_add(step);
    }
    assert!((3..10).contains(&failures.len()), "{}", failures.len());
    let later = now.saturating_add(Duration::from_secs(30));
    assert!(counts(&mut chooser, later, 100)[0] > 10);
}

#[test]
fn if_every_candidate_failed_one_is_chosen_still() {
    let mut chooser = Chooser::new(1, Settings::default(), 1);
    chooser.pick(at(0.0), &[0]);
    chooser.finish(at(0.0), 0, true, Report::default());
    assert_eq!(chooser.pick(at(0.0), &[0]), Some(0));
}

#[test]
fn a_candidate_without_telemetry_or_answers_is_withdrawn_and_found_again() {
    let mut chooser = Chooser::new(3, Settings::default(), 1);
    for candidate in [0, 1] {
        chooser.publish(at(0.0), candidate, published(1.0));
    }
    // Candidate 2 never published, so that its silence says nothing.
    chooser.publish(at(1.0), 1, published(1.0));
    let counts_then = counts(&mut chooser, at(1.0), 300);
    assert_eq!(counts_then[0], 0, "{counts_then:?}");
    assert!(counts_then[1] > 50 && counts_then[2] > 50, "{counts_then:?}");
    // All silent: they are alike, and one is chosen still.
    let mut silent = chooser.clone();
    assert!(silent.pick(at(9.0), &[0, 1]).is_some());
    // An answer is as good as telemetry.
    chooser.finish(at(2.0), 0, false, Report::default());
    chooser.publish(at(2.0), 1, published(1.0));
    let counts_later = counts(&mut chooser, at(2.0), 300);
    assert!(counts_later.iter().all(|count| *count > 50), "{counts_later:?}");
}

#[test]
fn a_candidate_eighty_times_as_slow_has_few_requests() {
    let mut chooser = Chooser::new(3, Settings::default(), 1);
    chooser.publish(at(0.0), 0, published(0.0001));
    chooser.publish(at(0.0), 1, published(0.0001));
    chooser.publish(at(0.0), 2, published(0.008));
    let counts = counts(&mut chooser, at(0.0), 10_000);
    assert!(counts[2] < 40, "{counts:?}");
    assert!(counts[0] > 3000 && counts[1] > 3000, "{counts:?}");
}

#[test]
fn many_clients_with_one_ranking_do_not_choose_one_candidate() {
    let mut first = [0_u32; 3];
    for seed in 0..300_u64 {
        let mut chooser = Chooser::new(3, Settings::default(), seed);
        for (candidate, cost) in [1.0, 1.1, 1.2].into_iter().enumerate() {
            chooser.publish(at(0.0), candidate, published(cost));
        }
        first[chooser.pick(at(0.0), &[0, 1, 2]).expect("a candidate")] += 1;
    }
    assert!(first.iter().all(|count| *count > 50), "{first:?}");
}

#[test]
fn in_the_simulator_published_ranks_beat_taking_turns_and_the_oracle_beats_all() {
    let mut shape = Shape::new(0.6, Scenario::Mixed);
    (shape.servers, shape.clients, shape.length) = (20, 10, 1500 * MS);
    let settings = Settings { clients: 10.0, ..Settings::default() };
    let p99 = |peer| simulate(&shape, peer, 11).quantile(0.99);
    let ours = p99(Peer::Skopos(settings));
    assert!(ours < p99(Peer::RoundRobin) / 2, "{ours}");
    assert!(ours < p99(Peer::RandomOfTwo), "{ours}");
    assert!(p99(Peer::Oracle) < ours);
}

#[test]
fn a_failed_server_costs_timeouts_and_no_request() {
    let mut shape = Shape::new(0.4, Scenario::Failures);
    (shape.servers, shape.clients, shape.length) = (20, 10, 2500 * MS);
    for peer in [Peer::C3, Peer::Prequal, Peer::SkoposReports(Settings::default())] {
        let outcome = simulate(&shape, peer, 12);
        assert!(outcome.timeouts > 0, "{peer:?}");
        let ended = outcome.latencies.len() as u64;
        assert!(outcome.unfinished < ended / 50, "{peer:?}: {} open", outcome.unfinished);
        assert_eq!(outcome.latencies, simulate(&shape, peer, 12).latencies, "one seed, one run");
    }
}
