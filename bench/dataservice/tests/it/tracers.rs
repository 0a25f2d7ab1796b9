//! A recorder of another project gets the calls that Skopos would record.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_dataservice::Result;
use skopos_dataservice::config::Config;
use skopos_dataservice::rpcs::Rpc;
use skopos_dataservice::tracer::{TracedSide, Tracer};
use skopos_rpc::{Context, Interval, Kind};

use crate::setup::Service;

/// A wait that only ends a hang.
const LONG: Duration = Duration::from_secs(60);

/// A side that has ended.
#[derive(Clone, Debug)]
struct Ended {
    kind: Kind,
    rpc: &'static str,
    span: u64,
    parent: u64,
    intervals: Vec<Interval>,
    values: BTreeMap<&'static str, u64>,
    has_begun: bool,
    has_responded: bool,
    is_ok: bool,
}

type Book = Arc<Mutex<Vec<Ended>>>;

/// A recorder that keeps the sides in a list.
#[derive(Debug)]
struct Lister {
    has_values: bool,
    next: AtomicU64,
    book: Book,
}

#[derive(Debug)]
struct Side {
    book: Book,
    ended: Ended,
}

impl Lister {
    fn side(&self, kind: Kind, rpc: Rpc, parent: u64) -> Box<dyn TracedSide> {
        let ended = Ended {
            kind,
            rpc: rpc.name(),
            span: self.next.fetch_add(1, Ordering::Relaxed),
            parent,
            intervals: Vec::new(),
            values: BTreeMap::new(),
            has_begun: false,
            has_responded: false,
            is_ok: false,
        };
        Box::new(Side { book: Arc::clone(&self.book), ended })
    }
}

impl Tracer for Lister {
    fn has_values(&self) -> bool {
        self.has_values
    }

    fn origin(&self, rpc: Rpc, parent: Option<&Context>) -> Box<dyn TracedSide> {
        self.side(Kind::Origin, rpc, parent.map_or(0, |parent| parent.span))
    }

    fn target(&self, rpc: Rpc, context: &[u8; 32]) -> Box<dyn TracedSide> {
        let parent = context.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        self.side(Kind::Target, rpc, parent)
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

impl TracedSide for Side {
    fn context(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.ended.span.to_le_bytes());
        bytes
    }

    fn parent(&self) -> Context {
        Context {
            request_low: 1,
            request_high: 0,
            span: self.ended.span,
            callpath: 0,
            lamport: 0,
            order: 0,
            flags: 0,
        }
    }

    fn begin(&mut self) {
        self.ended.has_begun = true;
    }

    fn respond(&mut self) {
        self.ended.has_responded = true;
    }

    fn interval(&mut self, interval: Interval, _ns: u64) {
        self.ended.intervals.push(interval);
    }

    fn value(&mut self, name: &'static str, value: u64) {
        self.ended.values.insert(name, value);
    }

    fn end(self: Box<Self>, is_ok: bool) {
        let Self { book, ended } = *self;
        book.lock().expect("no panic").push(Ended { is_ok, ..ended });
    }
}

/// Writes an object, which is one call with twelve calls below it, and returns all sides.
fn sides(has_values: bool) -> Vec<Ended> {
    let book = Book::default();
    let lister = Lister { has_values, next: AtomicU64::new(1), book: Arc::clone(&book) };
    let other: Arc<dyn Tracer> = Arc::new(lister);
    let service = Service::recorded_by(&Config::default(), Some(&other));
    service.finish(service.names().write(b"object", b"content")).expect("written");
    // A target ends after its response is sent.
    let begun = Instant::now();
    loop {
        let ended = book.lock().expect("no panic").clone();
        if ended.len() >= 26 || begun.elapsed() > LONG {
            return ended;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn another_recorder_gets_both_sides_of_each_call() {
    let sides = sides(true);
    let of = |kind: Kind| sides.iter().filter(move |side| side.kind == kind);
    assert_eq!((of(Kind::Origin).count(), of(Kind::Target).count()), (13, 13));
    for target in of(Kind::Target) {
        let origin = of(Kind::Origin).find(|origin| origin.span == target.parent);
        assert_eq!(origin.map(|origin| origin.rpc), Some(target.rpc));
        assert!(target.is_ok && target.has_begun && target.has_responded, "{target:?}");
        assert!(target.values.contains_key("pool_depth"), "{target:?}");
        assert!(target.intervals.contains(&Interval::InputDeserialization), "{target:?}");
    }
    let write = of(Kind::Target).find(|side| side.rpc == "mobject_write_op").expect("a write");
    assert!(write.intervals.contains(&Interval::Children), "{write:?}");
    let below = of(Kind::Origin).filter(|origin| origin.parent == write.span);
    assert_eq!(below.count(), 12);
    for origin in of(Kind::Origin) {
        assert!(origin.values.contains_key("completion_queue_read"), "{origin:?}");
        assert!(origin.intervals.contains(&Interval::InputSerialization), "{origin:?}");
    }
}

#[test]
fn a_recorder_without_values_gets_spans_only() {
    for side in sides(false) {
        assert!(side.is_ok && side.values.is_empty() && side.intervals.is_empty(), "{side:?}");
    }
}
