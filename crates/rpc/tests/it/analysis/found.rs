//! Each rule finds its condition in traces that real recorders wrote of a service which has it. Bounds are far apart, so that
//! a busy machine changes no verdict.

use std::sync::{Barrier, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use skopos_rpc::analysis::finding::{Found, Judged, NodeFact, NodeFacts, Verdict, judge};
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::folder::Folder;
use skopos_rpc::{Options, Recorder, Span, Status};

use crate::support::Place;

const MS: Duration = Duration::from_millis(1);
const NONE: Duration = Duration::ZERO;

/// A client and its targets, each with a recorder of its own.
struct Service {
    place: Place,
    client: Recorder,
    targets: Vec<Recorder>,
}

impl Service {
    /// Starts the recorders: `kv0` and so on, each changed by `change`.
    fn start(targets: usize, change: impl Fn(Options, usize) -> Options) -> Self {
        let place = Place::new();
        let options = |name: &str| {
            Options::new(name).dir(place.run()).trace_folder(place.traces()).budget(None)
        };
        let client = options("client").config("batch_size", 1024);
        let client = Recorder::start(client).expect("started");
        let start = |at| Recorder::start(change(options(&format!("kv{at}")), at)).expect("started");
        let targets = (0..targets).map(start).collect();
        Self { place, client, targets }
    }

    /// Makes the call `put`: on the way for `before` and `after`, and at a target, where `work` is the handler.
    fn put(
        &self,
        target: usize,
        (before, after): (Duration, Duration),
        work: impl FnOnce(&mut Span),
    ) {
        let call = self.client.origin(self.client.rpc("put"), None);
        sleep(before);
        let recorder = self.targets[target];
        let mut served = recorder.target(recorder.rpc("put"), &call.context());
        served.begin();
        work(&mut served);
        served.respond();
        served.end(Status::Ok);
        sleep(after);
        call.end(Status::Ok);
    }

    /// Ends the recorders, and judges their traces.
    fn judge(self) -> Vec<Judged> {
        self.judge_with(&NodeFacts::default())
    }

    fn judge_with(self, facts: &NodeFacts) -> Vec<Judged> {
        self.targets.iter().chain([&self.client]).for_each(|r| r.close().expect("closed"));
        let loader = Folder::open(&self.place.traces()).expect("traces");
        let trace = Trace::open(&loader).expect("readable");
        assert_eq!(trace.counts().defects(), []);
        judge(&trace, facts).expect("readable").findings
    }
}

/// Returns the finding of a rule, which is there.
fn found<'f>(findings: &'f [Judged], name: &str) -> &'f Found {
    let judged = findings.iter().find(|judged| judged.finding == name).expect("a rule");
    match &judged.verdict {
        Verdict::Found(found) => found,
        other => panic!("{name}: {other:?}"),
    }
}

fn is_absent(findings: &[Judged], name: &str) -> bool {
    findings.iter().any(|j| j.finding == name && j.verdict == Verdict::Absent)
}

fn first(findings: &[Judged]) -> &str {
    findings[0].finding
}

#[test]
fn time_that_no_interval_explains_is_unaccounted() {
    let service = Service::start(1, |options, _| options);
    (0..60).for_each(|_| service.put(0, (NONE, 3 * MS), |_| ()));
    let findings = service.judge();
    let found = found(&findings, "unaccounted");
    assert_eq!(found.callpath, ["put"]);
    assert!(found.processes[0].starts_with("client"), "{found:?}");
    assert!(found.evidence[1].value > 2e6 && found.evidence[2].value < 0.5, "{found:?}");
}

/// Calls of one client, one after the other, wait for something else than one of the four streams.
#[test]
fn calls_that_wait_beside_free_streams_do_not_need_more_of_them() {
    let service = Service::start(1, |options, _| options.config("execution_streams", 4));
    let kv = service.targets[0];
    for _ in 0..60 {
        let call = service.client.origin(service.client.rpc("put"), None);
        let mut served = kv.target(kv.rpc("put"), &call.context());
        sleep(2 * MS);
        served.begin();
        served.end(Status::Ok);
        call.end(Status::Ok);
    }
    let findings = service.judge();
    assert!(is_absent(&findings, "execution_streams"), "{findings:?}");
}

#[test]
fn a_target_that_serves_most_calls_is_an_imbalance() {
    let service = Service::start(2, |options, _| options);
    (0..60).for_each(|call| service.put(usize::from(call % 6 == 0), (NONE, NONE), |_| ()));
    let findings = service.judge();
    let found = found(&findings, "imbalance");
    assert!(found.processes[0].starts_with("kv0"), "{found:?}");
    assert!((found.evidence[0].value - 50.0 / 30.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn a_node_whose_handlers_take_longer_is_slow() {
    let service = Service::start(3, |options, at| options.node(&format!("n0{at}")));
    for call in 0..75 {
        let work = if call % 3 == 1 { 10 * MS } else { MS / 4 };
        service.put(call % 3, (NONE, NONE), |_| sleep(work));
    }
    let fact = |node: &str, name: &str, value| NodeFact {
        node: node.to_owned(),
        name: name.to_owned(),
        value,
    };
    let (busy, same) = ("psi/cpu/some_avg10_ratio", "mem/used_ratio");
    let facts = vec![fact("n00", busy, 0.1), fact("n01", busy, 0.9), fact("n02", busy, 0.1)];
    let facts = [facts, ["n00", "n01", "n02"].map(|node| fact(node, same, 0.5)).to_vec()].concat();
    let findings = service.judge_with(&NodeFacts { facts });
    let found = found(&findings, "slow_node");
    // The fact in which the node differs from the others is the reason.
    let evidence: Vec<_> = found.evidence[2..].iter().map(|e| (&*e.name, e.value)).collect();
    let others = "psi/cpu/some_avg10_ratio, median of the others";
    assert_eq!(evidence, [("n01/psi/cpu/some_avg10_ratio", 0.9), (others, 0.1)]);
    assert_eq!(found.fixes[0].now.as_deref(), Some("n01"));
    assert!(found.processes.len() == 1 && found.processes[0].starts_with("kv1@n01"), "{found:?}");
}

#[test]
fn calls_whose_time_grows_with_their_bytes_have_large_messages() {
    let service = Service::start(1, |options, _| options);
    let kv = service.targets[0];
    let bytes =
        kv.pvars().register("request_bytes", skopos_rpc::PvarClass::Size, "bytes").expect("new");
    for call in 0..60 {
        // Half of the calls carry 4 MiB, and take forty times as long as the others.
        let is_large = call % 2 == 0;
        let (before, length) = if is_large { (40 * MS, 4 << 20) } else { (MS, 100) };
        service.put(0, (before, NONE), |served| served.pvar(&bytes, length));
    }
    let findings = service.judge();
    let found = found(&findings, "large_messages");
    assert!(found.what.starts_with("bytes of messages explain"), "{found:?}");
    assert_eq!(found.evidence.last().expect("a correlation").name, "correlation of bytes and time");
    assert!(found.fixes[0].gain.expect("a model").value > 0.1, "{found:?}");
}

/// Small calls take as long as large ones, because they share a connection.
#[test]
fn calls_that_wait_while_bytes_move_have_large_messages() {
    let service = Service::start(1, |options, _| options);
    let kv = service.targets[0];
    let bytes =
        kv.pvars().register("request_bytes", skopos_rpc::PvarClass::Size, "bytes").expect("new");
    for call in 0..60 {
        let length = if call % 2 == 0 { 100 } else { 100 << 20 };
        service.put(0, (2 * MS, NONE), |served| served.pvar(&bytes, length));
    }
    let findings = service.judge();
    let found = found(&findings, "large_messages");
    assert!(found.what.contains("lies outside of its targets"), "{found:?}");
    assert_eq!(first(&findings), "large_messages");
}

/// Handlers that wait for the one backend of many databases, and say so.
#[test]
fn handlers_that_wait_for_their_database_have_too_many_databases() {
    let service = Service::start(1, |options, _| {
        options.config("databases", 32).config("execution_streams", 8)
    });
    let kv = service.targets[0];
    let wait =
        kv.pvars().register("database_wait_ns", skopos_rpc::PvarClass::Timer, "ns").expect("new");
    let backend = Mutex::new(());
    at_once(8, 10, || {
        service.put(0, (NONE, NONE), |served| {
            let asked = Instant::now();
            let held = backend.lock().expect("no panic");
            served.pvar(&wait, asked.elapsed().as_nanos() as u64);
            sleep(2 * MS);
            drop(held);
        });
    });
    let findings = service.judge();
    let found = found(&findings, "databases");
    assert_eq!(
        (found.fixes[0].key.as_str(), found.fixes[0].now.as_deref()),
        ("databases", Some("32"))
    );
    // The waits are explained, so handlers do not wait for anything else.
    assert!(is_absent(&findings, "serialized_handlers"), "{findings:?}");
}

/// Runs `work` in rounds of 1 to `threads` threads at once, `rounds` times each.
fn at_once(threads: usize, rounds: usize, work: impl Fn() + Sync) {
    for round in 0..rounds * threads / 4 {
        let together = Barrier::new(1 + round % threads);
        std::thread::scope(|scope| {
            for _ in 0..=round % threads {
                scope.spawn(|| {
                    together.wait();
                    work();
                });
            }
        });
    }
}

#[test]
fn handlers_with_one_lock_wait_for_each_other() {
    let service = Service::start(1, |options, _| options);
    let lock = Mutex::new(());
    at_once(8, 10, || {
        service.put(0, (NONE, NONE), |_| {
            let _held = lock.lock().expect("no panic");
            sleep(10 * MS);
        });
    });
    let findings = service.judge();
    let found = found(&findings, "serialized_handlers");
    assert_eq!(found.callpath, ["put"]);
    // Each handler at work makes another one longer by the time for which it holds the lock.
    assert!(found.evidence[1].value > 2e6, "{found:?}");
}

#[test]
fn handlers_that_only_take_their_time_are_long_and_do_not_wait_for_each_other() {
    let service = Service::start(1, |options, _| options);
    at_once(8, 10, || service.put(0, (NONE, NONE), |_| sleep(40 * MS)));
    let findings = service.judge();
    let found = found(&findings, "long_handlers");
    assert_eq!((first(&findings), &found.callpath[..]), ("long_handlers", &["put".to_owned()][..]));
    assert!(is_absent(&findings, "serialized_handlers"), "{findings:?}");
    assert!(is_absent(&findings, "slow_children"), "{findings:?}");
}

#[test]
fn calls_below_that_take_most_of_the_time_are_named() {
    let service = Service::start(2, |options, _| options);
    let [kv, log] = [service.targets[0], service.targets[1]];
    let (append, at_log) = (kv.rpc("append"), log.rpc("append"));
    for _ in 0..60 {
        service.put(0, (NONE, NONE), |served| {
            for _ in 0..2 {
                let below = kv.origin(append, Some(&served.context()));
                let mut at_end = log.target(at_log, &below.context());
                at_end.begin();
                sleep(2 * MS);
                at_end.end(Status::Ok);
                served.exclude(below.end(Status::Ok));
            }
        });
    }
    let findings = service.judge();
    let found = found(&findings, "slow_children");
    assert_eq!(
        (first(&findings), &found.callpath[..]),
        ("slow_children", &["put".to_owned(), "append".to_owned()][..])
    );
    assert!(found.processes[0].starts_with("kv1"), "{found:?}");
    assert!((found.evidence[2].value - 2.0).abs() < 1e-9, "{found:?}");
    // The two appends come one after the other.
    let keys: Vec<_> = found.fixes.iter().map(|fix| fix.key.as_str()).collect();
    assert_eq!(keys, ["below", "at_once"]);
}
