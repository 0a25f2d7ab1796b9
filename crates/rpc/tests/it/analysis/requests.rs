use skopos_rpc::analysis::critical::{Options, critical_path_of, critical_paths};
use skopos_rpc::analysis::request::list::{Filter, Order, requests};
use skopos_rpc::analysis::request::show::show;
use skopos_rpc::analysis::request::waterfall::waterfall;
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::synthetic::{FRONT, LIST, READ, Service};

use super::skewed;

#[test]
fn a_clock_that_is_two_seconds_ahead_is_corrected_within_its_bound() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    for correction in &trace.clocks.corrections[3..] {
        let bound = correction.bound_ns.unwrap();
        // The least way there and back of 1200 calls is about 8 us.
        assert!(bound < 10_000, "{bound}");
        assert!((correction.offset_ns - 2_000_000_000).unsigned_abs() <= bound, "{correction:?}");
    }
    // Handlers of requests do not overlap, and lie within their callers.
    let list = requests(&trace, &Filter { order: Order::Earliest, ..Filter::default() }).unwrap();
    let request = show(&trace, &list.requests[0].id).unwrap();
    assert!(request.clock_bound_ns < 20_000 && request.unrelated_processes == 0);
    assert!(request.duration_ns < 10_000_000);
}

#[test]
fn a_request_shows_its_calls_in_happens_before_order() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let request = show(&trace, "0000000000000007000000000000000a").unwrap();
    let calls: Vec<(usize, &str)> =
        request.calls.iter().map(|call| (call.depth, call.name.as_str())).collect();
    assert_eq!(calls, [(0, FRONT), (1, LIST), (1, LIST), (1, READ)]);
    let front = &request.calls[0];
    assert_eq!(front.target.as_deref(), Some("front@n02 (3)"));
    assert!(front.intervals.iter().any(|(name, _)| *name == "target_handler"));
    let times: Vec<u64> = request.calls.iter().map(|call| call.start_ns).collect();
    assert!(times.is_sorted(), "{times:?}");
    let last = &request.calls[3];
    assert!(
        last.begun_ns <= last.ended_ns
            && last.ended_ns.unwrap() <= last.start_ns + last.duration_ns
    );
    let lines = waterfall(&request, 60);
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line.name.len() + 1 + line.bar.len() <= 60));
    assert!(lines[0].bar.contains("#") && lines[0].bar.starts_with('-'), "{:?}", lines[0]);
}

#[test]
fn filters_choose_and_the_slowest_come_first() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let all = requests(&trace, &Filter { limit: 1000, ..Filter::default() }).unwrap();
    assert_eq!((all.total, all.matching, all.requests.len(), all.incomplete), (600, 600, 600, 0));
    assert!(all.requests.is_sorted_by(|a, b| a.duration_ns >= b.duration_ns));
    assert!(all.requests.iter().all(|r| r.calls == 4 && r.root == FRONT && r.id.len() == 32));
    let tenth = all.requests[9].duration_ns;
    let filter =
        Filter { at_least_ns: tenth, process: Some("kv1".to_owned()), ..Filter::default() };
    let few = requests(&trace, &filter).unwrap();
    assert_eq!(few.requests, all.requests[..few.requests.len()]);
    let none = Filter { callpath: Some("put".to_owned()), ..Filter::default() };
    assert_eq!(requests(&trace, &none).unwrap().matching, 0);
}

#[test]
fn several_passes_give_the_same_answer_as_one() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let once = requests(&trace, &Filter { limit: 600, ..Filter::default() }).unwrap();
    let filter = Filter { limit: 600, most_held: 500, ..Filter::default() };
    assert_eq!(requests(&trace, &filter).unwrap().requests, once.requests);
    let options = Options { most_held: 700, ..Options::default() };
    let (one, many) =
        (critical_paths(&trace, &Options::default()), critical_paths(&trace, &options));
    let (one, many) = (one.unwrap(), many.unwrap());
    assert_eq!(one.requests, many.requests);
    let times = |of: &skopos_rpc::analysis::critical::CriticalPaths| -> Vec<u64> {
        of.paths.iter().map(|path| path.critical_ns).collect()
    };
    assert_eq!(times(&one), times(&many));
}

#[test]
fn the_critical_path_covers_the_request_and_its_prediction_holds() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    let one = critical_path_of(&trace, "a", 0.5).unwrap();
    assert_eq!(one.steps.iter().map(|step| step.duration_ns).sum::<u64>(), one.duration_ns);
    assert!(one.steps.is_sorted_by(|a, b| a.start_ns + a.duration_ns <= b.start_ns));
    // All calls are in series, so half of the lists' time is saved.
    let request = show(&trace, "a").unwrap();
    let lists = request.calls.iter().filter(|call| call.name == LIST);
    let lists: u64 = lists.map(|call| call.duration_ns).sum();
    let (_, predicted) =
        one.what_if.iter().find(|(names, _)| names.len() == 2 && names[1] == LIST).unwrap();
    let expected = one.duration_ns as f64 - lists as f64 / 2.0;
    assert!((predicted - expected).abs() < 2.0, "{predicted} {expected}");
    let all = critical_paths(&trace, &Options { faster: 0.5, ..Options::default() }).unwrap();
    let shares: f64 = all.paths.iter().map(|path| path.share).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    let list =
        all.paths.iter().find(|path| path.names.len() == 2 && path.names[1] == LIST).unwrap();
    let change = list.what_if.mean_change;
    assert!((change.value + list.share / 2.0).abs() < 0.01, "{change:?} {}", list.share);
    assert!(change.low <= change.value && change.value <= change.high);
    assert!(critical_paths(&trace, &Options { faster: 1.5, ..Options::default() }).is_err());
}

#[test]
fn a_request_with_missing_sides_keeps_its_structure() {
    let loader = Service { lost_targets: 1, ..Service::default() }.trace();
    let trace = Trace::open(&loader).unwrap();
    let request = show(&trace, "a").unwrap();
    assert!(request.calls.iter().all(|call| call.missing == Some("target")));
    assert_eq!(request.calls[3].depth, 1);
    assert!(critical_path_of(&trace, "a", 0.5).is_ok());
}

#[test]
fn ids_that_are_not_ids_are_refused_with_a_hint() {
    let loader = skewed();
    let trace = Trace::open(&loader).unwrap();
    for id in ["", "xyz", "0", "123456789012345678", "éééééééééééééééé"] {
        let error = show(&trace, id).unwrap_err().to_string();
        assert!(error.contains("32 hexadecimal digits"), "{error}");
    }
    assert!(show(&trace, "ffff").unwrap_err().to_string().contains("no record in this trace"));
}
