//! One vertex in memory: its head, its ring of slots, and the byte ring of structured values.
//!
//! # Protocol
//! Writers of one vertex take turns by a lock in its head; readers take no lock. Sample `t` (the
//! first is 0) lives in slot `t % capacity`. A writer marks the slot `2t + 1`, fills it, marks it
//! `2t + 2`, and only then raises `head` to `t + 1`. A reader accepts a slot only if it saw
//! `2t + 2` before and after it read the fields: it never gets a torn sample, and a larger mark
//! means that the reader was lapped. A writer that dies half-way leaves `head` unchanged, so the
//! newest complete sample stays the latest.
//!
//! Writers take a lock, although a ticket by fetch-add would work without a lock. The reason: a vertex
//! stores a sample only when the value changed, and its times never go back. Both are decisions about
//! the previous sample, so writers have to follow one another anyway; a ticket would only move the wait
//! to the slot that a preempted writer still holds, a lap later.

use std::ops::Range;

use skopos_model::{MAX_STRUCTURED_BYTES, Origin};

use crate::sync::{AcquireLoad as _, AtomicI64, AtomicU32, AtomicU64, Ordering, fence, pause};

/// Attempts of a reader that a writer lapped between two loads. Each retry needs a whole ring of
/// publishes within nanoseconds; the bound ensures that even a hostile segment cannot hold a reader for
/// ever.
const READ_ATTEMPTS: u32 = 1000;

/// The greatest number of samples that a vertex can store: ten million a second for ten thousand years.
/// A greater head is damaged and is read as this number, so that arithmetic on tickets cannot overflow.
const MAX_COUNT: u64 = 1 << 62;

/// The first 64 bytes of a vertex: one cache line. A reader of the latest value needs only this and the
/// slot. See [`crate::layout`] for the offsets.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct VertexHead {
    /// Index and version of the directory entry that this vertex belongs to; 0 without an entry.
    pub(crate) owner: AtomicU64,
    /// Number of samples that were ever stored.
    pub(crate) head: AtomicU64,
    /// Time of the last poll of the source, whether the value changed or not.
    pub(crate) checked_at: AtomicI64,
    /// 1 while a writer works.
    pub(crate) lock: AtomicU32,
    /// Futex word of waiters for this vertex.
    pub(crate) epoch: AtomicU32,
    /// End of the bytes that are reserved in the byte ring, counted from the first byte ever written.
    pub(crate) bytes_reserved: AtomicU64,
    /// Number of samples whose time was before `checked_at` and was replaced by it.
    pub(crate) clamped: AtomicU64,
    /// The same moment as `checked_at` on the clock that never steps, ns; 0 if it is not known.
    pub(crate) checked_boottime: AtomicI64,
    /// Number of times that the publisher took the marks of readers. A reader marks the vertex once for each.
    pub(crate) interest: AtomicU32,
    /// Always zero.
    pub(crate) reserved: AtomicU32,
}

impl Slot {
    /// Returns true if the sample of the slot has these bits and this meta word; for the writer.
    #[inline(always)]
    fn holds(&self, bits: u64, meta: Meta) -> bool {
        self.bits.load(Ordering::Relaxed) == bits && self.meta.load(Ordering::Relaxed) == meta.0
    }

    /// Reads time, bits and meta word. A reader has to check the mark before and after.
    #[inline(always)]
    pub(crate) fn fields(&self) -> (i64, u64, Meta) {
        let (bits, meta) = self.number();
        (self.time.load(Ordering::Relaxed), bits, meta)
    }

    /// Reads bits and meta word, like [`fields`](Self::fields).
    #[inline(always)]
    pub(crate) fn number(&self) -> (u64, Meta) {
        (self.bits.load(Ordering::Relaxed), Meta(self.meta.load(Ordering::Relaxed)))
    }

    /// Stores a sample in its slot.
    #[inline(always)]
    fn store(&self, sample: RawSample) {
        self.mark.store(2 * sample.ticket + 1, Ordering::Relaxed);
        // SYNC: pairs with the Acquire fence in `read`: a reader that sees any field of this
        // sample sees the odd mark, or a later one, when it looks again.
        fence(Ordering::Release);
        self.time.store(sample.time, Ordering::Relaxed);
        self.bits.store(sample.bits, Ordering::Relaxed);
        // Nearly all samples have the meta word of the one that they replace, and a look costs less than a store.
        if self.meta.load(Ordering::Relaxed) != sample.meta.0 {
            self.meta.store(sample.meta.0, Ordering::Relaxed);
        }
        // SYNC: pairs with the first Acquire load of the mark in `read`.
        self.mark.store(2 * sample.ticket + 2, Ordering::Release);
    }
}

impl VertexHead {
    /// [`RawVertex::publish_alone`] of a measured number that is not the first sample, at a moment that is not before the
    /// last one. In any other case it does nothing and returns `None`. `slot` finds the slot of a ticket.
    #[inline(always)]
    pub(crate) fn publish_next<'a>(
        &self,
        slot: impl Fn(u64) -> &'a Slot,
        owner: u64,
        at: Moment,
        bits: u64,
    ) -> Option<Published> {
        // Relaxed: only the writer, and the end of the vertex, change the head.
        let ticket = self.head.load(Ordering::Relaxed);
        if self.owner.load(Ordering::Relaxed) != owner
            || ticket == 0
            || at.time < self.checked_at.load(Ordering::Relaxed)
            || at.boottime < self.checked_boottime.load(Ordering::Relaxed)
        {
            return None;
        }
        let meta = Meta::scalar(Origin::Measured);
        let is_same = slot(ticket - 1).holds(bits, meta);
        if !is_same {
            self.store(slot(ticket), RawSample { ticket, time: at.time, bits, meta });
        }
        self.set_checked(at);
        Some(if is_same { Published::Unchanged } else { Published::Stored })
    }

    /// Stores the next sample in its slot.
    #[inline(always)]
    fn store(&self, slot: &Slot, sample: RawSample) {
        slot.store(sample);
        // SYNC: pairs with the Acquire load of `head` in `latest` and `read`: a reader that sees the new head sees the
        // slot.
        self.head.store(sample.ticket + 1, Ordering::Release);
    }

    /// Records the time of a poll, after the sample that it found.
    #[inline(always)]
    fn set_checked(&self, at: Moment) {
        // SYNC: pairs with the Acquire loads in `checked`: a reader that sees one of these times sees at
        // least this sample, and one that sees the second sees the first.
        self.checked_boottime.store(at.boottime, Ordering::Release);
        // SYNC: as above.
        self.checked_at.store(at.time, Ordering::Release);
    }

    /// Returns the time of the last poll of the source on both clocks.
    ///
    /// A reader calls it before it reads the sample: the sample is then at least as new, so the result never claims that an
    /// old value was checked at a time when a newer one already existed.
    #[inline(always)]
    pub(crate) fn checked(&self) -> Moment {
        // SYNC: pairs with the Release stores of both in `set_checked`.
        let time = self.checked_at.load_acquire();
        let boottime = self.checked_boottime.load_acquire();
        Moment { time, boottime }
    }

    /// Returns what `read` finds in `slot` if the newest sample is there, and otherwise the number of samples that were
    /// ever stored.
    ///
    /// A reader that remembers the slot of the last sample reads it at the same time as the head; with
    /// [`RawVertex::latest_sample`] the slot is known only when the head has arrived.
    #[inline(always)]
    pub(crate) fn newest_in<T>(
        &self,
        owner: u64,
        slot: &Slot,
        read: impl FnOnce(&Slot) -> T,
    ) -> Result<T, u64> {
        // SYNC: pairs with the Release store in `adopt`.
        let is_own = self.owner.load_acquire() == owner;
        // SYNC: pairs with the Release store of `head` in `VertexHead::store`.
        let count = self.head.load_acquire();
        // The mark of sample `count - 1`, which no other sample has. Zero, without a sample, is no such mark.
        let whole = count.wrapping_mul(2);
        // SYNC: pairs with the Release store of the even mark in `Slot::store`.
        let before = slot.mark.load_acquire();
        let found = read(slot);
        // SYNC: pairs with the Release fences in `Slot::store` and `abandon`.
        fence(Ordering::Acquire);
        let after = slot.mark.load(Ordering::Relaxed);
        let is_still_own = self.owner.load(Ordering::Relaxed) == owner;
        if before == whole && after == whole && whole != 0 && is_own && is_still_own {
            Ok(found)
        } else {
            Err(count)
        }
    }

    /// Counts a time that was replaced.
    #[cold]
    fn count_clamped(&self) {
        let clamped = self.clamped.load(Ordering::Relaxed);
        self.clamped.store(clamped + 1, Ordering::Relaxed);
    }
}

/// A moment on both clocks, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// UNIX time.
    pub(crate) time: i64,
    /// `CLOCK_BOOTTIME`; negative before the machine started, 0 if it is not known.
    pub(crate) boottime: i64,
}

/// One sample in the ring.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    /// `2t + 1` while sample `t` is being written, `2t + 2` once it is complete.
    pub(crate) mark: AtomicU64,
    /// UNIX time in nanoseconds.
    pub(crate) time: AtomicI64,
    /// The bits of the value; for a structured value its position in the byte ring.
    pub(crate) bits: AtomicU64,
    /// Origin, and bound or length; see [`Meta`].
    pub(crate) meta: AtomicU64,
}

impl Moment {
    /// Returns this moment, or that of `time` if it is later.
    #[inline]
    pub(crate) fn not_before(self, time: i64) -> Self {
        match time.checked_sub(self.time) {
            Some(later @ 1..) if self.boottime != 0 => {
                Self { time, boottime: self.boottime.saturating_add(later) }
            }
            _ => Self { time: self.time.max(time), ..self },
        }
    }
}

/// The fields of a slot, read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawSample {
    pub(crate) ticket: u64,
    pub(crate) time: i64,
    pub(crate) bits: u64,
    pub(crate) meta: Meta,
}

/// The meta word of a slot. Bits 0-7: origin (0 measured, 1 predicted, 2 unknown). Bits 32-63: the error
/// bound as an `f32`, or the length of a structured value in bytes. The other bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta(pub(crate) u64);

const MEASURED: u64 = 0;
const PREDICTED: u64 = 1;
const UNKNOWN: u64 = 2;

impl Meta {
    /// Makes the meta word of a number. The bound is rounded up to the next `f32`, so that it stays a
    /// bound.
    #[inline]
    pub(crate) fn scalar(origin: Origin) -> Self {
        match origin {
            Origin::Measured => Self(MEASURED),
            Origin::Unknown => Self(UNKNOWN),
            Origin::Predicted { bound } => {
                let near = bound as f32;
                let up = if f64::from(near) < bound { near.next_up() } else { near };
                Self(PREDICTED | u64::from(up.to_bits()) << 32)
            }
        }
    }

    /// Makes the meta word of a structured value, which has no bound.
    pub(crate) fn structured(origin: Origin, len: u32) -> Self {
        let code = match origin {
            Origin::Measured => MEASURED,
            Origin::Predicted { .. } => PREDICTED,
            Origin::Unknown => UNKNOWN,
        };
        Self(code | u64::from(len) << 32)
    }

    /// Returns true if the sample has no value.
    #[inline(always)]
    pub(crate) fn is_unknown(self) -> bool {
        self.0 & 0xff == UNKNOWN
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[inline]
    pub(crate) fn origin(self, structured: bool) -> Origin {
        match self.0 & 0xff {
            MEASURED => Origin::Measured,
            UNKNOWN => Origin::Unknown,
            _ if structured => Origin::Predicted { bound: f64::INFINITY },
            _ => Origin::Predicted { bound: f64::from(f32::from_bits((self.0 >> 32) as u32)) },
        }
    }
}

/// The state of a slot, seen from a reader of one ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState<T> {
    /// The sample is complete.
    Whole(T),
    /// The sample is not written yet.
    Absent,
    /// A later sample overwrote it.
    Lapped,
    /// The vertex was unregistered.
    Gone,
    /// Writers overwrote it again and again while it was read.
    Busy,
    /// The memory is not what a publisher writes: the vertex counts a sample that is not there.
    Damaged,
}

impl<T> SlotState<T> {
    /// Returns the state after `next`, which gets the sample if it is complete.
    #[inline]
    pub(crate) fn and_then<U>(self, next: impl FnOnce(T) -> SlotState<U>) -> SlotState<U> {
        match self {
            Self::Whole(sample) => next(sample),
            Self::Absent => SlotState::Absent,
            Self::Lapped => SlotState::Lapped,
            Self::Gone => SlotState::Gone,
            Self::Busy => SlotState::Busy,
            Self::Damaged => SlotState::Damaged,
        }
    }
}

/// The outcome of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The value differed from the last one and was stored.
    Stored,
    /// The value equals the last one; only `checked_at` moved.
    Unchanged,
}

/// A value on its way into the ring.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    Bits(u64),
    Bytes(&'a [u8]),
}

/// The position and size of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) slots: u32,
    pub(crate) byte_ring_bytes: u32,
}

impl Place {
    /// Returns the bytes from the head to the end of the byte ring, rounded up to a cache line.
    pub(crate) fn bytes(slots: u32, byte_ring_bytes: u32) -> u64 {
        let all = size_of::<VertexHead>() as u64
            + u64::from(slots) * size_of::<Slot>() as u64
            + u64::from(byte_ring_bytes);
        all.next_multiple_of(64)
    }
}

/// A vertex, borrowed from a mapping (or, in tests, from the heap).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawVertex<'a> {
    pub(crate) head: &'a VertexHead,
    /// The length is a power of two.
    pub(crate) slots: &'a [Slot],
    /// Empty unless the values are structured; then the length is a power of two.
    pub(crate) bytes: &'a [AtomicU64],
}

impl RawVertex<'_> {
    #[inline]
    fn slot(&self, ticket: u64) -> &Slot {
        &self.slots[(ticket as usize) & (self.slots.len() - 1)]
    }

    // ---- writers ----

    #[inline]
    fn lock(&self) {
        let mut round = 0;
        // SYNC: Acquire pairs with the Release in `unlock`, so a writer sees the stores of the
        // previous writer.
        while self
            .head
            .lock
            .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            pause(round);
            round = round.saturating_add(1);
        }
    }

    #[inline]
    fn unlock(&self) {
        // SYNC: pairs with the Acquire in `lock`.
        self.head.lock.store(0, Ordering::Release);
    }

    /// Stores a sample if it differs from the last one, and marks the source as polled. A time before
    /// `checked_at` is replaced by `checked_at`, and counted.
    ///
    /// Returns `None` if the vertex of `owner`, the caller, was unregistered.
    #[inline]
    pub(crate) fn publish(
        &self,
        owner: u64,
        at: Moment,
        payload: Payload<'_>,
        origin: Origin,
    ) -> Option<Published> {
        self.lock();
        let done = self.publish_alone(owner, at, payload, origin);
        self.unlock();
        done
    }

    /// Marks the source as polled and unchanged at `time`; a time before the last poll changes nothing.
    /// Returns `None` like [`publish`](Self::publish).
    #[inline]
    pub(crate) fn check(&self, owner: u64, at: Moment) -> Option<()> {
        self.lock();
        let own = self.check_alone(owner, at);
        self.unlock();
        own
    }

    /// [`check`](Self::check) by the only writer of the vertex, or under its lock.
    #[inline]
    pub(crate) fn check_alone(&self, owner: u64, at: Moment) -> Option<()> {
        let head = self.head;
        // Relaxed: only the writer, and the end of the vertex, change the head.
        if head.owner.load(Ordering::Relaxed) != owner {
            return None;
        }
        if head.checked_boottime.load(Ordering::Relaxed) < at.boottime {
            // SYNC: pairs with the Acquire loads in `checked`, as in `set_checked`.
            head.checked_boottime.store(at.boottime, Ordering::Release);
        }
        if head.checked_at.load(Ordering::Relaxed) < at.time {
            // SYNC: as above.
            head.checked_at.store(at.time, Ordering::Release);
        }
        Some(())
    }

    /// [`publish`](Self::publish) by the only writer of the vertex, or under its lock.
    #[inline]
    pub(crate) fn publish_alone(
        &self,
        owner: u64,
        at: Moment,
        payload: Payload<'_>,
        origin: Origin,
    ) -> Option<Published> {
        match payload {
            Payload::Bits(bits) => self.publish_bits(owner, at, bits, origin),
            Payload::Bytes(bytes) => self.publish_bytes(owner, at, bytes, origin),
        }
    }

    /// [`publish_alone`](Self::publish_alone) of a number: always inlined, because passing the vertex by memory costs as
    /// much as the stores of a sample.
    #[inline(always)]
    pub(crate) fn publish_bits(
        &self,
        owner: u64,
        at: Moment,
        bits: u64,
        origin: Origin,
    ) -> Option<Published> {
        let (ticket, at) = self.begin(owner, at)?;
        let meta = Meta::scalar(origin);
        if ticket > 0 && self.slot(ticket - 1).holds(bits, meta) {
            self.head.set_checked(at);
            return Some(Published::Unchanged);
        }
        self.head.store(self.slot(ticket), RawSample { ticket, time: at.time, bits, meta });
        self.head.set_checked(at);
        Some(Published::Stored)
    }

    /// [`publish_alone`](Self::publish_alone) of a structured value.
    #[inline(never)]
    fn publish_bytes(
        &self,
        owner: u64,
        at: Moment,
        bytes: &[u8],
        origin: Origin,
    ) -> Option<Published> {
        let (ticket, at) = self.begin(owner, at)?;
        let meta = Meta::structured(origin, bytes.len() as u32);
        if ticket > 0 && self.has_bytes(self.slot(ticket - 1), bytes, meta) {
            self.head.set_checked(at);
            return Some(Published::Unchanged);
        }
        let bits = self.store_bytes(bytes);
        self.head.store(self.slot(ticket), RawSample { ticket, time: at.time, bits, meta });
        self.head.set_checked(at);
        Some(Published::Stored)
    }

    /// Returns the ticket of the next sample and the moment that a publish at `at` has: not before the last one.
    #[inline(always)]
    fn begin(&self, owner: u64, at: Moment) -> Option<(u64, Moment)> {
        let head = self.head;
        // Relaxed: only the writer, and the end of the vertex, change the head.
        if head.owner.load(Ordering::Relaxed) != owner {
            return None;
        }
        let ticket = head.head.load(Ordering::Relaxed);
        let Moment { mut time, mut boottime } = at;
        if ticket > 0 {
            let floor = head.checked_at.load(Ordering::Relaxed);
            if time < floor {
                time = floor;
                head.count_clamped();
            }
            boottime = boottime.max(head.checked_boottime.load(Ordering::Relaxed));
        }
        Some((ticket, Moment { time, boottime }))
    }

    /// Reads the slot of `ticket` field by field. A reader has to check the mark.
    #[inline]
    fn load_own(&self, ticket: u64) -> RawSample {
        let (time, bits, meta) = self.slot(ticket).fields();
        RawSample { ticket, time, bits, meta }
    }

    /// Returns true if the sample in `last` is the structured value `bytes`.
    fn has_bytes(&self, last: &Slot, bytes: &[u8], meta: Meta) -> bool {
        let (position, last_meta) = last.number();
        last_meta == meta
            && words_of(bytes)
                .zip(self.words_at(position))
                .all(|(word, stored)| word == stored.load(Ordering::Relaxed))
    }

    /// Puts `bytes` into the byte ring and returns their position, counted from the first byte ever
    /// written.
    fn store_bytes(&self, bytes: &[u8]) -> u64 {
        let position = self.head.bytes_reserved.load(Ordering::Relaxed);
        let end = position + bytes.len().next_multiple_of(8) as u64;
        self.head.bytes_reserved.store(end, Ordering::Relaxed);
        // SYNC: pairs with the Acquire fence in `copy_bytes`: a reader that sees any word written
        // below sees the new end when it looks, and knows that its bytes may be gone.
        fence(Ordering::Release);
        for (word, stored) in words_of(bytes).zip(self.words_at(position)) {
            stored.store(word, Ordering::Relaxed);
        }
        position
    }

    /// Returns the words of the byte ring from `position` on, wrapping at the end, each once.
    fn words_at(&self, position: u64) -> impl Iterator<Item = &AtomicU64> {
        let first = (position / 8) as usize & (self.bytes.len() - 1);
        let (wrapped, ahead) = self.bytes.split_at(first);
        ahead.iter().chain(wrapped)
    }

    /// Gives the vertex to a directory entry: empty, and for the writers and readers of `owner` only.
    pub(crate) fn adopt(&self, owner: u64) {
        self.lock();
        for slot in self.slots {
            slot.mark.store(0, Ordering::Relaxed);
        }
        self.head.head.store(0, Ordering::Relaxed);
        self.head.checked_at.store(0, Ordering::Relaxed);
        self.head.checked_boottime.store(0, Ordering::Relaxed);
        self.head.clamped.store(0, Ordering::Relaxed);
        // SYNC: pairs with the Acquire load of `owner` in `read`.
        self.head.owner.store(owner, Ordering::Release);
        self.unlock();
    }

    /// Takes the vertex from its entry. Readers get [`SlotState::Gone`] from now on.
    pub(crate) fn abandon(&self) {
        self.lock();
        self.head.owner.store(0, Ordering::Relaxed);
        // SYNC: pairs with the Acquire fence in `read`: a reader that sees anything that a later
        // owner wrote sees that the vertex has changed hands.
        fence(Ordering::Release);
        self.unlock();
    }

    // ---- readers ----

    /// Reads sample `ticket`, if the ring has it.
    #[inline]
    pub(crate) fn read(&self, owner: u64, ticket: u64) -> SlotState<RawSample> {
        // SYNC: pairs with the Release store in `adopt`.
        if self.head.owner.load_acquire() != owner {
            return SlotState::Gone;
        }
        let slot = self.slot(ticket);
        let whole = 2 * ticket + 2;
        // SYNC: pairs with the Release store of the even mark in `Slot::store`.
        let before = slot.mark.load_acquire();
        let sample = self.load_own(ticket);
        // SYNC: pairs with the Release fences in `Slot::store` and `abandon`.
        fence(Ordering::Acquire);
        let after = slot.mark.load(Ordering::Relaxed);
        let is_own = || self.head.owner.load(Ordering::Relaxed) == owner;
        if before == whole && after == whole && is_own() {
            return SlotState::Whole(sample);
        }
        // SYNC: pairs with the Release fence in `abandon`: the second mark may be of a later owner, too.
        fence(Ordering::Acquire);
        if !is_own() {
            SlotState::Gone
        } else if after > whole {
            SlotState::Lapped
        } else {
            SlotState::Absent
        }
    }

    /// Reads sample `ticket`, which the vertex counts as stored.
    #[inline]
    pub(crate) fn read_stored(&self, owner: u64, ticket: u64) -> SlotState<RawSample> {
        match self.read(owner, ticket) {
            // A writer counts a sample only when it is complete.
            SlotState::Absent => SlotState::Damaged,
            other => other,
        }
    }

    /// Returns the number of samples that were ever stored: the ticket of the next one.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        // SYNC: pairs with the Release store of `head` in `VertexHead::store`.
        self.head.head.load_acquire().min(MAX_COUNT)
    }

    /// Returns true if the ring has a sample of this ticket or a later one; false if the vertex is gone. Two
    /// loads, for a reader of many vertices of which few have new samples.
    #[inline]
    pub(crate) fn has_news(&self, owner: u64, ticket: u64) -> bool {
        !self.is_gone(owner) && self.count() > ticket
    }

    /// Returns true if the ring has a sample of this ticket or a later one, or if the vertex is gone.
    #[inline]
    pub(crate) fn is_due(&self, owner: u64, ticket: u64) -> bool {
        self.is_gone(owner) || self.count() > ticket
    }

    /// Returns true if the vertex was unregistered.
    #[inline]
    pub(crate) fn is_gone(&self, owner: u64) -> bool {
        // SYNC: pairs with the Release store in `adopt`.
        self.head.owner.load_acquire() != owner
    }

    /// Returns the tickets that the ring may still hold after `count` samples. A walk back ends at the
    /// first of them, even with a hostile head and empty slots.
    #[inline]
    pub(crate) fn reach(&self, count: u64) -> Range<u64> {
        count.saturating_sub(self.slots.len() as u64)..count
    }

    /// Returns the newest sample and the time of the last poll of its source.
    #[inline]
    pub(crate) fn latest(&self, owner: u64) -> SlotState<(RawSample, Moment)> {
        let checked = self.head.checked();
        let sample = self.latest_sample(owner);
        sample.and_then(|sample| SlotState::Whole((sample, checked.not_before(sample.time))))
    }

    /// Returns the newest sample.
    #[inline]
    pub(crate) fn latest_sample(&self, owner: u64) -> SlotState<RawSample> {
        for _ in 0..READ_ATTEMPTS {
            let Some(ticket) = self.count().checked_sub(1) else {
                return match self.read(owner, 0) {
                    SlotState::Gone => SlotState::Gone,
                    _ => SlotState::Absent,
                };
            };
            match self.read_stored(owner, ticket) {
                // Lapped between two loads: try again.
                SlotState::Lapped => {}
                found => return found,
            }
        }
        SlotState::Busy
    }

    /// Returns the newest sample whose time is not after `time`: the value that held then. `Lapped` if
    /// the ring no longer reaches back that far.
    #[inline]
    pub(crate) fn as_of(&self, owner: u64, time: i64) -> SlotState<RawSample> {
        for _ in 0..READ_ATTEMPTS {
            let reach = self.reach(self.count());
            if reach.is_empty() && self.read(owner, 0) == SlotState::Gone {
                return SlotState::Gone;
            }
            match self.as_of_within(owner, time, reach) {
                // The newest one was lapped, so there are newer ones.
                SlotState::Busy => {}
                other => return other,
            }
        }
        SlotState::Busy
    }

    #[inline]
    fn as_of_within(&self, owner: u64, time: i64, reach: Range<u64>) -> SlotState<RawSample> {
        let newest = reach.end.saturating_sub(1);
        for ticket in reach.clone().rev() {
            match self.read_stored(owner, ticket) {
                SlotState::Whole(sample) if sample.time <= time => return SlotState::Whole(sample),
                SlotState::Whole(_) => {}
                SlotState::Lapped if ticket == newest => return SlotState::Busy,
                other => return other,
            }
        }
        if reach.start == 0 { SlotState::Absent } else { SlotState::Lapped }
    }

    /// Copies the bytes of a structured sample into `into`. Returns false if they were overwritten
    /// meanwhile or if the length in the sample is impossible.
    pub(crate) fn copy_bytes(&self, sample: &RawSample, into: &mut Vec<u8>) -> bool {
        let len = sample.meta.len();
        into.clear();
        if len > (self.bytes.len() * 8).min(MAX_STRUCTURED_BYTES) {
            return false;
        }
        for word in self.words_at(sample.bits).take(len.div_ceil(8)) {
            into.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        into.truncate(len);
        // SYNC: pairs with the Release fence in `store_bytes`.
        fence(Ordering::Acquire);
        let reserved = self.head.bytes_reserved.load(Ordering::Relaxed);
        reserved.wrapping_sub(sample.bits) <= self.bytes.len() as u64 * 8
    }
}

/// Returns `bytes` as little-endian words; the last word is filled up with zeros.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}
