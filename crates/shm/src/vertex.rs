//! Reading one vertex: the latest value, a range of time, the value that held at a time.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use skopos_model::{Sample, Scalar, Structured, Timestamp, Topic, Value, ValueType};

use crate::error::Error;
use crate::flags::{MARK_FOLLOWED, MARK_READ};
use crate::ring::{Place, RawSample, RawVertex, SlotState};
use crate::segment::{Segment, VertexInfo};
use crate::sys;

/// How often a structured value is read again when its bytes were overwritten meanwhile.
const STRUCTURED_ATTEMPTS: u32 = 100;

/// One topic's samples, for reading. Clone it freely; it stays valid, and says [`Error::Gone`]
/// once the vertex is unregistered.
#[derive(Clone)]
pub struct Vertex {
    segment: Segment,
    info: VertexInfo,
    pub(crate) group: u32,
    index: u32,
    place: Place,
    owner: u64,
}

/// A sample as it was read: with the time when its source was last looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The sample. Its time says since when the value holds.
    pub sample: Sample,
    /// When the source was last looked at: "unchanged and fresh" has a late one, "stale" an early.
    pub checked_at: Timestamp,
}

impl Reading {
    /// How long ago the source was last looked at.
    #[inline]
    pub fn age(&self) -> Duration {
        sys::now().since(self.checked_at)
    }

    /// The value as a double, unless it is structured.
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
    pub(crate) fn new(
        segment: Segment,
        info: VertexInfo,
        group: u32,
        index: u32,
        place: Place,
        owner: u64,
    ) -> Self {
        Self { segment, info, group, index, place, owner }
    }

    /// Its topic.
    #[inline]
    pub fn topic(&self) -> &Topic {
        &self.info.topic
    }

    /// What the directory says about it.
    #[inline]
    pub fn info(&self) -> &VertexInfo {
        &self.info
    }

    /// The segment that it lies in.
    #[inline]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    #[inline]
    pub(crate) fn raw(&self) -> RawVertex<'_> {
        self.segment.raw(&self.place)
    }

    /// The latest sample. No system call, no lock; allocates only for a structured value.
    ///
    /// A dead publisher's last value is still here: ask [`Segment::is_alive`], or look at
    /// [`Reading::age`].
    ///
    /// # Errors
    /// [`Error::Empty`] before the first sample; [`Error::Gone`]; [`Error::Busy`] if writers
    /// outrun this reader again and again.
    //
    // Always inlined, and the rest in boxes: then the caller of a number has its reading in
    // registers. Passed through memory, a reading is written in small pieces and read back at once
    // in large ones, for which a core waits longer than for all the rest of a read.
    #[inline(always)]
    pub fn latest(&self) -> Result<Reading, Error> {
        self.segment.mark(self.index, MARK_READ);
        self.peek()
    }

    /// As [`latest`](Self::latest), for who reads everything, whatever it is: nothing tells the
    /// publisher that somebody cares for this vertex.
    ///
    /// # Errors
    /// As [`latest`](Self::latest).
    #[inline(always)]
    pub fn peek(&self) -> Result<Reading, Error> {
        if let SlotState::Whole((sample, checked_at)) = self.raw().latest(self.owner)
            && let Some(scalar) = Scalar::from_bits(self.info.value_type, sample.bits)
        {
            let (time, value) = (Timestamp::from_nanos(sample.time), Value::from(scalar));
            let sample = Sample { time, value, origin: sample.meta.origin(false) };
            return Ok(Reading { sample, checked_at: Timestamp::from_nanos(checked_at) });
        }
        match self.latest_structured() {
            Ok(reading) => Ok(*reading),
            Err(e) => Err(*e),
        }
    }

    /// The latest sample of a structured vertex, and every error.
    #[cold]
    fn latest_structured(&self) -> Result<Box<Reading>, Box<Error>> {
        let raw = self.raw();
        for _ in 0..STRUCTURED_ATTEMPTS {
            match raw.latest(self.owner) {
                SlotState::Whole((sample, checked_at)) => {
                    if let Some(sample) = self.decode(&raw, &sample) {
                        let checked_at = Timestamp::from_nanos(checked_at);
                        return Ok(Box::new(Reading { sample, checked_at }));
                    }
                }
                SlotState::Absent => return Err(Box::new(Error::Empty(self.topic().clone()))),
                SlotState::Gone => return Err(Box::new(Error::Gone(self.topic().clone()))),
                SlotState::Lapped => break,
            }
        }
        Err(Box::new(Error::Busy(self.topic().clone())))
    }

    /// Says that somebody follows this vertex closely and wants it measured as often as its
    /// publisher ever does. Holds for about a second: say it again while it is so. A subscription
    /// says it by itself.
    #[inline]
    pub fn follow(&self) {
        self.segment.mark(self.index, MARK_READ | MARK_FOLLOWED);
    }

    /// How many samples were ever stored here.
    #[inline]
    pub fn count(&self) -> u64 {
        self.raw().count()
    }

    /// The samples with a time in `range`, oldest first, as far as the ring reaches back.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn range(&self, range: RangeInclusive<Timestamp>) -> Result<Range, Error> {
        self.segment.mark(self.index, MARK_READ);
        let raw = self.raw();
        let reach = raw.reach(self.count());
        if reach.is_empty() && raw.read(self.owner, 0) == SlotState::Gone {
            return Err(Error::Gone(self.topic().clone()));
        }
        let (mut samples, mut complete) = (Vec::new(), reach.start == 0);
        for ticket in reach.rev() {
            let sample = match raw.read(self.owner, ticket) {
                SlotState::Whole(sample) => sample,
                SlotState::Gone => return Err(Error::Gone(self.topic().clone())),
                SlotState::Absent => continue,
                SlotState::Lapped => {
                    complete = false;
                    break;
                }
            };
            let time = Timestamp::from_nanos(sample.time);
            if time < *range.start() {
                complete = true;
                break;
            }
            if time <= *range.end() {
                match self.decode(&raw, &sample) {
                    Some(sample) => samples.push(sample),
                    None => {
                        complete = false;
                        break;
                    }
                }
            }
        }
        samples.reverse();
        Ok(Range { samples, complete })
    }

    /// The sample that held at `time`, or `None` if there was none yet.
    ///
    /// # Errors
    /// [`Error::Busy`] if the ring no longer reaches back that far; [`Error::Gone`].
    #[inline]
    pub fn as_of(&self, time: Timestamp) -> Result<Option<Sample>, Error> {
        self.segment.mark(self.index, MARK_READ);
        let raw = self.raw();
        match raw.as_of(self.owner, time.as_nanos()) {
            SlotState::Whole(sample) => match self.decode(&raw, &sample) {
                Some(sample) => Ok(Some(sample)),
                None => Err(Error::Busy(self.topic().clone())),
            },
            SlotState::Absent => Ok(None),
            SlotState::Lapped => Err(Error::Busy(self.topic().clone())),
            SlotState::Gone => Err(Error::Gone(self.topic().clone())),
        }
    }

    /// The ticket of the oldest sample that the ring may still hold.
    #[inline]
    pub(crate) fn oldest(&self) -> u64 {
        self.count().saturating_sub(u64::from(self.place.slots))
    }

    #[inline]
    pub(crate) fn has_news(&self, ticket: u64) -> bool {
        self.raw().has_news(self.owner, ticket)
    }

    #[inline]
    pub(crate) fn read(&self, ticket: u64) -> SlotState<Sample> {
        let raw = self.raw();
        match raw.read(self.owner, ticket) {
            // Whole, but not published before `head` says so. A writer that dies between the two
            // leaves the sample before as the latest, and nobody may have seen a newer one.
            SlotState::Whole(_) if ticket >= raw.count() => SlotState::Absent,
            SlotState::Whole(sample) => {
                self.decode(&raw, &sample).map_or(SlotState::Lapped, SlotState::Whole)
            }
            SlotState::Absent => SlotState::Absent,
            SlotState::Lapped => SlotState::Lapped,
            SlotState::Gone => SlotState::Gone,
        }
    }

    /// `None` if the bytes of a structured value were overwritten, or are no structured value.
    #[inline]
    fn decode(&self, raw: &RawVertex<'_>, sample: &RawSample) -> Option<Sample> {
        let structured = self.info.value_type == ValueType::Structured;
        let value = match Scalar::from_bits(self.info.value_type, sample.bits) {
            Some(scalar) => Value::from(scalar),
            None => Value::Structured(decode_structured(raw, sample)?),
        };
        let time = Timestamp::from_nanos(sample.time);
        Some(Sample { time, value, origin: sample.meta.origin(structured) })
    }
}

#[cold]
fn decode_structured(raw: &RawVertex<'_>, sample: &RawSample) -> Option<Structured> {
    let mut bytes = Vec::new();
    if !raw.copy_bytes(sample, &mut bytes) {
        return None;
    }
    Structured::from_json(std::str::from_utf8(&bytes).ok()?).ok()
}

impl fmt::Debug for Vertex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vertex({} in {:?})", self.topic(), self.segment)
    }
}
