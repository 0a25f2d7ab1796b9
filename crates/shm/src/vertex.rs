//! Reads of one vertex: the latest value, a range of time, the value that held at a time.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use skopos_model::{Sample, Scalar, Structured, Timestamp, Topic, Value, ValueType};

use crate::error::Error;
use crate::flags::{MARK_FOLLOWED, MARK_READ};
use crate::ring::{Place, RawSample, RawVertex, SlotState};
use crate::segment::{Segment, VertexInfo};
use crate::sys;

/// Attempts at a structured value whose bytes are overwritten meanwhile.
const STRUCTURED_ATTEMPTS: u32 = 100;

/// The samples of one topic, for reading. Cheap to clone. It stays valid, and returns [`Error::Gone`]
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

/// A sample together with the time of the last poll of its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The sample. The value holds since its time.
    pub sample: Sample,
    /// Time of the last poll of the source: recent if the value is unchanged and fresh, old if it is stale.
    pub checked_at: Timestamp,
}

impl Reading {
    /// Returns the time since the last poll of the source.
    #[inline]
    pub fn age(&self) -> Duration {
        sys::now().since(self.checked_at)
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

    /// Returns the topic.
    #[inline]
    pub fn topic(&self) -> &Topic {
        &self.info.topic
    }

    /// Returns the description in the directory.
    #[inline]
    pub fn info(&self) -> &VertexInfo {
        &self.info
    }

    /// Returns the segment of the vertex.
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
        self.segment.mark(self.index, MARK_READ);
        self.peek()
    }

    /// Like [`latest`](Self::latest), but without a mark for the publisher that a reader is interested in
    /// this vertex: for readers that read all vertices.
    ///
    /// # Errors
    /// The errors of [`latest`](Self::latest).
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

    /// Returns the latest sample of a structured vertex, and every error.
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

    /// Tells the publisher that a reader follows this vertex and needs it polled at the publisher's highest
    /// rate. This holds for about a second, so call it repeatedly. A subscription does this by itself.
    #[inline]
    pub fn follow(&self) {
        self.segment.mark(self.index, MARK_READ | MARK_FOLLOWED);
    }

    /// Returns the number of samples that were ever stored.
    #[inline]
    pub fn count(&self) -> u64 {
        self.raw().count()
    }

    /// Returns the samples with a time in `range`, oldest first, as far as the ring reaches back.
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

    /// Returns the sample that held at `time`, or `None` before the first sample.
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

    /// Returns the ticket of the oldest sample that the ring may still hold.
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
        read_sample(&self.raw(), self.owner, ticket, self.info.value_type)
    }

    /// Returns the place of the vertex, which lies in the mapping of its segment.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Returns the owner that the vertex has as long as it is registered.
    pub(crate) fn owner(&self) -> u64 {
        self.owner
    }

    #[inline]
    fn decode(&self, raw: &RawVertex<'_>, sample: &RawSample) -> Option<Sample> {
        decode(raw, sample, self.info.value_type)
    }
}

/// Reads sample `ticket` of a vertex with this owner and this type.
#[inline]
pub(crate) fn read_sample(
    raw: &RawVertex<'_>,
    owner: u64,
    ticket: u64,
    value_type: ValueType,
) -> SlotState<Sample> {
    match raw.read(owner, ticket) {
        // Complete, but not published until `head` is raised. A writer that dies in between leaves
        // the previous sample as the latest, and no reader may have seen a newer sample.
        SlotState::Whole(_) if ticket >= raw.count() => SlotState::Absent,
        SlotState::Whole(sample) => {
            decode(raw, &sample, value_type).map_or(SlotState::Lapped, SlotState::Whole)
        }
        SlotState::Absent => SlotState::Absent,
        SlotState::Lapped => SlotState::Lapped,
        SlotState::Gone => SlotState::Gone,
    }
}

/// Decodes a sample; `None` if the bytes of a structured value were overwritten or are invalid.
#[inline]
fn decode(raw: &RawVertex<'_>, sample: &RawSample, value_type: ValueType) -> Option<Sample> {
    let structured = value_type == ValueType::Structured;
    let value = match Scalar::from_bits(value_type, sample.bits) {
        Some(scalar) => Value::from(scalar),
        None => Value::Structured(decode_structured(raw, sample)?),
    };
    let time = Timestamp::from_nanos(sample.time);
    Some(Sample { time, value, origin: sample.meta.origin(structured) })
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
