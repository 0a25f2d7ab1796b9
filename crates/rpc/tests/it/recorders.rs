//! The recorder: threads, bounds, stages, variables.

use std::collections::BTreeSet;
use std::sync::Barrier;

use skopos_rpc::file::End;
use skopos_rpc::recorder::{MAX_FOREIGN, MAX_NODES, STAGE_ENDING};
use skopos_rpc::{Context, Interval, Kind, Options, PvarClass, Recorder, Stage, Status};
use skopos_shm::{Host, Publisher, Reader};

use crate::support::{Place, child_dir, eventually};

#[test]
fn each_span_of_each_thread_is_in_the_trace_or_counted() {
    const THREADS: u64 = 6;
    const SPANS: u64 = 20_000;
    let place = Place::new();
    // One ring is that of the recorder's own thread, so one thread has none.
    let recorder = Recorder::start(place.options().rings(THREADS as u32, 256)).expect("started");
    let put = recorder.rpc("put");
    let together = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                recorder.origin(put, None).end(Status::Ok);
                together.wait();
                for _ in 1..SPANS {
                    recorder.origin(put, None).end(Status::Ok);
                }
                together.wait();
            });
        }
    });
    recorder.close().expect("closed");
    let (counters, trace) = (recorder.counters(), place.read());
    assert_eq!(trace.end, Some(End::Closed));
    assert_eq!(
        (trace.lost, trace.counters.overwritten),
        (counters.overwritten, counters.overwritten)
    );
    assert!(counters.without_ring >= SPANS, "{counters:?}");
    // Of the lost records a few are samples of the process.
    let all = trace.spans.len() as u64 + trace.lost + counters.without_ring;
    assert!((THREADS * SPANS..=THREADS * SPANS + 10).contains(&all), "{all} {counters:?}");
    let ids: BTreeSet<_> = trace.spans.iter().map(|(span, _)| span.span).collect();
    assert_eq!(ids.len(), trace.spans.len(), "each id once");
    assert!(trace.spans.iter().all(|(span, _)| span.request_low != 0 && span.node != 0));
}

#[test]
fn a_ring_is_given_back_when_its_thread_ends() {
    let place = Place::new();
    let recorder = Recorder::start(place.options().rings(3, 256)).expect("started");
    let put = recorder.rpc("put");
    for _ in 0..20 {
        // A scope does not wait for the end of its threads.
        let thread = std::thread::spawn(move || recorder.origin(put, None).end(Status::Ok));
        thread.join().expect("no panic");
    }
    recorder.close().expect("closed");
    assert_eq!(recorder.counters().without_ring, 0);
    assert_eq!(place.read().spans.len(), 20);
}

#[test]
fn a_million_names_are_bounded_and_counted() {
    const NAMES: usize = 1_000_000;
    let place = Place::new();
    let recorder = Recorder::start(place.options()).expect("started");
    for number in 0..NAMES {
        let rpc = recorder.rpc(&format!("call{number}"));
        if number % 1000 == 0 {
            recorder.origin(rpc, None).end(Status::Ok);
        }
    }
    recorder.origin(recorder.rpc(&"x".repeat(10_000)), None).end(Status::Ok);
    recorder.close().expect("closed");
    let (counters, trace) = (recorder.counters(), place.read());
    assert_eq!(counters.names_refused as usize, NAMES + 1 + 1 - MAX_NODES);
    assert_eq!(trace.spans.len(), 1001);
    let named = |node: u32| trace.nodes.get(&node).map(|node| node.name.as_str());
    let names: Vec<_> = trace.spans.iter().map(|(span, _)| named(span.node)).collect();
    assert_eq!((names[0], names[65], names[66]), (Some("call0"), Some("call65000"), Some("other")));
}

#[test]
fn callpaths_that_are_one_too_many_count_as_other() {
    let place = Place::new();
    let recorder = Recorder::start(place.options().stage(Stage::Spans)).expect("started");
    let (put, get) = (recorder.rpc("put"), recorder.rpc("get"));
    let mut context = recorder.new_request();
    // A peer that invents callpaths, below which this process makes calls of its own.
    for path in 0..MAX_FOREIGN as u64 {
        context.callpath = path + 1;
        let served = recorder.target(put, &context);
        recorder.origin(get, Some(&served.context())).end(Status::Ok);
        served.end(Status::Ok);
    }
    let refused = recorder.counters().nodes_refused;
    // Half of them have a node for the target, and one for the call below; the calls below `other` share one.
    assert_eq!(refused as usize, MAX_FOREIGN - MAX_FOREIGN / 2);
    // Calls that begin here have their part of the table: their names are there, and not `other`.
    let own: Vec<_> = (0..1000).map(|call| recorder.rpc(&format!("own{call}"))).collect();
    for rpc in own {
        recorder.origin(rpc, None).end(Status::Ok);
    }
    recorder.close().expect("closed");
    let counters = recorder.counters();
    assert_eq!((counters.nodes_refused, counters.definitions_refused), (refused, 0));
    let trace = place.read();
    let others = trace.spans.iter().filter(|(span, _)| span.node == 0).count();
    assert!(others as u64 == refused || trace.lost > 0, "{others}");
    let own = trace.nodes.values().filter(|node| node.name.starts_with("own")).count();
    assert!(own == 1000 && MAX_NODES > MAX_FOREIGN, "{own}");
}

/// Names that a peer invented once filled the tables, and calls of the process itself counted as `other`.
#[test]
fn names_of_a_peer_leave_room_for_those_of_the_process() {
    let place = Place::new();
    let recorder = Recorder::start(place.options().stage(Stage::Spans)).expect("started");
    for number in 0..MAX_NODES {
        recorder.foreign_rpc(&format!("/invented/{number}"));
        recorder.foreign_peer(&format!("10.0.0.1:{number}"));
    }
    let refused = (MAX_NODES - MAX_FOREIGN) as u64;
    let counters = recorder.counters();
    assert_eq!((counters.names_refused, counters.peers_refused), (refused, refused));
    let mut call = recorder.origin(recorder.rpc("put"), None);
    call.peer(recorder.peer("n01"));
    call.end(Status::Ok);
    recorder.close().expect("closed");
    let trace = place.read();
    let (put, _) = trace.spans[0];
    assert_eq!((trace.nodes[&put.node].name.as_str(), put.peer > 0), ("put", true));
    assert_eq!(recorder.counters().names_refused, refused);
}

#[test]
fn contexts_of_a_newer_version_are_read_and_counted() {
    let place = Place::new();
    let recorder = Recorder::start(place.options()).expect("started");
    let put = recorder.rpc("put");
    let known = recorder.new_request();
    let mut bytes = known.to_bytes().to_vec();
    bytes[0] += 0x30;
    bytes.extend(b"what is new");
    let newer = Context::from_bytes(&bytes).expect("as far as it is known");
    for context in [&known, &newer, &newer] {
        let served = recorder.target(put, context);
        assert_eq!(served.context().flags, skopos_rpc::context::RECORDED);
        recorder.origin(put, Some(&served.context())).end(Status::Ok);
        served.end(Status::Ok);
    }
    recorder.close().expect("closed");
    let trace = place.read();
    assert_eq!((trace.counters.newer_contexts, trace.spans.len()), (2, 6));
    assert!(trace.spans.iter().all(|(span, _)| span.request_low == known.request_low));
}

#[test]
fn a_recorder_that_is_closed_stays_off_when_another_thread_changes_its_stage() {
    for round in 0..40 {
        let place = Place::new();
        let options = Options::new("kv").dir(place.run()).rings(1, 64).stage(Stage::Off);
        let recorder = Recorder::start(options).expect("started");
        std::thread::scope(|scope| {
            let changing =
                scope.spawn(|| (0..20_000).for_each(|_| recorder.set_stage(Stage::Full)));
            while recorder.stage() == Stage::Off {
                std::thread::yield_now();
            }
            recorder.close().expect("closed");
            changing.join().expect("no panic");
        });
        assert_eq!(recorder.stage(), Stage::Off, "round {round}");
    }
}

/// A source that panics once ended the thread of the recorder, and nothing was written any more.
#[test]
fn a_variable_whose_source_panics_is_named_in_the_trace_and_recording_goes_on() {
    let place = Place::new();
    let recorder = Recorder::start(place.options()).expect("started");
    let registry = recorder.pvars();
    registry.register_source("broken", PvarClass::Level, "", || panic!("no pool")).expect("new");
    registry.register_source("posted", PvarClass::Level, "", || 5).expect("new");
    eventually("the failure", || (recorder.counters().sources_failed == 1).then_some(()));
    let samples = place.read().samples.len();
    eventually("a later sample", || (place.read().samples.len() > samples).then_some(()));
    recorder.origin(recorder.rpc("put"), None).end(Status::Ok);
    recorder.close().expect("closed");
    let trace = place.read();
    let failed = [("broken".to_owned(), "no pool".to_owned())].into();
    assert_eq!(trace.processes.last().expect("described").failed_variables, failed);
    let posted = trace.pvars.values().find(|pvar| pvar.name == "posted").expect("a definition");
    let values = trace.samples.iter().flat_map(|sample| sample.values);
    assert!(values.filter(|v| v.pvar() == Some(posted.number)).all(|v| v.value() == 5));
}

#[test]
fn each_stage_records_what_it_says() {
    let place = Place::new();
    let recorder = Recorder::start(place.options().stage(Stage::Off)).expect("started");
    let put = recorder.rpc("put");
    let call = || {
        let mut span = recorder.origin(put, None);
        span.interval(Interval::InputSerialization, 5);
        let context = span.context();
        span.end(Status::Ok);
        context.flags
    };
    assert_eq!(call(), 0);
    recorder.set_stage(Stage::Context);
    assert_eq!(call(), skopos_rpc::context::RECORDED);
    recorder.set_stage(Stage::Spans);
    call();
    recorder.set_stage(Stage::Full);
    call();
    recorder.close().expect("closed");
    assert_eq!((call(), recorder.stage()), (0, Stage::Off));
    let trace = place.read();
    let details: Vec<_> =
        trace.spans.iter().map(|(span, values)| (span.details, values.len())).collect();
    assert_eq!(details, [(0, 0), (1, 1)]);
    let unknown = Recorder::off().new_request();
    assert_ne!(unknown.request_low, 0);
    assert!(Context::from_bytes(&unknown.to_bytes()).is_ok());
}

#[test]
fn requests_of_callers_that_record_nothing_are_told_apart() {
    let place = Place::new();
    let recorder = Recorder::start(place.options()).expect("started");
    let put = recorder.rpc("put");
    let unknown = Recorder::off().origin(put, None).context();
    for _ in 0..2 {
        recorder.target(put, &unknown).end(Status::Ok);
        recorder.origin(put, Some(&unknown)).end(Status::Ok);
    }
    recorder.close().expect("closed");
    let spans = place.read().spans;
    let requests: BTreeSet<_> = spans.iter().map(|(span, _)| span.request_low).collect();
    let ids: BTreeSet<_> = spans.iter().map(|(span, _)| span.span).collect();
    assert_eq!((spans.len(), requests.len(), ids.len()), (4, 4, 4));
    assert!(!requests.contains(&unknown.request_low) && !ids.contains(&0));
}

#[test]
fn a_file_beside_the_segment_sets_the_stage_of_all_processes_of_a_service() {
    let place = Place::new();
    let recorder = Recorder::start(place.options()).expect("started");
    let file = place.run().join(format!("kv.{STAGE_ENDING}"));
    let becomes = |stage| eventually("the stage", || (recorder.stage() == stage).then_some(()));
    std::fs::write(&file, "context\n").expect("written");
    becomes(Stage::Context);
    // The program's wish waits for the end of the file.
    recorder.set_stage(Stage::Spans);
    assert_eq!(recorder.stage(), Stage::Context);
    std::fs::write(&file, "no stage").expect("written");
    becomes(Stage::Spans);
    std::fs::write(&file, "full").expect("written");
    becomes(Stage::Full);
    std::fs::remove_file(&file).expect("removed");
    becomes(Stage::Spans);
    recorder.close().expect("closed");
}

#[test]
fn spans_nest_below_the_current_context() {
    let place = Place::new();
    let recorder = Recorder::start(place.options()).expect("started");
    let (put, get) = (recorder.rpc("put"), recorder.rpc("get"));
    let mut served = recorder.target(put, &recorder.new_request());
    served.begin();
    let inside = served.context();
    {
        let _here = inside.attach();
        for _ in 0..2 {
            let below = recorder.origin(get, Context::current().as_ref());
            served.exclude(below.end(Status::Ok));
        }
        drop(recorder.local(get, Context::current().as_ref()));
    }
    served.end(Status::Ok);
    recorder.close().expect("closed");
    let trace = place.read();
    let spans: Vec<_> = trace.spans.iter().map(|(span, _)| *span).collect();
    let [first, second, step, target] = spans[..] else { panic!("{spans:?}") };
    assert_eq!([first.order, second.order, step.order], [1, 2, 3]);
    assert!([first, second, step].iter().all(|span| span.parent == target.span));
    assert_eq!((step.kind, step.status), (Kind::Local, Status::Cancelled));
    let clocks = [first.lamport, second.lamport, step.lamport, target.lamport];
    assert!(clocks.is_sorted_by(|a, b| a < b), "{clocks:?}");
    let path = trace.nodes[&first.node].parent_hash;
    assert_eq!((path, inside.callpath), (trace.nodes[&target.node].hash, path));
}

#[test]
fn variables_of_the_process_are_samples_and_facts() {
    let place = Place::new();
    let publisher = Publisher::builder("facts").dir(place.run()).create().expect("made");
    let options = place.options().node("n01").publish(publisher);
    let recorder = Recorder::start(options).expect("started");
    let registry = recorder.pvars();
    registry.register_source("pool depth", PvarClass::Level, "", || 42).expect("new");
    let mut host = Host::open_dirs(vec![place.run()]).expect("readable");
    let topic = "n01/rpc/kv/pvar/pool%20depth";
    let value = eventually("the fact", || {
        host.refresh().ok()?;
        let reader: Reader<u64> = host.reader(topic).ok()?;
        reader.get().ok()
    });
    assert_eq!(value, 42);
    recorder.close().expect("closed");
    let trace = place.read();
    let values: Vec<_> = trace.samples.iter().flat_map(|s| s.values).collect();
    let of = |name: &str| {
        let pvar = trace.pvars.values().find(|pvar| pvar.name == name).expect("a definition");
        values.iter().filter(|v| v.pvar() == Some(pvar.number)).map(|v| v.value()).max()
    };
    assert_eq!(of("pool depth"), Some(42));
    assert!(of("process_resident_bytes").is_some_and(|bytes| bytes > 1 << 20));
    assert!(of("process_cpu_us").is_some());
}

#[test]
fn the_budget_switches_details_off_and_then_spans() {
    let place = Place::new();
    // A millionth of a core is less than the recorder's own thread takes.
    let recorder = Recorder::start(place.options().budget(Some(1e-7))).expect("started");
    eventually("the second step", || (recorder.stage() == Stage::Context).then_some(()));
    recorder.close().expect("closed");
    let counters = place.read().counters;
    assert_eq!((counters.budget_steps, counters.stage_wanted), (2, Stage::Full as u32));
    assert!(counters.overhead_ns > 0);
}

#[test]
fn the_trace_on_disk_is_bounded_and_deleted_records_are_counted() {
    const SPANS: u64 = 120_000;
    let place = Place::new();
    let options = place.options().max_trace_bytes(1).rings(2, 65_536);
    let recorder = Recorder::start(options.config("databases", 1)).expect("started");
    let put = recorder.rpc("put");
    for span in 0..SPANS {
        recorder.origin(put, None).end(Status::Ok);
        if span % 5000 == 0 {
            recorder.flush().expect("written");
        }
    }
    recorder.set_config("databases", 4).expect("room");
    recorder.close().expect("closed");
    let (counters, trace) = (recorder.counters(), place.read());
    assert!(counters.deleted > 0 && trace.parts >= 1, "{counters:?}");
    let all = trace.spans.len() as u64
        + trace.samples.len() as u64
        + counters.deleted
        + counters.overwritten;
    assert!((SPANS..=SPANS + 60).contains(&all), "{all}: {counters:?}");
    let bytes: u64 = std::fs::read_dir(place.traces())
        .expect("a folder")
        .map(|file| file.expect("a file").metadata().expect("a file").len())
        .sum();
    assert!(bytes < 4 << 20, "{bytes}");
    // Each part stands alone.
    assert!(trace.processes.iter().all(|process| process.name == "kv" && process.pid > 0));
    assert!(trace.spans.iter().all(|(span, _)| trace.nodes.contains_key(&span.node)));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_or_counted() {
    let place = Place::new();
    let options = Options::new("kv").dir(place.run()).trace_folder(place.run().join("nothing"));
    let error = Recorder::start(options).expect_err("no folder");
    assert!(error.to_string().contains("nothing"), "{error}");
    let recorder = Recorder::start(place.options()).expect("the segment was taken back");
    recorder.origin(recorder.rpc("put"), None).end(Status::Ok);
    recorder.close().expect("closed");
}

#[test]
#[ignore = "a child of the test below"]
fn record_and_exit() {
    let Some(dir) = child_dir() else { return };
    let options = Options::new("kv").dir(dir.join("run")).trace_folder(dir.join("traces"));
    let recorder = Recorder::start(options.budget(None)).expect("started");
    recorder.origin(recorder.rpc("put"), None).end(Status::Ok);
    std::process::exit(0);
}

#[test]
fn the_end_of_a_process_closes_its_trace() {
    let place = Place::new();
    let mut child = place.child("recorders::record_and_exit");
    // To wait for it would close its standard input, and that would end it.
    let status = eventually("the end of the child", || child.0.try_wait().expect("our own child"));
    assert!(status.success(), "{status}");
    let trace = place.read();
    assert_eq!((trace.spans.len(), trace.end), (1, Some(End::Closed)));
}
