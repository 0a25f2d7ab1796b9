//! Policies of placement, prefetching and replication: one suite for both, then the rules of the informed one.

use std::time::Duration;

use proptest::prelude::*;
use skopos_steer::place::{
    Aged, Informed, MAX_CAPACITY_AGE, MAX_LOAD_AGE, Own, Policy, Request, RoundRobin, Telemetry,
    Tier, sets,
};

use crate::place::{fresh, known, policies, unknown};

/// The tiers of `count` placements of 10 bytes.
fn placed(policy: &mut dyn Policy, tiers: &[Tier], count: usize) -> Vec<usize> {
    (0..count).filter_map(|_| policy.place(Request::new(10), tiers)).collect()
}

#[test]
fn equal_tiers_have_equal_shares() {
    for (name, mut policy) in policies() {
        let tiers = [known(900, 1e6), known(900, 1e6), known(900, 1e6), known(900, 1e5)];
        assert_eq!(placed(&mut *policy, &tiers, 6), [0, 1, 2, 0, 1, 2], "{name}");
        let sets = [vec![0, 1], vec![0, 2], vec![1, 2]];
        let chosen = |_| policy.replicate(Request::new(10), &sets, &tiers);
        assert_eq!((0..4).filter_map(chosen).collect::<Vec<_>>(), [0, 1, 2, 0], "{name}");
        let brought = |_| policy.prefetch(10, 3, &tiers);
        assert_eq!((0..4).filter_map(brought).collect::<Vec<_>>(), [0, 1, 2, 0], "{name}");
    }
}

#[test]
fn without_telemetry_the_informed_policy_is_the_baseline() {
    let tiers = [unknown(500), unknown(500), unknown(500), unknown(900)];
    let (mut baseline, mut informed) = (RoundRobin::new(), Informed::new());
    assert_eq!(placed(&mut informed, &tiers, 9), placed(&mut baseline, &tiers, 9));
    let sets = sets(&[0, 1, 2, 3], 2);
    for _ in 0..9 {
        let request = Request::new(10);
        let ours = informed.replicate(request, &sets, &tiers);
        assert_eq!(ours, baseline.replicate(request, &sets, &tiers));
        assert_eq!(informed.prefetch(10, 3, &tiers), baseline.prefetch(10, 3, &tiers));
        assert_eq!(informed.flush(10, 0, &tiers), baseline.flush(10, 0, &tiers));
        assert_eq!(informed.read(10, &[1, 3], &tiers), Some(1));
    }
}

#[test]
fn an_unknown_tier_has_its_turns_and_no_more() {
    let tiers = [known(900, 1e9), unknown(900), known(900, 1e6), known(900, 1e5)];
    let chosen = placed(&mut Informed::new(), &tiers, 9);
    assert_eq!(chosen.iter().filter(|at| **at == 1).count(), 3, "{chosen:?}");
    assert_eq!(chosen.iter().filter(|at| **at == 0).count(), 6, "{chosen:?}");
    let full = [known(900, 1e9), unknown(0), known(900, 1e6), known(900, 1e5)];
    assert_eq!(placed(&mut Informed::new(), &full, 4), [0, 0, 0, 0]);
}

#[test]
fn files_go_where_there_is_room() {
    let place = |tiers: &[Tier]| Informed::new().place(Request::new(10), tiers);
    assert_eq!(place(&[known(5, 1e9), known(500, 1e6), known(900, 1e5)]), Some(1));
    assert_eq!(place(&[known(5, 1e9), known(5, 1e6), known(900, 1e5)]), Some(2));
    // Others have filled the first tier: its own count does not show it.
    let mut filled = known(500, 1e9);
    filled.telemetry.remaining_bytes = fresh(3.0);
    assert_eq!(place(&[filled, known(500, 1e6), known(900, 1e5)]), Some(1));
    // Telemetry has not seen the last own bytes.
    filled.telemetry.remaining_bytes = fresh(100.0);
    filled.own.unseen_bytes = 95;
    assert_eq!(place(&[filled, known(500, 1e6), known(900, 1e5)]), Some(1));
    // An old capacity does not count; the own count does.
    filled.telemetry.remaining_bytes =
        Some(Aged { value: 3.0, age: MAX_CAPACITY_AGE + Duration::from_secs(1) });
    assert_eq!(place(&[filled, known(500, 1e6), known(900, 1e5)]), Some(0));
    // No tier has room: the baseline makes it.
    assert_eq!(place(&[known(5, 1e9), known(5, 1e6), known(5, 1e5)]), Some(0));
}

#[test]
fn load_of_others_moves_files_and_own_load_does_not() {
    let place = |first: Tier| {
        Informed::new().place(Request::new(10), &[first, known(900, 6e5), known(900, 1e5)])
    };
    let mut loaded = known(900, 1e6);
    loaded.telemetry.interference_ratio = fresh(0.8);
    loaded.telemetry.busy_ratio = fresh(0.9);
    assert_eq!(place(loaded), Some(1));
    let own = Own { written_bytes_per_second: 0.8e6, busy_ratio: 0.9, ..loaded.own };
    assert_eq!(place(Tier { own, ..loaded }), Some(0));
    // Seeks keep a device busy that moves few bytes.
    loaded.telemetry.interference_ratio = fresh(0.01);
    assert_eq!(place(loaded), Some(1));
    // An old load counts as the mean of the others, which are idle.
    let old = |value| Some(Aged { value, age: MAX_LOAD_AGE + Duration::from_secs(1) });
    loaded.telemetry.interference_ratio = old(0.8);
    loaded.telemetry.busy_ratio = old(0.9);
    assert_eq!(place(loaded), Some(0));
    // Bytes in flight are a queue.
    let queued = Tier { own: Own { queued_bytes: 100, ..loaded.own }, ..known(900, 1e6) };
    assert_eq!(place(queued), Some(1));
}

#[test]
fn writes_that_have_not_begun_count_for_writes_and_not_for_reads() {
    let mut chosen = known(900, 1e6);
    chosen.own.chosen_bytes = 100;
    let tiers = [chosen, known(900, 6e5), known(900, 1e5)];
    assert_eq!(Informed::new().place(Request::new(10), &tiers), Some(1));
    assert_eq!(Informed::new().read(10, &[0, 1], &tiers), Some(0));
}

#[test]
fn sick_devices_are_used_last_and_important_files_avoid_weak_ones() {
    let mut sick = known(900, 1e9);
    sick.telemetry.health_ratio = fresh(0.99);
    let tiers = [sick, known(500, 1e6), known(900, 1e5)];
    assert_eq!(Informed::new().place(Request::new(10), &tiers), Some(1));
    let tiers = [sick, known(5, 1e6), known(5, 1e5)];
    assert_eq!(Informed::new().place(Request::new(10), &tiers), Some(0));
    let mut mirror = known(900, 1e5);
    mirror.telemetry.fault_tolerance = fresh(2.0);
    let tiers = [known(900, 1e9), mirror, known(900, 1e5)];
    let important = Request { bytes: 10, fault_tolerance: 2.0 };
    assert_eq!(Informed::new().place(important, &tiers), Some(1));
    assert_eq!(Informed::new().place(Request::new(10), &tiers), Some(0));
}

#[test]
fn replicas_go_to_sets_with_room_and_little_load() {
    let sets = sets(&[0, 1, 2], 2);
    assert_eq!(sets, [[0, 1], [0, 2], [1, 2]]);
    let replicate = |tiers: &[Tier]| Informed::new().replicate(Request::new(10), &sets, tiers);
    assert_eq!(replicate(&[known(900, 1e9), known(900, 1e8), known(900, 1e6)]), Some(0));
    assert_eq!(replicate(&[known(900, 1e9), known(5, 1e8), known(900, 1e6)]), Some(1));
    let mut loaded = known(900, 1e8);
    loaded.telemetry.busy_ratio = fresh(0.9);
    assert_eq!(replicate(&[known(900, 1e9), loaded, known(900, 5e7)]), Some(1));
}

#[test]
fn sets_never_have_one_domain_twice() {
    assert_eq!(sets(&[0, 0, 2], 2), [[0, 2], [1, 2]]);
    assert_eq!(sets(&[0, 1, 2, 3], 2), [[0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3]]);
    assert!(sets(&[0, 0, 0], 2).is_empty());
    assert!(
        sets(&[0, 1], 0).is_empty() && sets(&[0, 1], 5).is_empty() && sets(&[0; 17], 1).is_empty()
    );
}

#[test]
fn a_copy_is_brought_up_only_where_it_is_read_faster() {
    let mut loaded = known(900, 1.5e5);
    loaded.telemetry.busy_ratio = fresh(0.95);
    assert_eq!(Informed::new().prefetch(10, 1, &[loaded, known(900, 1e5)]), None);
    // Others leave half of a device to reads.
    loaded.telemetry.read_bytes_per_second = fresh(3e5);
    assert_eq!(Informed::new().prefetch(10, 1, &[loaded, known(900, 1e5)]), Some(0));
    // The copies that are there already choose among tiers. They do not make a tier slower than the source.
    loaded.own.awaited_bytes = 1000;
    assert_eq!(Informed::new().prefetch(10, 1, &[loaded, known(900, 1e5)]), Some(0));
    assert_eq!(Informed::new().prefetch(10, 1, &[known(900, 1e6), known(900, 1e5)]), Some(0));
    // Copies that no reader wants make room; others do not.
    let mut full = known(0, 1e6);
    assert_eq!(Informed::new().prefetch(10, 1, &[full, known(900, 1e5)]), None);
    full.own.evictable_bytes = 10;
    assert_eq!(Informed::new().prefetch(10, 1, &[full, known(900, 1e5)]), Some(0));
}

/// Brings `count` files of 10 bytes up from the last tier, of which none is read meanwhile. Before each of them, `poll` sets the
/// telemetry of the tiers. Returns the number of files on each other tier.
fn brought_up(tiers: &[Tier], count: usize, poll: impl Fn(usize, &mut [Tier])) -> Vec<usize> {
    let (mut policy, mut tiers, from) = (Informed::new(), tiers.to_vec(), tiers.len() - 1);
    let mut counts = vec![0; from];
    for n in 0..count {
        poll(n, &mut tiers);
        let at = policy.prefetch(10, from, &tiers).expect("a tier");
        counts[at] += 1;
        tiers[at].own.awaited_bytes += 10;
    }
    counts
}

#[test]
fn copies_are_spread_over_tiers_by_their_speed() {
    let source = known(900, 1e4);
    let mut noisy = known(900, 1e6);
    // A poll counts a request that ended at the edge of its window.
    noisy.telemetry.interference_ratio = fresh(0.1);
    let equal = [noisy, known(900, 1e6), known(900, 1e6), source];
    assert_eq!(brought_up(&equal, 90, |_, _| {}), [30, 30, 30]);
    let counts = brought_up(&[known(900, 3e6), known(900, 1e6), source], 40, |_, _| {});
    assert!((26..=32).contains(&counts[0]), "{counts:?}");
    // Transfers in flight have ended when the copy is read.
    let queued = Tier { own: Own { queued_bytes: 100, ..source.own }, ..known(900, 1e6) };
    assert_eq!(Informed::new().prefetch(10, 2, &[queued, known(900, 1e6), source]), Some(0));
}

#[test]
fn copies_avoid_a_load_by_its_mean_and_own_transfers_are_no_load() {
    let tiers = [known(900, 1e6), known(900, 1e6), known(900, 1e4)];
    let mut always = tiers;
    always[0].telemetry.busy_ratio = fresh(0.95);
    // Others leave half of it, so it gets a third of the files.
    let counts = brought_up(&always, 40, |_, _| {});
    assert!((12..=16).contains(&counts[0]), "{counts:?}");
    let bursts = |poll: usize, tiers: &mut [Tier]| {
        let busy = if poll % 10 < 5 { 0.95 } else { 0.0 };
        tiers[0].telemetry.busy_ratio = fresh(busy);
        tiers.iter_mut().for_each(|t| t.own.polled_at = Duration::from_millis(100 * poll as u64));
    };
    let counts = brought_up(&tiers, 200, bursts);
    assert!((85..100).contains(&counts[0]), "{counts:?}");
    // The same load, when the copies themselves are all of it.
    always[0].telemetry.interference_ratio = fresh(0.8);
    always[0].own = Own { read_bytes_per_second: 0.5e6, busy_ratio: 0.95, ..always[0].own };
    always[0].own.written_bytes_per_second = 0.3e6;
    assert_eq!(brought_up(&always, 40, |_, _| {}), [20, 20]);
}

#[test]
fn one_poll_of_load_does_not_move_copies() {
    let tiers = [known(900, 1e6), known(900, 7.2e5), known(900, 1e4)];
    let mut policy = Informed::new();
    let mut polled = |poll: u64, busy: f64| {
        let mut tiers = tiers;
        tiers[0].telemetry.busy_ratio = fresh(busy);
        tiers.iter_mut().for_each(|t| t.own.polled_at = Duration::from_millis(100 * poll));
        policy.prefetch(10, 2, &tiers)
    };
    let idle = (0..10).filter(|poll| polled(*poll, 0.0) == Some(0)).count();
    assert_eq!((idle, polled(10, 0.95)), (10, Some(0)));
    // A load that lasts does.
    let late: Vec<Option<usize>> = (11..40).map(|poll| polled(poll, 0.95)).collect();
    assert_eq!(late.last(), Some(&Some(1)));
}

#[test]
fn a_copy_on_a_loaded_tier_is_read_before_a_slow_source() {
    let mut loaded = known(900, 1e6);
    loaded.telemetry.busy_ratio = fresh(0.95);
    assert_eq!(Informed::new().read(10, &[0, 1], &[loaded, known(900, 1e5)]), Some(0));
    // A source of more than half of its speed is better.
    assert_eq!(Informed::new().read(10, &[0, 1], &[loaded, known(900, 6e5)]), Some(1));
}

#[test]
fn values_that_cannot_be_are_refused_and_counted() {
    let mut policy = Informed::new();
    let mut odd = known(900, 1e9);
    odd.telemetry.write_bytes_per_second = fresh(f64::NAN);
    odd.telemetry.busy_ratio = fresh(-1.0);
    odd.telemetry.remaining_bytes = fresh(f64::INFINITY);
    assert!(policy.place(Request::new(10), &[odd, known(900, 1e6)]).is_some());
    assert_eq!(policy.refused(), 3);
}

fn any_value() -> impl Strategy<Value = Option<Aged>> {
    let number = prop_oneof![
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(-1.0),
        Just(0.0),
        0.0..2.0f64,
        0.0..2e9f64
    ];
    proptest::option::of(
        (number, 0..100_000u64)
            .prop_map(|(value, seconds)| Aged { value, age: Duration::from_secs(seconds / 100) }),
    )
}

fn any_tier() -> impl Strategy<Value = Tier> {
    let own = (0..1000u64, 0..1000u64, 0..1000u64, any::<bool>(), 0..1000u64);
    let values = proptest::array::uniform8(any_value());
    (own, values).prop_map(|((capacity, room, evictable, is_failed, queued), values)| Tier {
        own: Own {
            capacity_bytes: capacity,
            room_bytes: room.min(capacity),
            evictable_bytes: evictable.min(capacity - room.min(capacity)),
            queued_bytes: queued,
            is_failed,
            ..Own::default()
        },
        telemetry: Telemetry {
            remaining_bytes: values[0],
            read_bytes_per_second: values[1],
            write_bytes_per_second: values[2],
            access_seconds: values[3],
            interference_ratio: values[4],
            busy_ratio: values[5],
            health_ratio: values[6],
            fault_tolerance: values[7],
            window: Duration::from_millis(100),
        },
    })
}

proptest! {
    #[test]
    fn no_policy_chooses_a_failed_or_missing_tier(
        tiers in proptest::collection::vec(any_tier(), 0..6),
        bytes in 0..1000u64,
        from in 0..6usize,
    ) {
        let sets = sets(&[0, 1, 2, 3, 4, 5], 2);
        let from = from.min(tiers.len().saturating_sub(1));
        for (name, mut policy) in policies() {
            for _ in 0..4 {
                let is_good = |at: usize| tiers.get(at).is_some_and(|tier| !tier.own.is_failed);
                let placed = policy.place(Request::new(bytes), &tiers);
                prop_assert!(placed.is_none_or(is_good), "{name}: {placed:?}");
                let flushed = policy.flush(bytes, from, &tiers);
                let fits = |at: usize| is_good(at) && at > from && tiers[at].own.room_bytes >= bytes;
                prop_assert!(flushed.is_none_or(fits), "{name}: {flushed:?}");
                let brought = policy.prefetch(bytes, from, &tiers);
                prop_assert!(brought.is_none_or(|at| is_good(at) && at < from), "{name}: {brought:?}");
                let set = policy.replicate(Request::new(bytes), &sets, &tiers);
                prop_assert!(set.is_none_or(|at| sets[at].iter().all(|at| is_good(*at))), "{name}");
                let holders: Vec<usize> = (0..tiers.len()).collect();
                let read = policy.read(bytes, &holders, &tiers);
                prop_assert!(read.is_none_or(is_good), "{name}: {read:?}");
                let any_good = (0..tiers.len()).any(is_good);
                prop_assert_eq!(read.is_some(), any_good, "{}", name);
            }
        }
    }

    #[test]
    fn a_file_never_waits_while_a_healthy_tier_is_known_to_have_room(
        tiers in proptest::collection::vec(any_tier(), 1..6),
        bytes in 0..1000u64,
    ) {
        let has_room = |tier: &Tier| {
            let remaining = tier.telemetry.remaining_bytes.filter(|r| {
                r.value.is_finite() && r.value >= 0.0 && r.age <= MAX_CAPACITY_AGE
            });
            let seen = remaining.is_none_or(|r| r.value as u64 >= bytes);
            !tier.own.is_failed && tier.own.room_bytes >= bytes && seen
        };
        let chosen = Informed::new().place(Request::new(bytes), &tiers);
        if tiers.iter().any(has_room) {
            prop_assert!(chosen.is_some_and(|at| has_room(&tiers[at])), "{chosen:?}");
        }
    }
}
