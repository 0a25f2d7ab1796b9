//! The part of a recorder that each thread has for itself: its ring, the source of its ids, its Lamport clock, and the
//! callpath nodes that it met last.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};

use skopos_shm::records::layout::Counter;
use skopos_shm::records::{RecordWriter, Stored};

use crate::callpath::child;
use crate::recorder::core::{Inner, Rpc};

/// Number of callpath nodes that a thread keeps at hand, a power of two: 6 KiB.
const KEPT_NODES: usize = 256;

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
    fn node(&mut self, inner: &Inner, parent_hash: u64, rpc: Rpc) -> (u32, u64) {
        let at = (parent_hash ^ rpc.hash ^ (rpc.hash >> 32)) as usize % KEPT_NODES;
        let kept = &mut self.nodes[at];
        if kept.parent_hash != parent_hash || kept.rpc != rpc.id {
            let (node, hash) = (inner.node(parent_hash, rpc), child(parent_hash, rpc.hash));
            *kept = KeptNode { parent_hash, hash, rpc: rpc.id, node };
        }
        (kept.node, kept.hash)
    }
}

/// Begins a span of `rpc` below the path `parent_hash`, after an event with the clock `lamport`. `None` in a thread that
/// is ending.
#[inline]
pub(crate) fn begin(inner: &Inner, parent_hash: u64, rpc: Rpc, lamport: u32) -> Option<Begin> {
    THREAD
        .try_with(|thread| {
            let thread = &mut *thread.borrow_mut();
            let (node, hash) = thread.local(inner).node(inner, parent_hash, rpc);
            thread.lamport = thread.lamport.max(lamport).saturating_add(1);
            let (span, low) = (thread.id(), thread.id());
            Begin { node, hash, lamport: thread.lamport, span, request: (thread.high, low) }
        })
        .ok()
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
    let stored = THREAD.try_with(|thread| {
        let thread = &mut *thread.borrow_mut();
        thread.lamport = thread.lamport.max(lamport).saturating_add(1);
        let lamport = thread.lamport;
        let local = thread.local(inner);
        let Some(writer) = &mut local.writer else { return local.claim(inner) };
        let records = encode(lamport);
        Some(writer.push(records.get(..count).unwrap_or(&records)))
    });
    match stored {
        Ok(Some(outcome)) => outcome,
        // A thread that is ending, or one without a ring.
        _ => without_ring(inner, count),
    }
}

#[cold]
fn without_ring(inner: &Inner, count: usize) -> Stored {
    inner.segment.count(Counter::WithoutRing, count as u64);
    Stored::Yes
}
