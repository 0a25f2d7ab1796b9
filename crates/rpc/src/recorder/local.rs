//! The part of a recorder that each thread has for itself: its ring, the source of its ids, its Lamport clock, and the
//! callpath nodes that it met last.

use std::cell::{RefCell, RefMut};
use std::hash::{BuildHasher as _, RandomState};

use skopos_shm::records::layout::Counter;
use skopos_shm::records::{RecordWriter, Stored};

use crate::recorder::core::{Inner, Rpc, Source, hash_of};

/// Number of callpath nodes that a thread keeps at hand, a power of two: 6 KiB.
const KEPT_NODES: usize = 256;

/// The furthest that the clock of another process moves ours at once: the events of a process with a thousand calls a second
/// in a day and a half. A thread that is further behind an honest clock reaches it in a few calls.
const MAX_JUMP: u32 = 1 << 28;
/// The greatest clock of another process that is believed. So whatever others send, a thread has two thousand million events
/// left until its own clock is at its end.
const MAX_BELIEVED: u32 = 1 << 31;

/// A callpath node that the thread met.
#[derive(Clone, Copy)]
struct KeptNode {
    parent_hash: u64,
    hash: u64,
    rpc: u32,
    node: u32,
}

/// The part that belongs to one recorder.
struct Local {
    recorder: u64,
    writer: Option<RecordWriter>,
    nodes: Box<[KeptNode; KEPT_NODES]>,
}

/// The part of a thread.
struct OfThread {
    random: u64,
    /// Upper half of the ids of requests that begin here.
    high: u64,
    lamport: u32,
    /// Of each recorder; nearly always one.
    locals: Vec<Local>,
}

thread_local! {
    static THREAD: RefCell<OfThread> = const {
        RefCell::new(OfThread { random: 0, high: 0, lamport: 0, locals: Vec::new() })
    };
}

/// The values that the beginning of a span takes from its thread.
#[derive(Clone, Copy)]
pub(crate) struct Begin {
    pub(crate) node: u32,
    /// Hash of the node.
    pub(crate) hash: u64,
    pub(crate) lamport: u32,
    /// A fresh id of a span.
    pub(crate) span: u64,
    /// A fresh id of a request: upper and lower half.
    pub(crate) request: (u64, u64),
}

impl OfThread {
    /// Returns 64 random bits that are not 0. The generator is SplitMix64: fast, not secret.
    #[inline]
    fn id(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        if bits == 0 { 1 } else { bits }
    }

    /// Moves the Lamport clock past an event of another thread or process, whose clock was `seen`, and returns it.
    #[inline]
    fn advance(&mut self, inner: &Inner, seen: u32) -> u32 {
        let before = self.lamport;
        let mut after = before.max(seen);
        if after - before > MAX_JUMP || after > MAX_BELIEVED {
            after = before.max(seen.min(MAX_BELIEVED).min(before.saturating_add(MAX_JUMP)));
            if after < seen {
                inner.count(Counter::ClocksBounded);
            }
        }
        self.lamport = after.saturating_add(1);
        self.lamport
    }

    #[inline]
    fn local(&mut self, inner: &Inner) -> &mut Local {
        // Nearly always the first.
        let is_first = self.locals.first().is_some_and(|local| local.recorder == inner.id);
        let at = if is_first { 0 } else { self.find(inner) };
        &mut self.locals[at]
    }

    #[cold]
    fn find(&mut self, inner: &Inner) -> usize {
        let at = self.locals.iter().position(|local| local.recorder == inner.id);
        at.unwrap_or_else(|| self.add(inner))
    }

    /// Takes part in a recorder. Ids begin anew: after a fork the child would repeat those of its parent.
    fn add(&mut self, inner: &Inner) -> usize {
        let seed = RandomState::new();
        self.random = seed.hash_one(inner.ticks.now());
        self.high = seed.hash_one((inner.id, std::process::id(), self.random));
        // Recorders that were closed keep no ring.
        self.locals.retain(|local| local.writer.as_ref().is_none_or(|w| !w.is_over()));
        let empty = KeptNode { parent_hash: 0, hash: 0, rpc: u32::MAX, node: 0 };
        let nodes = Box::new([empty; KEPT_NODES]);
        self.locals.push(Local { recorder: inner.id, writer: inner.segment.claim(), nodes });
        self.locals.len() - 1
    }
}

impl Local {
    /// Asks for a ring again, for the next record: one may be free by now. This record has none.
    #[cold]
    fn claim(&mut self, inner: &Inner) -> Option<Stored> {
        self.writer = inner.segment.claim();
        None
    }

    #[inline]
    fn node(&mut self, inner: &Inner, parent_hash: u64, rpc: Rpc, source: Source) -> (u32, u64) {
        let at = (parent_hash ^ rpc.hash ^ (rpc.hash >> 32)) as usize % KEPT_NODES;
        let kept = &mut self.nodes[at];
        if kept.parent_hash != parent_hash || kept.rpc != rpc.id {
            let node = inner.node(parent_hash, rpc, source);
            let hash = hash_of(node, parent_hash, rpc);
            *kept = KeptNode { parent_hash, hash, rpc: rpc.id, node };
        }
        (kept.node, kept.hash)
    }
}

/// Runs `work` with the part of this thread. `None` in a thread that is ending, and in a signal handler that interrupted such
/// work.
#[inline]
fn with_thread<T>(work: impl FnOnce(RefMut<'_, OfThread>) -> T) -> Option<T> {
    let taken = THREAD.try_with(|thread| thread.try_borrow_mut().ok().map(work));
    taken.ok().flatten()
}

/// Begins a span of `rpc` below the path `parent_hash`, which comes from `source`, after an event with the clock `lamport`.
/// `None`, counted as a record without a ring, in a thread that is ending or already at it.
#[inline]
pub(crate) fn begin(
    inner: &Inner,
    (parent_hash, source): (u64, Source),
    rpc: Rpc,
    lamport: u32,
) -> Option<Begin> {
    let begun = with_thread(|mut thread| {
        let thread = &mut *thread;
        let (node, hash) = thread.local(inner).node(inner, parent_hash, rpc, source);
        let lamport = thread.advance(inner, lamport);
        let (span, low) = (thread.id(), thread.id());
        Begin { node, hash, lamport, span, request: (thread.high, low) }
    });
    if begun.is_none() {
        without_ring(inner, 1);
    }
    begun
}

/// Ends a span after an event with the clock `lamport`: `encode` gets the Lamport clock of the end and hands records on, which
/// are stored in the ring of the thread, or counted.
#[inline]
pub(crate) fn end<const N: usize>(
    inner: &Inner,
    lamport: u32,
    count: usize,
    encode: impl FnOnce(u32) -> [[u64; 8]; N],
) -> Stored {
    let stored = with_thread(|mut thread| {
        let thread = &mut *thread;
        let lamport = thread.advance(inner, lamport);
        let local = thread.local(inner);
        let Some(writer) = &mut local.writer else { return local.claim(inner) };
        let records = encode(lamport);
        Some(writer.push(records.get(..count).unwrap_or(&records)))
    });
    match stored {
        Some(Some(outcome)) => outcome,
        // A thread that is ending or already at it, or one without a ring.
        _ => without_ring(inner, count),
    }
}

#[cold]
fn without_ring(inner: &Inner, count: usize) -> Stored {
    inner.segment.count(Counter::WithoutRing, count as u64);
    Stored::Yes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Recorder, Stage, Status};

    fn recorder(name: &str, dir: &tempfile::TempDir) -> Recorder {
        Recorder::start(Options::new(name).dir(dir.path()).stage(Stage::Spans)).expect("started")
    }

    /// A signal handler can interrupt the begin or the end of a span of its thread; it once panicked there.
    #[test]
    fn a_call_within_the_work_of_a_span_records_nothing_and_is_counted() {
        let dir = tempfile::tempdir().expect("a folder");
        let recorder = recorder("interrupted", &dir);
        let put = recorder.rpc("put");
        let open = recorder.origin(put, None);
        THREAD.with(|thread| {
            let _at_work = thread.borrow_mut();
            assert!(!recorder.origin(put, None).is_recorded());
            open.end(Status::Ok);
        });
        assert!(recorder.origin(put, None).is_recorded());
        assert_eq!(recorder.counters().without_ring, 2);
        recorder.close().expect("closed");
    }

    #[test]
    fn the_clock_of_another_process_moves_ours_by_a_bounded_step() {
        let dir = tempfile::tempdir().expect("a folder");
        let recorder = recorder("clocks", &dir);
        let (put, mut context) = (recorder.rpc("put"), recorder.new_request());
        let mut served = |lamport| {
            context.lamport = lamport;
            recorder.target(put, &context).context().lamport
        };
        let first = served(1000);
        assert_eq!((first, recorder.counters().clocks_bounded), (1001, 0));
        let jumped = served(u32::MAX);
        assert!((MAX_JUMP..MAX_JUMP + 2000).contains(&jumped), "{jumped}");
        // An honest clock that is far ahead is reached in a few calls; an impossible one never is.
        assert_eq!(
            (0..8).map(|_| served(900_000_000)).last().map(|c| c >= 900_000_000),
            Some(true)
        );
        let last = (0..100).map(|_| served(u32::MAX)).last().unwrap_or(0);
        assert!((MAX_BELIEVED..MAX_BELIEVED + 1000).contains(&last), "{last}");
        assert!(recorder.counters().clocks_bounded > 100);
        recorder.close().expect("closed");
    }
}
