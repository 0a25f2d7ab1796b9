//! A vertex and a directory entry on the heap, for tests of the protocols with loom and with real threads.

#[cfg(loom)]
use loom::sync::Arc;
#[cfg(not(loom))]
use std::sync::Arc;

use crate::layout::Entry;
use crate::ring::{Moment, RawVertex, Slot, VertexHead};
use crate::sync::{AtomicI64, AtomicU32, AtomicU64};

/// The owner of the vertex.
pub(crate) const OWNER: u64 = 7;

/// Returns a moment at which both clocks show the same.
pub(crate) fn at(nanos: i64) -> Moment {
    Moment { time: nanos, boottime: nanos }
}

/// A vertex on the heap.
pub(crate) struct Heap {
    pub(crate) head: VertexHead,
    slots: Vec<Slot>,
    bytes: Vec<AtomicU64>,
}

impl Heap {
    /// Makes a vertex of [`OWNER`] with a ring of `slots` and a byte ring of `byte_words` words.
    pub(crate) fn new(slots: usize, byte_words: usize) -> Arc<Self> {
        let head = VertexHead {
            owner: AtomicU64::new(OWNER),
            head: AtomicU64::new(0),
            checked_at: AtomicI64::new(0),
            lock: AtomicU32::new(0),
            epoch: AtomicU32::new(0),
            bytes_reserved: AtomicU64::new(0),
            clamped: AtomicU64::new(0),
            checked_boottime: AtomicI64::new(0),
            interest: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
        };
        let slot = |_| Slot {
            mark: AtomicU64::new(0),
            time: AtomicI64::new(0),
            bits: AtomicU64::new(0),
            meta: AtomicU64::new(0),
        };
        Arc::new(Self {
            head,
            slots: (0..slots).map(slot).collect(),
            bytes: (0..byte_words).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    pub(crate) fn vertex(&self) -> RawVertex<'_> {
        RawVertex { head: &self.head, slots: &self.slots, bytes: &self.bytes }
    }
}

/// Makes a directory entry that was never used.
pub(crate) fn free_entry() -> Entry {
    let zero = || AtomicU64::new(0);
    Entry {
        version: AtomicU32::new(0),
        state: AtomicU32::new(0),
        vertex_offset: zero(),
        slots: AtomicU32::new(0),
        byte_ring_bytes: AtomicU32::new(0),
        traits: AtomicU32::new(0),
        group: AtomicU32::new(0),
        unit: std::array::from_fn(|_| zero()),
        topic: std::array::from_fn(|_| zero()),
        registered_at: AtomicI64::new(0),
    }
}
