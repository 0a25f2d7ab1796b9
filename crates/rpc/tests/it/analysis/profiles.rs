use skopos_rpc::analysis::profile::{IntervalTime, SeenBy, Unaccounted, profile};
use skopos_rpc::analysis::system::system;
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::synthetic::{FRONT, LIST, READ, Service};

use super::skewed;

#[test]
fn dominant_callpaths_come_first_with_their_intervals_and_counts() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let profile = profile(&trace).unwrap();
    let names: Vec<String> = profile.paths.iter().map(|path| path.names.join(" → ")).collect();
    assert_eq!(names, [FRONT.to_owned(), format!("{FRONT} → {LIST}"), format!("{FRONT} → {READ}")]);
    let calls: Vec<u64> = profile.paths.iter().map(|path| path.calls).collect();
    assert_eq!(calls, [600, 1200, 600]);
    let front = &profile.paths[0];
    assert_eq!((front.seen_by, front.share), (SeenBy::Origin, 1.0));
    let by: Vec<(&str, u64)> =
        front.origins.iter().map(|e| (e.process.as_str(), e.calls)).collect();
    assert_eq!(by, [("client0@n01 (1)", 300), ("client1@n01 (2)", 300)]);
    assert_eq!(front.targets.len(), 1);
    let states: Vec<(&str, bool)> = front
        .intervals
        .iter()
        .map(|i| (i.name, matches!(i.time, IntervalTime::Measured { .. })))
        .collect();
    assert_eq!(
        states,
        [
            ("origin_execution", true),
            ("input_serialization", true),
            ("target_internal_rdma_transfer", false),
            ("target_handler", true),
            ("input_deserialization", true),
            ("target_execution_exclusive", true),
            ("output_serialization", false),
            ("target_completion_callback", false),
            ("origin_completion_callback", false),
            ("children", true),
        ]
    );
    // The way there and back, without a quarter of the way there, which is serialisation.
    let Unaccounted::Measured { total_ns, .. } = front.unaccounted else { panic!("both sides") };
    let mean = total_ns / 600.0;
    assert!((14_000.0..17_000.0).contains(&mean), "{mean}");
}

#[test]
fn an_interval_that_no_host_reports_has_a_reason() {
    let loader = Service { has_details: false, ..Service::default() }.trace();
    let trace = Trace::open(&loader).unwrap();
    let profile = profile(&trace).unwrap();
    let queue = &profile.paths[0].intervals[3];
    let IntervalTime::Unknown { reason } = &queue.time else { panic!("no details") };
    assert!(reason.starts_with("the target did not report it"), "{reason}");
}

#[test]
fn sides_without_a_record_are_counted() {
    let loader = Service { lost_targets: 10, ..Service::default() }.trace();
    let trace = Trace::open(&loader).unwrap();
    let profile = profile(&trace).unwrap();
    let lost: u64 = profile.paths.iter().map(|path| path.calls_without_target).sum();
    assert_eq!(lost, 400);
    assert_eq!(trace.counts().origins - trace.counts().targets, 400);
}

#[test]
fn shares_stand_for_the_calls_of_which_a_side_was_lost() {
    let shares = |lost_targets| -> Vec<f64> {
        let loader = Service { lost_targets, ..Service::default() }.trace();
        let trace = Trace::open(&loader).unwrap();
        let front = profile(&trace).unwrap().paths.swap_remove(0);
        assert_eq!(front.calls_without_target, if lost_targets > 0 { 333 } else { 0 });
        let share = |time| match time {
            IntervalTime::Measured { share, .. } => Some(share),
            IntervalTime::Unknown { .. } => None,
        };
        front.intervals.into_iter().filter_map(|interval| share(interval.time)).collect()
    };
    // Every third call has no record of its target.
    let (whole, torn) = (shares(0), shares(3));
    assert!(whole.len() == torn.len() && whole.len() > 4, "{whole:?}");
    for (of_all, of_some) in whole.iter().zip(&torn) {
        assert!((of_all - of_some).abs() < 0.02, "{whole:?} {torn:?}");
    }
}

#[test]
fn a_system_without_samples_has_its_processes() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let system = system(&trace, 10).unwrap();
    assert_eq!(system.processes.len(), 5);
    assert_eq!(system.processes[0].config["execution_streams"], "4");
}
