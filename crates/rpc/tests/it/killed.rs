//! Processes that are killed, and processes that an agent drains.

use std::collections::BTreeMap;
use std::time::Duration;

use skopos_rpc::drain::Segments;
use skopos_rpc::file::End;
use skopos_rpc::{Options, PvarClass, Recorder, Stage, Status};
use skopos_shm::records::{RecordReader, record_segments};

use crate::support::{Place, child_dir, eventually};

/// Kills of each kind.
const KILLS: u32 = 4;
/// Bound on a trace.
const LIMIT: u64 = 1 << 30;

/// Records calls whose peers count up, until the process is killed. The order of the spans is in a variable.
fn record_for_ever(options: Options) {
    let recorder = Recorder::start(options.budget(None).stage(Stage::Full)).expect("started");
    let number = recorder.pvars().register("number", PvarClass::Counter, "").expect("new");
    let names: Vec<_> = (0..50).map(|n| recorder.rpc(&format!("call{n}"))).collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for count in 0u64.. {
                    let mut span = recorder.origin(names[count as usize % names.len()], None);
                    span.pvar(&number, count);
                    span.end(Status::Ok);
                    if count % 64 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
    });
}

#[test]
#[ignore = "a child of the tests below"]
fn record_with_a_trace() {
    let Some(dir) = child_dir() else { return };
    record_for_ever(Options::new("kv").dir(dir.join("run")).trace_folder(dir.join("traces")));
}

#[test]
#[ignore = "a child of the tests below"]
fn record_without_a_trace() {
    let Some(dir) = child_dir() else { return };
    record_for_ever(Options::new("kv").dir(dir.join("run")));
}

/// Checks that each ring has each number once and in order, but for those that are counted as lost.
fn check(place: &Place) {
    let trace = place.read();
    assert_eq!(trace.end, Some(End::Recovered));
    assert!(!trace.spans.is_empty());
    // The two threads count alike: each number is there at most twice, and nearly all are.
    let mut times: BTreeMap<u64, u32> = BTreeMap::new();
    for (span, details) in &trace.spans {
        assert_eq!(span.details as usize, details.len(), "{span:?}");
        assert!(trace.nodes.contains_key(&span.node), "node {} has no name", span.node);
        if let Some(values) = details.first() {
            *times.entry(values[0].value()).or_default() += 1;
        }
    }
    assert!(times.values().all(|count| *count <= 2), "a record is there twice");
    assert!(trace.processes.iter().all(|process| process.name == "kv" && process.pid > 0));
    if trace.lost == 0 {
        let firsts = times.keys().enumerate().filter(|(at, number)| *at as u64 == **number);
        assert_eq!(firsts.count(), times.len(), "a number is missing");
    }
    let mut spans: Vec<_> = trace.spans.iter().map(|(span, _)| span.span).collect();
    spans.sort_unstable();
    let count = spans.len();
    spans.dedup();
    assert_eq!(spans.len(), count, "a span is there twice");
}

#[test]
fn the_rest_of_a_killed_process_is_recovered_behind_its_own_trace() {
    for round in 0..KILLS {
        let place = Place::new();
        let mut child = place.child("killed::record_with_a_trace");
        eventually("a trace", || (!place.read().spans.is_empty()).then_some(()));
        std::thread::sleep(Duration::from_millis(u64::from(round) * 13));
        child.0.kill().expect("our own child");
        child.0.wait().expect("our own child");
        let mut segments = Segments::new(vec![place.run()], place.0.path().join("unused"), LIMIT);
        let work = segments.poll();
        assert!(work.failures.is_empty(), "{:?}", work.failures);
        assert_eq!((work.live, work.watched, work.ended.len()), (0, 0, 1));
        assert!(work.ended[0].starts_with(place.traces()));
        check(&place);
        let again = segments.poll();
        assert!(again.ended.is_empty() && again.failures.is_empty(), "the segment is removed");
    }
}

#[test]
fn an_agent_drains_processes_without_a_trace_and_recovers_them() {
    for round in 0..KILLS {
        let place = Place::new();
        let mut child = place.child("killed::record_without_a_trace");
        let mut segments = Segments::new(vec![place.run()], place.traces(), LIMIT);
        let until = 3 + round;
        let (mut polls, mut records, mut lost) = (0, 0, 0);
        eventually("records", || {
            let work = segments.poll();
            // The segment may be found before it is finished.
            (records, lost) = (records + work.records, lost + work.lost);
            polls += u32::from(work.live == 1 && work.records > 0);
            (polls >= until).then_some(())
        });
        child.0.kill().expect("our own child");
        child.0.wait().expect("our own child");
        let work = segments.poll();
        assert!(work.failures.is_empty(), "{:?}", work.failures);
        assert_eq!((work.live, work.ended.len()), (0, 1));
        check(&place);
        let trace = place.read();
        let written: usize = trace.spans.iter().map(|(_, details)| 1 + details.len()).sum();
        let written = (written + trace.samples.len()) as u64;
        assert!(written == records + work.records || trace.lost > 0);
        assert_eq!(trace.lost, lost + work.lost);
    }
}

/// An end that failed once brought all records a second time, with each look.
#[test]
fn a_dead_process_whose_segment_cannot_be_removed_is_written_once() {
    let place = Place::new();
    let recorder = Recorder::start(Options::new("kv").dir(place.run())).expect("started");
    let put = recorder.rpc("put");
    for _ in 0..100 {
        recorder.origin(put, None).end(Status::Ok);
    }
    recorder.close().expect("closed");
    // A folder in the place of the file that is locked while a segment is removed.
    let lock = place.run().join(".lock");
    std::fs::remove_file(&lock).expect("made by the recorder");
    std::fs::create_dir(&lock).expect("a folder");
    let mut segments = Segments::new(vec![place.run()], place.traces(), LIMIT);
    let (mut records, mut ended) = (0, 0);
    for _ in 0..4 {
        let work = segments.poll();
        assert_eq!(work.failures.len(), 1, "{:?}", work.failures);
        (records, ended) = (records + work.records, ended + work.ended.len());
    }
    std::fs::remove_dir(&lock).expect("empty");
    // Another agent begins meanwhile: it finds the records of the first one.
    let work = Segments::new(vec![place.run()], place.traces(), LIMIT).poll();
    assert!(work.failures.is_empty() && work.records == 0, "{work:?}");
    let trace = place.read();
    assert_eq!((records, ended, trace.spans.len()), (100, 1, 100));
    assert_eq!(trace.end, Some(End::Closed));
    assert_eq!(segments.poll().records, 0, "the segment has gone");
}

/// Segments that a new process of the service removes had records that nothing counted.
#[test]
fn records_in_removed_segments_of_dead_processes_are_counted() {
    const DEAD: usize = 6;
    let place = Place::new();
    let children: Vec<_> =
        (0..DEAD).map(|_| place.child("killed::record_without_a_trace")).collect();
    let segments = || -> Vec<RecordReader> {
        let paths = record_segments(&place.run()).unwrap_or_default();
        paths.iter().filter_map(|path| RecordReader::open(path).ok()).collect()
    };
    let waiting = |segment: &RecordReader| {
        (0..segment.rings()).map(|ring| segment.waiting(ring)).sum::<u64>()
    };
    let recorded = || segments().iter().filter(|segment| waiting(segment) > 0).count() == DEAD;
    eventually("records of all", || recorded().then_some(()));
    drop(children);
    let mut dead = segments();
    dead.sort_by_key(RecordReader::created_at);
    let expected: u64 = dead[..DEAD - 4].iter().map(waiting).sum();
    let recorder = Recorder::start(Options::new("kv").dir(place.run())).expect("started");
    let removed = recorder.counters().removed_dead;
    recorder.close().expect("closed");
    assert!(removed > 0 && removed == expected, "{removed} of {expected}");
}

/// An agent that starts again once wrote all records of the rings a second time.
#[test]
fn an_agent_that_starts_again_writes_no_record_twice() {
    let place = Place::new();
    let recorder = Recorder::start(Options::new("kv").dir(place.run())).expect("started");
    let put = recorder.rpc("put");
    let (mut records, mut lost) = (0, 0);
    for round in 1..=3 {
        for _ in 0..100 * round {
            recorder.origin(put, None).end(Status::Ok);
        }
        let work = Segments::new(vec![place.run()], place.traces(), LIMIT).poll();
        assert!(work.failures.is_empty(), "{:?}", work.failures);
        (records, lost) = (records + work.records, lost + work.lost);
    }
    recorder.close().expect("closed");
    let trace = place.read();
    let mut spans: Vec<_> = trace.spans.iter().map(|(span, _)| span.span).collect();
    assert_eq!((spans.len(), lost), (600, 0), "{records} records were written");
    spans.sort_unstable();
    spans.dedup();
    assert_eq!(spans.len(), 600);
}

#[test]
fn a_closed_process_without_a_trace_leaves_its_records_to_the_agent() {
    let place = Place::new();
    let recorder = Recorder::start(Options::new("kv").dir(place.run())).expect("started");
    recorder.origin(recorder.rpc("put"), None).end(Status::Ok);
    recorder.close().expect("closed");
    let mut segments = Segments::new(vec![place.run()], place.traces(), LIMIT);
    let work = segments.poll();
    assert!(work.failures.is_empty(), "{:?}", work.failures);
    assert_eq!(work.ended.len(), 1);
    let trace = place.read();
    assert_eq!((trace.spans.len(), trace.end), (1, Some(End::Closed)));
}
