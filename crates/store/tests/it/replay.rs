//! The workload of the paper's Table 5, and allocations on it.

use skopos_store::estimate::{MAX_RISK, Minimize, Record, estimate};
use skopos_store::replay::{
    CPU, Cost, MEMORY, Shape, TASKS, Task, WALL, moments, replay, workload,
};

fn close(of: &str, values: impl Iterator<Item = f64> + Clone, shape: Shape) {
    let found = moments(values);
    let check = |what: &str, found: Option<f64>, expected: f64| {
        let found = found.expect("values that differ");
        let off = (found - expected).abs();
        assert!(off <= 1e-3 * expected.abs().max(1.0), "{of}: {what} {found}, not {expected}");
    };
    check("mean", found.mean(), shape.mean);
    check("deviation", found.deviation(), shape.deviation);
    check("skewness", found.skewness(), shape.skewness);
    check("kurtosis", found.kurtosis(), shape.kurtosis);
    assert!(found.min().is_some_and(|min| min > 0.0), "{of}: {:?} is not an amount", found.min());
}

#[test]
fn the_workload_has_the_moments_of_table_5_and_the_estimate_wastes_least() {
    let tasks = workload(1);
    assert_eq!(tasks.len(), TASKS);
    close("wall", tasks.iter().map(|t| t.wall_seconds), WALL);
    close("cpu", tasks.iter().map(|t| t.cpu_seconds), CPU);
    close("memory", tasks.iter().map(|t| t.memory_bytes), MEMORY);
    assert_eq!(tasks, workload(1));
    assert_ne!(tasks, workload(2));

    let record = |t: &Task| Record { value: t.memory_bytes, seconds: t.wall_seconds };
    let records: Vec<Record> = tasks.iter().map(record).collect();
    let (past, future) = records.split_at(TASKS / 2);
    let ours = estimate(past, Minimize::Waste, MAX_RISK).expect("records");
    let cost = replay(future, ours.allocation, ours.maximum);
    let past_moments = moments(past.iter().map(|r| r.value));
    let far =
        past_moments.mean().expect("values") + 2.0 * past_moments.deviation().expect("values");
    for (what, naive) in [
        ("maximum", replay(future, ours.maximum, ours.maximum)),
        ("mean + 2 deviations", replay(future, far, ours.maximum)),
    ] {
        assert!(cost.waste_share < naive.waste_share, "{what}: {naive:?}, and ours {cost:?}");
    }
}

#[test]
fn an_example_by_hand() {
    let of = |value| Record { value, seconds: 2.0 };
    // 3 fits; 5 runs again with 6; 13 gets 4, 6, 12 and then 24.
    let Cost { retried, beyond, held, .. } = replay(&[of(3.0), of(5.0), of(13.0)], 4.0, 6.0);
    assert_eq!((beyond, held), (1, 2.0 * (4.0 + 4.0 + 6.0 + 4.0 + 6.0 + 12.0 + 24.0) / 3.0));
    assert!((retried - 2.0 / 3.0).abs() < 1e-12);
    // With one step only, 13 gets 6, 12 and 24.
    let one = replay(&[of(13.0)], 6.0, 6.0);
    assert_eq!((one.beyond, one.held), (1, 2.0 * (6.0 + 12.0 + 24.0)));
}
