//! Traces of cases: their structure, never their speed.

use std::collections::BTreeSet;
use std::path::Path;

use skopos_dataservice::case::findings::findings;
use skopos_dataservice::case::{Case, table};
use skopos_dataservice::children::Launcher;
use skopos_dataservice::view::{Side, View};
use skopos_rpc::{Interval, Kind};

use crate::setup::launcher;

const PUT: &str = "sdskv_put_packed";

/// Runs a case, smaller than it is, and returns its traces.
fn run(name: &str, events: u32, change: impl FnOnce(&mut Case)) -> View {
    let folder = tempfile::tempdir().expect("a folder");
    let mut case = table::find(name).expect("a case");
    case.size.events = events;
    change(&mut case);
    let outcome = case.run(&launcher(Some(folder.path().to_owned()))).expect("it runs");
    assert!(outcome.calls > 0);
    read(folder.path())
}

/// Rounds for a condition that timing makes: whatever else the machine does hides it in some of them.
const ROUNDS: usize = 8;

/// Repeats a round until it is as expected; an error says how a round was.
fn in_some_round(round: impl Fn() -> Result<(), String>) {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        match round() {
            Ok(()) => return,
            Err(how) => rounds.push(how),
        }
    }
    panic!("not in any round: {rounds:#?}");
}

fn read(folder: &Path) -> View {
    let view = View::read(folder).expect("traces");
    assert_eq!(view.lost, 0, "nothing is lost of so few calls");
    view
}

#[test]
fn a_write_is_twelve_calls_below_it() {
    let view = run("mobject", 2, |case| case.config.clients = 2);
    let writes: Vec<_> = view.of(Kind::Target, "mobject_write_op").collect();
    assert_eq!(writes.len(), 4, "two clients write twice");
    for write in writes {
        let below = view.sides.iter().filter(|side| {
            side.span.kind == Kind::Origin
                && side.span.request_low == write.span.request_low
                && side.span.parent == write.span.span
        });
        let mut names: Vec<_> = below.map(|side| side.rpc.as_str()).collect();
        names.sort_unstable();
        let mut expected = vec!["bake_create_rpc", "bake_persist_rpc", "bake_write_rpc"];
        expected.extend(["sdskv_get_rpc"; 3]);
        expected.extend(["sdskv_put_rpc"; 6]);
        assert_eq!(names, expected);
        assert!(write.interval(Interval::Children).is_some_and(|ns| ns > 0));
    }
}

#[test]
fn both_sides_of_each_call_join_and_no_span_is_twice() {
    let view = run("mobject", 2, |case| case.config.clients = 2);
    let ids = |kind| -> BTreeSet<u64> {
        view.sides.iter().filter(|s| s.span.kind == kind).map(|s| s.span.span).collect()
    };
    assert_eq!(ids(Kind::Origin), ids(Kind::Target));
    assert_eq!(ids(Kind::Origin).len() * 2, view.sides.len());
}

#[test]
fn every_interval_of_the_paper_is_measured() {
    // An input that overflows, so that the internal transfer is there as well.
    let view = run("sonata", 400, |case| case.config.batch_size = 200);
    let store = "sonata_store_multi_json";
    assert_eq!(view.of(Kind::Target, store).count(), 2);
    for interval in Interval::ALL {
        let sides = view.sides.iter().filter(|side| side.rpc == store);
        let count = match interval {
            Interval::OriginExecution => {
                sides.filter(|s| s.span.kind == Kind::Origin && s.span.duration > 0).count()
            }
            // The store calls nothing.
            Interval::Children => continue,
            other => sides.filter(|side| side.interval(other).is_some()).count(),
        };
        assert_eq!(count, 2, "{}", interval.name());
    }
    let origin = view.of(Kind::Origin, store).next().expect("a call");
    assert!(view.pvar(origin, "eager_overflows").is_some_and(|count| count > 0));
}

#[test]
fn a_trace_without_variables_has_its_intervals() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut case = table::find("sonata").expect("a case");
    (case.size.events, case.config.batch_size) = (400, 200);
    let full = launcher(Some(folder.path().to_owned()));
    case.run(&Launcher { without_variables: true, ..full }).expect("it runs");
    let view = read(folder.path());
    let count = |has: &dyn Fn(&Side) -> bool| view.sides.iter().filter(|side| has(side)).count();
    assert!(count(&|side| side.interval(Interval::InputSerialization).is_some()) > 0);
    for name in ["in_flight_requests", "pool_depth", "eager_overflows"] {
        assert_eq!(count(&|side| view.pvar(side, name).is_some()), 0, "{name}");
    }
}

/// The parts of a case's calls that wait for an execution stream, and for the backend.
fn shares(view: &View) -> (f64, f64) {
    let queue = view.interval_seconds(PUT, Interval::TargetHandler);
    let execution = view.interval_seconds(PUT, Interval::TargetExecutionExclusive);
    let wait = view.pvar_sum(PUT, "database_wait_ns") as f64 / 1e9;
    (queue / (queue + execution), wait / (queue + execution))
}

#[test]
fn more_execution_streams_leave_less_in_the_queue_and_more_at_the_backend() {
    // On an idle machine 0.7 and 0.05 wait in the queue; equal numbers of streams would differ by chance only.
    in_some_round(|| {
        let (queue_few, wait_few) = shares(&run("c1", 2048, |_| {}));
        let (queue_many, wait_many) = shares(&run("c2", 2048, |_| {}));
        let is_moved = queue_few > 1.5 * queue_many && wait_many > 1.5 * wait_few;
        is_moved.then_some(()).ok_or(format!(
            "queue: {queue_few:.2} with 5, {queue_many:.2} with 20; backend: {wait_few:.2}, {wait_many:.2}"
        ))
    });
}

#[test]
fn fewer_databases_are_fewer_calls() {
    let many = run("c2", 2048, |_| {});
    let few = run("c3", 2048, |_| {});
    assert_eq!(many.of(Kind::Target, PUT).count(), 3 * 2 * 32);
    assert_eq!(few.of(Kind::Target, PUT).count(), 3 * 2 * 8);
}

/// Runs a case, smaller than it is, until the findings about its traces, the best first, are as expected.
fn found(name: &str, events: u32, change: fn(&mut Case), is_expected: fn(&[&str]) -> bool) {
    in_some_round(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut case = table::find(name).expect("a case");
        case.size.events = events;
        change(&mut case);
        case.run(&launcher(Some(folder.path().to_owned()))).expect("it runs");
        let findings = findings(folder.path()).expect("traces");
        let names: Vec<&str> = findings.into_iter().map(|finding| finding.name).collect();
        is_expected(&names).then_some(()).ok_or(format!("{names:?}"))
    });
}

#[test]
fn inputs_that_overflow_the_eager_buffer_are_found() {
    // Sixty calls of 200 documents each.
    let change = |case: &mut Case| case.config.batch_size = 200;
    found("sonata", 12_000, change, |names| names.contains(&"eager_overflow"));
}

#[test]
fn a_starved_progress_loop_is_found() {
    found("c5", 1024, |_| {}, |names| names.first() == Some(&"starved_progress"));
}

/// The part of calls that were completed by a read which got as many events as it may.
fn full_reads(view: &View) -> f64 {
    let reads = |side| {
        let read = view.pvar(side, "completion_queue_read")?;
        Some(read >= view.pvar(side, "completion_queue_limit")?)
    };
    let full: Vec<bool> = view.of(Kind::Origin, PUT).filter_map(reads).collect();
    assert!(!full.is_empty());
    full.iter().filter(|is_full| **is_full).count() as f64 / full.len() as f64
}

#[test]
fn a_starved_progress_loop_reads_to_its_limit_and_a_thread_does_not() {
    in_some_round(|| {
        let starved = full_reads(&run("c5", 1024, |_| {}));
        let dedicated = full_reads(&run("c7", 1024, |_| {}));
        let is_starved = starved > dedicated;
        is_starved
            .then_some(())
            .ok_or(format!("{starved:.2} as a task, {dedicated:.2} as a thread"))
    });
}
