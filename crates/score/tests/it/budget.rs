//! The overhead budget keeps its limit and stretches the sensors that lose the least.

use std::time::Duration;

use proptest::prelude::*;
use skopos_score::budget::{Budget, Demand, Grant, MAX_STRETCH, Plan, RELEASE_RATIO};

const SECOND: Duration = Duration::from_secs(1);

/// A sensor whose poll costs `micros` microseconds and that is wanted once a second.
fn costing(micros: u64) -> Demand {
    Demand {
        cost: Duration::from_micros(micros),
        wanted: SECOND,
        longest: 300 * SECOND,
        reads_per_second: 0.0,
        waited_for: false,
    }
}

fn plan(budget: &mut Budget, fixed: f64, sensors: &[Demand]) -> (Plan, Vec<Grant>) {
    let mut grants = Vec::new();
    let plan = budget.plan(fixed, sensors, &mut grants);
    (plan, grants)
}

fn fresh(limit: f64, fixed: f64, sensors: &[Demand]) -> (Plan, Vec<Grant>) {
    plan(&mut Budget::new(limit).expect("a limit"), fixed, sensors)
}

fn check(limit: f64, sensors: &[Demand], stretches: &[f64]) {
    let (plan, grants) = fresh(limit, 0.0, sensors);
    let found: Vec<f64> = grants.iter().map(|g| g.stretch).collect();
    assert_eq!(found, stretches, "{plan:?}");
}

#[test]
fn the_most_expensive_and_least_read_sensor_is_stretched_first() {
    let read = |micros, reads_per_second| Demand { reads_per_second, ..costing(micros) };
    let waited = |micros| Demand { waited_for: true, ..costing(micros) };
    let every = |micros, seconds| Demand { wanted: seconds * SECOND, ..costing(micros) };
    let up_to =
        |micros, millis| Demand { longest: Duration::from_millis(millis), ..costing(micros) };
    // Everything fits.
    check(0.01, &[costing(5000), costing(4000)], &[1.0, 1.0]);
    check(0.01, &[], &[]);
    // The most expensive goes first, and alone if that suffices.
    check(0.01, &[costing(500), costing(12_000), costing(600)], &[1.0, 2.0, 1.0]);
    // The cost per second decides, not the cost per poll.
    check(0.01, &[every(20_000, 10), costing(9000)], &[1.0, 2.0]);
    // Of equal cost, the unread sensor goes first.
    check(0.01, &[read(6000, 0.1), costing(6000)], &[1.0, 2.0]);
    // Readers keep a sensor fresh against somewhat more expensive sensors, not against much more
    // expensive ones.
    check(0.01, &[read(6000, 1.0), costing(5000)], &[1.0, 2.0]);
    check(0.01, &[read(90_000, 1.0), costing(100)], &[12.0, 1.0]);
    // A sensor with a waiting reader is last.
    check(0.01, &[waited(9000), costing(2000), costing(2000)], &[1.0, 4.0, 4.0]);
    check(0.01, &[waited(20_000), up_to(10, 4000)], &[3.0, 4.0]);
    // The last step ends at the longest interval, even if it is not a whole step.
    check(0.01, &[up_to(100_000, 2500)], &[2.5]);
    check(0.01, &[up_to(100_000, 500)], &[1.0]);
}

#[test]
fn a_limit_that_cannot_be_kept_reports_the_excess() {
    let (plan, grants) = fresh(0.01, 0.0, &[costing(1_280_000)]);
    assert_eq!(grants[0].interval, 64 * SECOND);
    assert!((plan.over - 0.01).abs() < 1e-9, "{plan:?}");
    // The agent's own cost cannot be stretched.
    let (plan, grants) = fresh(0.01, 0.02, &[costing(10)]);
    assert_eq!(grants[0].stretch, MAX_STRETCH);
    assert!(plan.over > 0.01 && plan.over < 0.0101, "{plan:?}");
}

#[test]
fn an_invalid_limit_is_refused() {
    for limit in [0.0, -0.01, f64::NAN, f64::INFINITY] {
        let error = Budget::new(limit).expect_err("no limit").to_string();
        assert!(error.contains("such as 0.01 for 1 %"), "{error}");
    }
}

#[test]
fn reads_of_nan_count_as_zero() {
    let strange = |reads_per_second| Demand { reads_per_second, ..costing(6000) };
    for reads in [f64::NAN, -1.0, f64::NEG_INFINITY] {
        check(0.01, &[strange(reads), costing(6000)], &[2.0, 1.0]);
    }
    check(0.01, &[strange(f64::INFINITY), costing(6000)], &[1.0, 2.0]);
}

/// Costs vary by 3 % around a total exactly at the limit.
#[test]
fn intervals_do_not_follow_the_noise_of_costs() {
    let mut budget = Budget::new(0.01).expect("a limit");
    let mut changes = 0;
    let mut before: Option<Vec<Grant>> = None;
    for round in 0..1000_u64 {
        let noisy = |micros: u64, seed: u64| {
            let swing = (round + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            costing(micros * (970 + swing % 61) / 1000)
        };
        let sensors: Vec<Demand> = (0..20).map(|i| noisy(500, i * 7919)).collect();
        let (plan, grants) = plan(&mut budget, 0.0, &sensors);
        assert_eq!(plan.over, 0.0);
        changes += usize::from(before.is_some_and(|before| before != grants));
        before = Some(grants);
    }
    assert!(changes <= 5, "{changes} of 1000 plans changed an interval");
}

#[test]
fn a_stretched_sensor_is_released_with_room_to_spare() {
    let mut budget = Budget::new(0.01).expect("a limit");
    let mut stretch = |micros| plan(&mut budget, 0.0, &[costing(micros)]).1[0].stretch;
    assert_eq!(stretch(11_000), 2.0);
    assert_eq!(stretch(9500), 2.0, "would fit, but barely");
    assert_eq!(stretch(8900), 1.0);
    assert_eq!(stretch(9500), 1.0, "was not stretched, and fits");
}

prop_compose! {
    fn any_demand()(
        micros in prop_oneof![Just(0), 1..2000u64, 1..1_000_000u64],
        wanted in prop_oneof![Just(0), 100..10_000u64],
        longest in 0..600_000u64,
        reads in prop_oneof![Just(0.0), 0.0..100.0],
        waited_for in any::<bool>(),
    ) -> Demand {
        Demand {
            cost: Duration::from_micros(micros),
            wanted: Duration::from_millis(wanted),
            longest: Duration::from_millis(longest),
            reads_per_second: reads,
            waited_for,
        }
    }
}

fn any_demands() -> impl Strategy<Value = Vec<Demand>> {
    prop::collection::vec(any_demand(), 0..30)
}

/// The least possible cost: every sensor at its longest interval.
fn least(sensors: &[Demand]) -> f64 {
    sensors
        .iter()
        .map(|s| {
            let wanted = s.wanted.as_secs_f64().max(0.001);
            s.share() / (s.longest.as_secs_f64() / wanted).clamp(1.0, MAX_STRETCH)
        })
        .sum()
}

proptest! {
    /// From any state, not only a fresh one.
    #[test]
    fn the_limit_is_kept_if_possible(
        before in any_demands(), sensors in any_demands(),
        limit in 0.0001..0.5f64, fixed in 0.0..0.01f64,
    ) {
        let mut budget = Budget::new(limit).expect("a limit");
        plan(&mut budget, fixed, &before);
        let (plan, grants) = plan(&mut budget, fixed, &sensors);
        let spent: f64 = sensors
            .iter()
            .zip(&grants)
            .map(|(s, g)| s.cost.as_secs_f64() / g.interval.as_secs_f64().max(0.001))
            .sum();
        prop_assert!((fixed + spent - plan.granted).abs() < 1e-6, "{} {plan:?}", fixed + spent);
        if fixed + least(&sensors) <= limit * (1.0 - 1e-9) {
            prop_assert!(plan.granted <= limit && plan.over == 0.0, "{plan:?}");
        } else if plan.over > 0.0 {
            prop_assert!((fixed + least(&sensors) - plan.granted).abs() < 1e-9, "{plan:?}");
        }
        for (sensor, grant) in sensors.iter().zip(&grants) {
            prop_assert!(grant.interval >= sensor.wanted && grant.stretch >= 1.0);
            prop_assert!(grant.interval <= sensor.longest.max(sensor.wanted));
            prop_assert_eq!(grant.stretch == 1.0, grant.interval == sensor.wanted);
        }
        if plan.wanted <= limit * RELEASE_RATIO {
            prop_assert!(grants.iter().all(|g| g.stretch == 1.0));
        }
    }

    #[test]
    fn nothing_is_stretched_if_everything_fits(sensors in any_demands(), fixed in 0.0..0.01f64) {
        let limit = fixed + sensors.iter().map(Demand::share).sum::<f64>() + 1e-9;
        let (_, grants) = fresh(limit, fixed, &sensors);
        prop_assert!(grants.iter().all(|g| g.stretch == 1.0));
    }

    #[test]
    fn a_lower_limit_never_shortens_an_interval(
        sensors in any_demands(), limit in 0.0001..0.5f64, ratio in 0.01..1.0f64,
    ) {
        let (_, loose) = fresh(limit, 0.0, &sensors);
        let (_, tight) = fresh(limit * ratio, 0.0, &sensors);
        for (loose, tight) in loose.iter().zip(&tight) {
            prop_assert!(tight.interval >= loose.interval);
        }
    }

    /// Two sensors with one difference, among others, from any state.
    #[test]
    fn unread_sensors_go_first_and_awaited_sensors_last(
        before in any_demands(), mut sensors in any_demands(), like in any_demand(),
        reads in 0.0001..1e9f64, limit in 0.0001..0.1f64,
    ) {
        // In the order in which they would go if only their places differed.
        let (awaited, read, unread) = (sensors.len(), sensors.len() + 1, sensors.len() + 2);
        sensors.push(Demand { waited_for: true, ..like });
        sensors.push(Demand { reads_per_second: reads, waited_for: false, ..like });
        sensors.push(Demand { reads_per_second: 0.0, waited_for: false, ..like });
        let mut budget = Budget::new(limit).expect("a limit");
        plan(&mut budget, 0.0, &before);
        let (_, grants) = plan(&mut budget, 0.0, &sensors);
        prop_assert!(grants[unread].stretch >= grants[read].stretch);
        prop_assert!(grants[read].stretch >= grants[awaited].stretch);
    }

    #[test]
    fn more_expensive_sensors_go_first(
        mut sensors in any_demands(), like in any_demand(), more in 1.0..100.0f64,
        limit in 0.0001..0.1f64,
    ) {
        let cheap = sensors.len();
        sensors.push(like);
        sensors.push(Demand { cost: like.cost.mul_f64(more), ..like });
        let (_, grants) = fresh(limit, 0.0, &sensors);
        prop_assert!(grants[cheap + 1].stretch >= grants[cheap].stretch);
    }
}
