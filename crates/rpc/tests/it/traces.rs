//! The trace that a recorder writes, read back.

use std::path::{Path, PathBuf};

use skopos_rpc::file::{Definition, End};
use skopos_rpc::{Frame, Frames, Interval, Kind, Options, Record, Recorder, SpanRecord, Status};

fn traces(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files
}

/// Returns all spans of a trace, and its end.
fn spans(path: &Path) -> (Vec<SpanRecord>, Option<End>) {
    let mut frames = Frames::open(path).expect("a trace");
    let (mut spans, mut end) = (Vec::new(), None);
    while let Some(frame) = frames.next_frame().expect("readable") {
        match frame {
            Frame::Records(records) => {
                let decoded = records.iter().map(|record| record.expect("a known kind"));
                spans.extend(decoded.filter_map(|record| match record {
                    Record::Span(span) => Some(span),
                    _ => None,
                }));
            }
            Frame::End(reason) => end = Some(reason),
            _ => {}
        }
    }
    assert_eq!((frames.tear(), frames.damaged()), (None, 0));
    (spans, end)
}

#[test]
fn both_sides_of_a_call_are_in_the_trace() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("traces");
    std::fs::create_dir(&folder).expect("a folder");
    let options = Options::new("kv").trace_folder(&folder).dir(dir.path().join("run"));
    let recorder = Recorder::start(options).expect("started");
    let put = recorder.rpc("put");
    let call = recorder.origin(put, None);
    let mut served = recorder.target(put, &call.context());
    served.begin();
    served.interval(Interval::InputDeserialization, 5);
    served.end(Status::Ok);
    call.end(Status::Error);
    recorder.close().expect("closed");
    let files = traces(&folder);
    assert_eq!(files.len(), 1);
    let (spans, end) = spans(&files[0]);
    assert_eq!(end, Some(End::Closed));
    let [target, origin] = spans[..] else { panic!("{spans:?}") };
    assert_eq!((target.kind, origin.kind), (Kind::Target, Kind::Origin));
    assert_eq!((target.span, target.request_low), (origin.span, origin.request_low));
    assert_eq!((target.status, origin.status), (Status::Ok, Status::Error));
    assert_eq!((target.node, target.details, origin.details), (origin.node, 1, 0));
    assert!(target.lamport < origin.lamport);
    let mut frames = Frames::open(&files[0]).expect("a trace");
    let mut names = Vec::new();
    while let Some(frame) = frames.next_frame().expect("readable") {
        if let Frame::Definition(Definition::Node(node)) = frame {
            names.push((node.id, node.name));
        }
    }
    assert!(names.contains(&(origin.node, "put".to_owned())), "{names:?}");
}

#[test]
fn a_torn_trace_is_read_up_to_the_tear() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::new("kv").trace_folder(dir.path()).dir(dir.path().join("run"));
    let recorder = Recorder::start(options).expect("started");
    let put = recorder.rpc("put");
    for _ in 0..10 {
        recorder.origin(put, None).end(Status::Ok);
    }
    recorder.close().expect("closed");
    let is_trace = |path: &PathBuf| path.extension().is_some_and(|e| e == "sktrace");
    let path = traces(dir.path()).into_iter().find(is_trace).expect("a trace");
    let whole = std::fs::read(&path).expect("readable");
    let read = |bytes: &[u8]| -> Option<(usize, Option<u64>)> {
        let mut frames = Frames::new(bytes, &path, bytes.len() as u64).ok()?;
        let mut count = 0;
        while frames.next_frame().expect("memory").is_some() {
            count += 1;
        }
        Some((count, frames.tear().map(|tear| tear.at + tear.bytes)))
    };
    let (all, _) = read(&whole).expect("a trace");
    let mut before = 0;
    for length in 0..whole.len() {
        let Some((count, tear)) = read(&whole[..length]) else { continue };
        assert!((before..=all).contains(&count), "{length}: {count}");
        assert!(tear.is_none_or(|end| end == length as u64), "{length}");
        before = count;
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        if let Some((count, _)) = read(&damaged) {
            assert!(count < all, "{at}");
        }
    }
}
