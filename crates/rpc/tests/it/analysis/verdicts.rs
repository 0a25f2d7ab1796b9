use skopos_rpc::analysis::comparison::{Limits, compare, gate};
use skopos_rpc::analysis::finding::{NodeFacts, RULES, Verdict, judge};
use skopos_rpc::analysis::loader::{Loader as _, MemoryLoader};
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::folder::Folder;
use skopos_rpc::synthetic::{FRONT, Service};
use skopos_rpc::{Options, Recorder, Status};

use crate::support::Place;

#[test]
fn a_service_with_long_queues_is_told_to_use_more_streams() {
    // A request takes 0.3 ms of one of four streams, and one comes each 0.08 ms.
    let loader = Service { requests: 2000, queue_ns: 600_000.0, ..Service::default() }.trace();
    let trace = Trace::open(&loader).unwrap();
    let findings = judge(&trace, &NodeFacts::default()).unwrap().findings;
    assert_eq!(findings[0].finding, "execution_streams");
    let Verdict::Found(found) = &findings[0].verdict else { panic!("found") };
    assert_eq!(found.fixes[0].key, "execution_streams");
    assert_eq!(found.fixes[0].now.as_deref(), Some("4"));
    assert!(found.evidence[0].value > 0.5, "{:?}", found.evidence);
}

#[test]
fn each_rule_has_a_verdict_and_a_reason_where_it_cannot_judge() {
    let loader = Service { has_details: false, ..Service::default() }.trace();
    let trace = Trace::open(&loader).unwrap();
    let findings = judge(&trace, &NodeFacts::default()).unwrap().findings;
    assert_eq!(findings.len(), RULES.len());
    let unknown: Vec<&str> = findings
        .iter()
        .filter(|judged| matches!(judged.verdict, Verdict::Unknown { .. }))
        .map(|judged| judged.finding)
        .collect();
    for rule in ["execution_streams", "databases", "starved_progress", "large_messages"] {
        assert!(unknown.contains(&rule), "{rule}: {findings:?}");
    }
}

#[test]
fn equal_runs_pass_a_gate_and_a_slower_one_does_not() {
    let run = |seed, slow_store| {
        Service { seed, slow_store, requests: 3000, ..Service::default() }.trace()
    };
    let (first, second, slow) = (run(1, 1.0), run(2, 1.0), run(3, 2.0));
    let [first, second, slow] = [&first, &second, &slow].map(|run| Trace::open(run).unwrap());
    let same = compare(&first, &second).unwrap();
    assert_eq!(same.paths.len(), 3);
    let verdict = gate(&same, &Limits::default());
    assert!(verdict.passes && verdict.judged == 3, "{verdict:?}");
    let slower = compare(&first, &slow).unwrap();
    let verdict = gate(&slower, &Limits::default());
    assert!(!verdict.passes);
    assert!(verdict.failures[0].reason.starts_with("its mean rose by"), "{verdict:?}");
    let change = slower.paths.iter().find(|path| path.names.len() == 2).unwrap();
    assert!(change.is_significant && change.change.low > 0.2, "{change:?}");
    // Slower in the other direction is an improvement.
    assert!(gate(&compare(&slow, &first).unwrap(), &Limits::default()).passes);
}

/// The time of a caller has the way there and back, and that of a callee has not.
#[test]
fn callers_of_one_run_are_not_compared_with_callees_of_another() {
    let whole = Service { requests: 3000, ..Service::default() }.trace();
    let of = |is_wanted: fn(&str) -> bool| {
        let files = whole.names().iter().cloned().zip(whole.files().iter().cloned());
        MemoryLoader::new(files.filter(|(name, _)| is_wanted(name)).collect())
    };
    let clients = of(|name| name.starts_with("client"));
    let servers = of(|name| !name.starts_with("client"));
    let [whole, clients, servers] =
        [&whole, &clients, &servers].map(|loader| Trace::open(loader).unwrap());
    let apart = compare(&clients, &servers).unwrap();
    assert_eq!((apart.paths.len(), &apart.different_sides[..]), (0, &[vec![FRONT.to_owned()]][..]));
    assert!(!gate(&apart, &Limits::default()).passes);
    // Callees that both runs have are compared.
    let half = compare(&whole, &servers).unwrap();
    let front = half.paths.iter().find(|path| path.names.len() == 1).unwrap();
    assert_eq!((front.change.value, half.different_sides.len()), (0.0, 0));
}

/// Callees of different callers have one name in the trace of their server, which does not know the callers.
#[test]
fn callees_of_unknown_callers_are_compared_by_caller() {
    let place = Place::new();
    let start = |name: &str| {
        let folder = place.0.path().join(name);
        std::fs::create_dir(&folder).expect("a new folder");
        let options = Options::new(name).dir(place.run()).trace_folder(&folder).budget(None);
        (Recorder::start(options).expect("started"), folder)
    };
    let ((client, _), (server, folder)) = (start("client"), start("kv"));
    for (caller, calls) in [("read", 3), ("write", 2)] {
        for _ in 0..calls {
            let outer = client.local(client.rpc(caller), None);
            let inner = client.origin(client.rpc("put"), Some(&outer.context()));
            server.target(server.rpc("put"), &inner.context()).end(Status::Ok);
            inner.end(Status::Ok);
            outer.end(Status::Ok);
        }
    }
    [client, server].iter().for_each(|recorder| recorder.close().expect("closed"));
    let loader = Folder::open(&folder).expect("a trace");
    let trace = Trace::open(&loader).expect("readable");
    let same = compare(&trace, &trace).expect("readable");
    let mut calls: Vec<u64> = same.paths.iter().map(|path| path.calls[0]).collect();
    calls.sort_unstable();
    assert_eq!(calls, [2, 3]);
}

#[test]
fn the_page_of_findings_has_the_rules_of_the_code() {
    let page = include_str!("../../../../../docs/reference/trace-findings.md");
    for rule in RULES {
        let row = format!(
            "| `{}` | {} | {} | {} |\n",
            rule.name, rule.condition, rule.inputs, rule.advice
        );
        assert!(page.contains(&row), "the page lacks the row\n{row}");
    }
}
