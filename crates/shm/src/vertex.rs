//! Reads of one vertex: the latest value, a range of time, the value that held at a time.

use std::fmt;
use std::mem::offset_of;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use skopos_model::{Sample, Scalar, Structured, Timestamp, Topic, Value, ValueType};

use crate::error::Error;
use crate::layout::Marks;
use crate::map::{Pinned, PinnedVertex};
use crate::ring::{Moment, Place, RawSample, RawVertex, Slot, SlotState, VertexHead};
use crate::segment::{Segment, VertexInfo};
use crate::sync::{AtomicU8, AtomicU32, Ordering};
use crate::{marks, sys};

/// Attempts at a structured value whose bytes are overwritten meanwhile.
const STRUCTURED_ATTEMPTS: u32 = 100;

/// Turns in which a read of the latest value follows a writer that publishes between two loads of each turn. The bound does
/// not depend on the segment, whose publisher chooses the number of slots; a read without luck goes the slow way, which
/// has a bound of its own.
const NEWEST_TURNS: u32 = 1000;

/// The samples of one topic, for reading. Cheap to clone. It stays valid, and returns [`Error::Gone`]
/// once the vertex is unregistered.
//
// All that a read of the latest value needs is in one cache line of the handle. A program that reads now and
// then fetches each line from memory, at a tenth of a microsecond.
#[repr(align(64))]
pub struct Vertex {
    vertex: PinnedVertex,
    owner: u64,
    rest: Arc<Rest>,
    /// The value of the publisher's `interest` for which this handle marked the vertex as read.
    marked: AtomicU32,
    value_type: ValueType,
}

/// The parts of a vertex that a read of the latest value does not need; all clones share them.
struct Rest {
    segment: Segment,
    info: VertexInfo,
    group: u32,
    index: u32,
    place: Place,
    /// `None` without a page of flags.
    marks: Option<Pinned<Marks>>,
    /// Like `marked`, for the mark of a reader that follows.
    followed: AtomicU32,
}

impl Clone for Vertex {
    fn clone(&self) -> Self {
        Self {
            vertex: self.vertex.clone(),
            owner: self.owner,
            rest: Arc::clone(&self.rest),
            marked: AtomicU32::new(self.marked.load(Ordering::Relaxed)),
            value_type: self.value_type,
        }
    }
}

/// A sample together with the time of the last poll of its source.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reading {
    /// The sample. The value holds since its time.
    pub sample: Sample,
    /// Time of the last poll of the source: recent if the value is unchanged and fresh, old if it is stale.
    pub checked_at: Timestamp,
    /// The same on `CLOCK_BOOTTIME`, ns; 0 if it is not known.
    boottime: i64,
}

impl Reading {
    fn new(sample: Sample, checked: Moment) -> Self {
        let checked_at = Timestamp::from_nanos(checked.time);
        Self { sample, checked_at, boottime: checked.boottime }
    }

    /// Returns the time since the last poll of the source, by a clock that never steps.
    #[inline]
    pub fn age(&self) -> Duration {
        if self.boottime == 0 {
            return sys::now().since(self.checked_at);
        }
        let since = (sys::boottime() as i64).saturating_sub(self.boottime);
        Duration::from_nanos(since.max(0) as u64)
    }

    /// Returns the value as a double, unless it is structured.
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        self.sample.value.as_f64()
    }
}

/// The samples of a range of time, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The samples.
    pub samples: Vec<Sample>,
    /// False if the ring no longer reaches back to the start of the range.
    pub complete: bool,
}

impl Vertex {
    /// Makes the handle of the vertex of entry `index`; `None` if it does not lie in the segment.
    pub(crate) fn new(
        segment: Segment,
        info: VertexInfo,
        (index, group): (u32, u32),
        place: Place,
        owner: u64,
    ) -> Option<Self> {
        let vertex = segment.shared.map.pin_vertex(&place)?;
        let marks = segment.shared.flags.as_ref().and_then(|flags| flags.pin_marks(index));
        let not_yet =
            || AtomicU32::new(vertex.head().interest.load(Ordering::Relaxed).wrapping_sub(1));
        let (marked, followed) = (not_yet(), not_yet());
        let value_type = info.value_type;
        let rest = Arc::new(Rest { segment, info, group, index, place, marks, followed });
        Some(Self { vertex, owner, rest, marked, value_type })
    }

    /// Returns the topic.
    #[inline]
    pub fn topic(&self) -> &Topic {
        &self.rest.info.topic
    }

    /// Returns the description in the directory.
    #[inline]
    pub fn info(&self) -> &VertexInfo {
        &self.rest.info
    }

    /// Returns the segment of the vertex.
    #[inline]
    pub fn segment(&self) -> &Segment {
        &self.rest.segment
    }

    /// Returns the place of the word `owner` in the segment's file.
    pub(crate) fn owner_offset(&self) -> u64 {
        self.rest.place.offset + offset_of!(VertexHead, owner) as u64
    }

    #[inline]
    pub(crate) fn group(&self) -> u32 {
        self.rest.group
    }

    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.rest.index
    }

    #[inline]
    pub(crate) fn raw(&self) -> RawVertex<'_> {
        self.vertex.raw()
    }

    /// Marks the vertex as read, once each time that the publisher took the mark.
    #[inline(always)]
    fn mark_read(&self) {
        if marks::is_due(&self.vertex.head().interest, &self.marked) {
            self.set(|marks| &marks.read);
        }
    }

    #[cold]
    fn set(&self, mark: impl FnOnce(&Marks) -> &AtomicU8) {
        if let Some(marks) = &self.rest.marks {
            mark(marks).store(1, Ordering::Relaxed);
        }
    }

    /// Returns what `read` finds in the slot of the newest sample; `None` while writers change it, and in every other state
    /// of a vertex.
    //
    // The slot of the last read is tried first: it is fetched together with the head. A publish in between makes one
    // more turn, in the same code: on a cold path other code would be fetched from memory, too. For the same reason the
    // number of turns is not a constant, with which a compiler writes out each of them. A ring of a few slots has few
    // turns.
    #[inline(always)]
    fn newest<T>(&self, read: impl Fn(&Slot) -> T) -> Option<T> {
        self.vertex.fetch_next();
        let (head, mut slot) = (self.vertex.head(), self.vertex.near());
        for _ in 0..=self.vertex.slots().min(NEWEST_TURNS) {
            let count = match head.newest_in(self.owner, slot, &read) {
                Ok(found) => return Some(found),
                Err(count) => count,
            };
            let next = self.vertex.go_to(count.wrapping_sub(1));
            // The second turn succeeds unless a writer publishes between two loads.
            if std::ptr::eq(next, slot) {
                break;
            }
            slot = next;
        }
        None
    }

    /// Returns the latest sample. Makes no system call and takes no lock; allocates only for a structured
    /// value.
    ///
    /// The last value of a dead publisher is still here: check [`Segment::is_alive`] or
    /// [`Reading::age`].
    ///
    /// # Errors
    /// [`Error::Empty`] before the first sample; [`Error::Gone`]; [`Error::Busy`] if writers
    /// outrun this reader again and again.
    //
    // Always inlined, with structured values and errors in boxes: then the caller of a number has its
    // reading in registers. Passed through memory, a reading is written in small pieces and read back at
    // once in large pieces, and a core waits for that longer than for the rest of the read.
    #[inline(always)]
    pub fn latest(&self) -> Result<Reading, Error> {
        self.mark_read();
        self.peek()
    }

    /// Like [`latest`](Self::latest), but without a mark for the publisher that a reader is interested in
    /// this vertex: for readers that read all vertices.
    ///
    /// # Errors
    /// The errors of [`latest`](Self::latest).
    #[inline(always)]
    pub fn peek(&self) -> Result<Reading, Error> {
        let checked = self.vertex.head().checked();
        if let Some((time, bits, meta)) = self.newest(Slot::fields)
            && let Some(scalar) = Scalar::from_bits(self.value_type, bits)
        {
            let checked = checked.not_before(time);
            let (time, value) = (Timestamp::from_nanos(time), Value::from(scalar));
            let sample = Sample { time, value, origin: meta.origin(false) };
            return Ok(Reading::new(sample, checked));
        }
        match self.latest_structured() {
            Ok(reading) => Ok(*reading),
            Err(e) => Err(*e),
        }
    }

    /// Returns the bits of the latest number, and false if the number is unknown.
    #[inline(always)]
    pub(crate) fn latest_bits(&self) -> Result<(u64, bool), Error> {
        self.mark_read();
        match self.newest(Slot::number) {
            Some((bits, meta)) => Ok((bits, !meta.is_unknown())),
            None => self.latest_bits_slowly(),
        }
    }

    /// [`latest_bits`](Self::latest_bits) while writers change the number, and every error.
    #[cold]
    fn latest_bits_slowly(&self) -> Result<(u64, bool), Error> {
        match self.raw().latest_sample(self.owner) {
            SlotState::Whole(sample) => Ok((sample.bits, !sample.meta.is_unknown())),
            SlotState::Absent => Err(Error::Empty(self.topic().clone())),
            other => Err(self.failed(&other)),
        }
    }

    /// Returns the latest sample of a structured vertex, and every error.
    #[cold]
    fn latest_structured(&self) -> Result<Box<Reading>, Box<Error>> {
        let raw = self.raw();
        for _ in 0..STRUCTURED_ATTEMPTS {
            match raw.latest(self.owner) {
                SlotState::Whole((sample, checked)) => match self.decode(&raw, &sample) {
                    SlotState::Whole(sample) => {
                        return Ok(Box::new(Reading::new(sample, checked)));
                    }
                    // Its bytes were overwritten: there is a newer one.
                    SlotState::Lapped => {}
                    other => return Err(Box::new(self.failed(&other))),
                },
                SlotState::Absent => return Err(Box::new(Error::Empty(self.topic().clone()))),
                other => return Err(Box::new(self.failed(&other))),
            }
        }
        Err(Box::new(Error::Busy(self.topic().clone())))
    }

    /// Returns the error of a read that found no sample.
    #[cold]
    fn failed<T>(&self, state: &SlotState<T>) -> Error {
        let topic = self.topic().clone();
        match state {
            SlotState::Gone => Error::Gone(topic),
            SlotState::Damaged => Error::Damaged(topic),
            _ => Error::Busy(topic),
        }
    }

    /// Tells the publisher that a reader follows this vertex and needs it polled at the publisher's highest
    /// rate. This holds for about a second, so call it repeatedly. A subscription does this by itself.
    #[inline]
    pub fn follow(&self) {
        self.mark_read();
        if marks::is_due(&self.vertex.head().interest, &self.rest.followed) {
            self.set(|marks| &marks.followed);
        }
    }

    /// Returns the number of samples that were ever stored.
    #[inline]
    pub fn count(&self) -> u64 {
        self.raw().count()
    }

    /// Returns the samples with a time in `range`, oldest first, as far as the ring reaches back.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::Damaged`].
    pub fn range(&self, range: RangeInclusive<Timestamp>) -> Result<Range, Error> {
        self.mark_read();
        let raw = self.raw();
        let reach = raw.reach(self.count());
        if reach.is_empty() && raw.read(self.owner, 0) == SlotState::Gone {
            return Err(Error::Gone(self.topic().clone()));
        }
        let (mut samples, mut complete) = (Vec::new(), reach.start == 0);
        for ticket in reach.rev() {
            let sample = match raw.read_stored(self.owner, ticket) {
                SlotState::Whole(sample) => sample,
                SlotState::Lapped => {
                    complete = false;
                    break;
                }
                other => return Err(self.failed(&other)),
            };
            let time = Timestamp::from_nanos(sample.time);
            if time < *range.start() {
                complete = true;
                break;
            }
            if time <= *range.end() {
                match self.decode(&raw, &sample) {
                    SlotState::Whole(sample) => samples.push(sample),
                    SlotState::Lapped => {
                        complete = false;
                        break;
                    }
                    other => return Err(self.failed(&other)),
                }
            }
        }
        samples.reverse();
        Ok(Range { samples, complete })
    }

    /// Returns the sample that held at `time`, or `None` before the first sample.
    ///
    /// # Errors
    /// [`Error::TooOld`] if the ring no longer reaches back that far; [`Error::Busy`] if writers outrun this
    /// reader again and again; [`Error::Gone`]; [`Error::Damaged`].
    #[inline]
    pub fn as_of(&self, time: Timestamp) -> Result<Option<Sample>, Error> {
        self.mark_read();
        let raw = self.raw();
        let found = match raw.as_of(self.owner, time.as_nanos()) {
            SlotState::Whole(sample) => self.decode(&raw, &sample),
            SlotState::Absent => return Ok(None),
            SlotState::Lapped => SlotState::Lapped,
            other => return Err(self.failed(&other)),
        };
        match found {
            SlotState::Whole(sample) => Ok(Some(sample)),
            SlotState::Lapped => Err(Error::TooOld { topic: self.topic().clone(), time }),
            other => Err(self.failed(&other)),
        }
    }

    /// Returns the ticket of the oldest sample that the ring may still hold.
    #[inline]
    pub(crate) fn oldest(&self) -> u64 {
        self.count().saturating_sub(u64::from(self.rest.place.slots))
    }

    #[inline]
    pub(crate) fn has_news(&self, ticket: u64) -> bool {
        self.raw().has_news(self.owner, ticket)
    }

    #[inline]
    pub(crate) fn is_due(&self, ticket: u64) -> bool {
        self.raw().is_due(self.owner, ticket)
    }

    /// Returns true once the vertex is unregistered: every read is an error from then on. One load.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.raw().is_gone(self.owner)
    }

    /// Reads a sample of which [`has_news`](Self::has_news) told.
    #[inline]
    pub(crate) fn read(&self, ticket: u64) -> Result<SlotState<Sample>, Error> {
        match read_sample(&self.raw(), self.owner, ticket, self.value_type) {
            found @ (SlotState::Whole(_) | SlotState::Lapped) => Ok(found),
            other => Err(self.failed(&other)),
        }
    }

    /// Returns the memory of the vertex.
    pub(crate) fn pinned(&self) -> &PinnedVertex {
        &self.vertex
    }

    /// Returns the owner that the vertex has as long as it is registered.
    pub(crate) fn owner(&self) -> u64 {
        self.owner
    }

    #[inline]
    fn decode(&self, raw: &RawVertex<'_>, sample: &RawSample) -> SlotState<Sample> {
        decode(raw, sample, self.value_type)
    }
}

/// Reads the stored sample `ticket` of a vertex with this owner and this type.
#[inline]
pub(crate) fn read_sample(
    raw: &RawVertex<'_>,
    owner: u64,
    ticket: u64,
    value_type: ValueType,
) -> SlotState<Sample> {
    raw.read_stored(owner, ticket).and_then(|sample| decode(raw, &sample, value_type))
}

/// Decodes a sample. It is lapped if the bytes of a structured value were overwritten.
#[inline]
fn decode(raw: &RawVertex<'_>, sample: &RawSample, value_type: ValueType) -> SlotState<Sample> {
    let structured = value_type == ValueType::Structured;
    let value = match Scalar::from_bits(value_type, sample.bits) {
        Some(scalar) => Value::from(scalar),
        None => match decode_structured(raw, sample) {
            SlotState::Whole(structured) => Value::Structured(structured),
            SlotState::Lapped => return SlotState::Lapped,
            _ => return SlotState::Damaged,
        },
    };
    let time = Timestamp::from_nanos(sample.time);
    SlotState::Whole(Sample { time, value, origin: sample.meta.origin(structured) })
}

#[cold]
fn decode_structured(raw: &RawVertex<'_>, sample: &RawSample) -> SlotState<Structured> {
    let mut bytes = Vec::new();
    if !raw.copy_bytes(sample, &mut bytes) {
        return SlotState::Lapped;
    }
    let text = std::str::from_utf8(&bytes).ok();
    let value = text.and_then(|text| Structured::from_json(text).ok());
    value.map_or(SlotState::Damaged, SlotState::Whole)
}

impl fmt::Debug for Vertex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vertex({} in {:?})", self.topic(), self.rest.segment)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::host::Host;
    use crate::publisher::Publisher;
    use crate::spec::VertexSpec;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has another user id than the owner of its files")]
    fn a_writer_that_publishes_in_each_turn_holds_a_reader_for_a_bounded_time() {
        let dir = tempfile::tempdir().expect("a folder");
        let publisher = Publisher::builder("p").dir(dir.path()).create().expect("a segment");
        let topic = Topic::new("n01/a/b").expect("a topic");
        let spec = VertexSpec::new(topic, ValueType::U64).slots(1 << 14);
        let writer = publisher.register(spec).expect("room");
        let host = Host::open_dirs(vec![dir.path().to_path_buf()]).expect("a host");
        let vertex = host.lookup("n01/a/b").expect("it is published");
        let turns = Cell::new(0u64);
        let publish = |_: &Slot| {
            turns.set(turns.get() + 1);
            writer.publish(turns.get()).expect("published");
        };
        // The newest sample is never in the slot that a turn reads. A value that is published again is no sample.
        writer.publish(u64::MAX - 1).expect("published");
        writer.publish(u64::MAX).expect("published");
        assert!(vertex.newest(publish).is_none());
        assert_eq!(turns.get(), u64::from(NEWEST_TURNS) + 1);
        assert_eq!(vertex.latest().expect("a sample").as_f64(), Some(1001.0));
    }
}
