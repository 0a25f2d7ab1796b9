//! Handles for publishing: a single vertex, and a group of vertices tick by tick.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use skopos_model::{
    MAX_STRUCTURED_BYTES, Origin, Sample, Scalar, Structured, Timestamp, Topic, Value, ValueType,
};

use crate::clocks::Difference;
use crate::error::Error;
use crate::list;
use crate::map::{Pinned, PinnedVertex};
use crate::own_segment::{NewVertex, OwnSegment};
use crate::process::Maker;
use crate::ring::{Moment, Payload, Place, Published, VertexHead};
use crate::spec::VertexSpec;
use crate::sync::{AtomicU32, Ordering};
use crate::sys;
use crate::wait::{Bell, settle_quickly};

/// Publishes into one vertex. Cheap to clone: any number of threads may publish into one vertex.
#[derive(Clone)]
pub struct VertexWriter {
    segment: Arc<OwnSegment>,
    vertex: PinnedVertex,
    /// The flags of waiters for this vertex and for any; `None` without a page of flags.
    flags: Option<[Pinned<AtomicU32>; 2]>,
    /// The same, if this publisher makes no fence before it looks at them.
    quick_flags: Option<[Pinned<AtomicU32>; 2]>,
    maker: Maker,
    owner: u64,
    value_type: ValueType,
    group: u32,
    index: u32,
    place: Place,
    topic: Topic,
}

/// The outcome of [`VertexWriter::publish_quickly`].
#[derive(Clone, Copy)]
enum Quick {
    /// The value was stored, and no reader waits.
    Stored,
    /// The value was stored, and its readers are to be woken.
    Awaited,
    /// The value equals the last one.
    Unchanged,
    /// Nothing was done: the case is not a usual one.
    NotDone,
}

impl VertexWriter {
    pub(crate) fn new(segment: &Arc<OwnSegment>, new: NewVertex) -> Self {
        let NewVertex { topic, value_type, group, place, index, owner } = new;
        let (vertex, flags) = (segment.pin_vertex(&place), segment.pin_flags(index));
        let quick_flags = flags.clone().filter(|_| segment.is_quick());
        Self {
            segment: Arc::clone(segment),
            maker: segment.maker(),
            vertex,
            flags,
            quick_flags,
            owner,
            value_type,
            group,
            index,
            place,
            topic,
        }
    }

    /// Returns the head of the vertex.
    #[inline]
    pub(crate) fn head(&self) -> &VertexHead {
        self.vertex.head()
    }

    /// Returns the topic of the vertex.
    #[inline]
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    #[inline]
    pub(crate) fn is_of(&self, segment: &Arc<OwnSegment>) -> bool {
        Arc::ptr_eq(&self.segment, segment)
    }

    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    #[inline]
    pub(crate) fn owner(&self) -> u64 {
        self.owner
    }

    /// Publishes a number, measured now.
    ///
    /// # Errors
    /// [`Error::WrongType`]; [`Error::Gone`] after the vertex is unregistered; [`Error::NeedsTick`] for a
    /// vertex of a group; [`Error::Forked`] in a child of the publisher.
    #[inline]
    pub fn publish(&self, value: impl Into<Scalar>) -> Result<Published, Error> {
        self.publish_at(sys::now(), value)
    }

    /// Publishes a number, measured at `time`. A time before that of the last publish, changed or not, is
    /// replaced by it: after a time far in the future, all later samples get that time.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    #[inline]
    pub fn publish_at(
        &self,
        time: Timestamp,
        value: impl Into<Scalar>,
    ) -> Result<Published, Error> {
        let value = value.into();
        self.alone()?;
        let (found, payload) = (value.value_type(), Payload::Bits(value.to_bits()));
        let at = self.segment.moment(time);
        let done = self.put(at, found, payload, Origin::Measured)?;
        self.ring(done);
        Ok(done)
    }

    /// Publishes a number of the vertex's type from the only handle of the vertex: without its lock. `kept` is the
    /// difference of the clocks at the last publish of the handle.
    #[inline]
    pub(crate) fn publish_alone(
        &self,
        kept: &mut Difference,
        time: Timestamp,
        bits: u64,
    ) -> Result<Published, Error> {
        match self.publish_quickly(kept, time, bits) {
            Quick::Stored => Ok(Published::Stored),
            Quick::Unchanged => Ok(Published::Unchanged),
            Quick::Awaited => {
                self.wake();
                Ok(Published::Stored)
            }
            Quick::NotDone => self.publish_slowly(kept, time, bits),
        }
    }

    /// The usual case of [`publish_alone`](Self::publish_alone); does nothing in any other.
    //
    // A function of its own that calls no other one and has its result in a register: what it would keep across a call, or
    // return by memory, are more stores than those of the sample, and a core makes about one in a cycle.
    #[inline(never)]
    fn publish_quickly(&self, kept: &Difference, time: Timestamp, bits: u64) -> Quick {
        let Some([flag, any]) = self.quick_flags.as_ref().filter(|_| self.maker.is_this()) else {
            return Quick::NotDone;
        };
        if !kept.holds(time) {
            return Quick::NotDone;
        }
        let slot = |ticket| self.vertex.slot(ticket);
        match self.vertex.head().publish_next(slot, self.owner, kept.moment(time), bits) {
            Some(Published::Stored) => {
                settle_quickly();
                if Bell::is_any_up(flag, any) { Quick::Awaited } else { Quick::Stored }
            }
            Some(Published::Unchanged) => Quick::Unchanged,
            None => Quick::NotDone,
        }
    }

    #[cold]
    fn publish_slowly(
        &self,
        kept: &mut Difference,
        time: Timestamp,
        bits: u64,
    ) -> Result<Published, Error> {
        self.segment.check_own()?;
        let at = self.moment(kept, time);
        let raw = self.vertex.raw();
        let done = raw.publish_alone(self.owner, at, Payload::Bits(bits), Origin::Measured);
        let done = done.ok_or_else(|| self.gone())?;
        self.ring(done);
        Ok(done)
    }

    /// Marks the source as polled from the only handle of the vertex.
    #[inline]
    pub(crate) fn check_alone(&self, kept: &mut Difference, time: Timestamp) -> Result<(), Error> {
        self.segment.check_own()?;
        let at = self.moment(kept, time);
        self.vertex.raw().check_alone(self.owner, at).ok_or_else(|| self.gone())
    }

    /// Returns the moment of `time` by the difference that the only handle of the vertex keeps.
    #[inline(always)]
    fn moment(&self, kept: &mut Difference, time: Timestamp) -> Moment {
        if !kept.holds(time) {
            *kept = self.segment.difference(time);
        }
        kept.moment(time)
    }

    /// Unregisters the vertex.
    pub(crate) fn unregister(&self) {
        self.segment.unregister(self.index, self.owner);
    }

    #[cold]
    fn gone(&self) -> Error {
        Error::Gone(self.topic.clone())
    }

    /// Publishes any sample, also a structured, predicted or unknown one.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    pub fn publish_sample(&self, sample: &Sample) -> Result<Published, Error> {
        self.publish_sample_of(sample, sample.time)
    }

    /// Publishes a sample of which the source was polled at `checked_at`: [`Reading::age`](crate::Reading::age) counts
    /// from there. For a sample that has another time to keep the order, as after a step of the clock.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    pub fn publish_sample_of(
        &self,
        sample: &Sample,
        checked_at: Timestamp,
    ) -> Result<Published, Error> {
        self.alone()?;
        let at = Moment { time: sample.time.as_nanos(), ..self.segment.moment(checked_at) };
        self.put_value(at, &sample.value, sample.origin).inspect(|done| self.ring(*done))
    }

    /// Records that the source was polled at `time` and had not changed. Costs less than publishing the same
    /// value again, and wakes no reader.
    ///
    /// # Errors
    /// [`Error::Gone`] after the vertex is unregistered; [`Error::NeedsTick`] for a vertex of a group, which
    /// [`Tick::check`] takes; [`Error::Forked`] in a child of the publisher.
    #[inline]
    pub fn check_at(&self, time: Timestamp) -> Result<(), Error> {
        self.alone()?;
        self.check(self.segment.moment(time))
    }

    #[inline]
    fn check(&self, at: Moment) -> Result<(), Error> {
        self.segment.check_own()?;
        self.vertex.raw().check(self.owner, at).ok_or_else(|| self.gone())
    }

    /// Returns the type of the values.
    #[inline]
    pub fn value_type(&self) -> ValueType {
        self.value_type
    }

    #[inline]
    fn alone(&self) -> Result<(), Error> {
        if self.group == 0 { Ok(()) } else { Err(Error::NeedsTick(self.topic.clone())) }
    }

    /// Wakes the readers that wait for a sample; an unchanged value is none.
    #[inline]
    fn ring(&self, done: Published) {
        if done == Published::Stored && self.is_awaited() {
            self.wake();
        }
    }

    /// Returns true if a reader may wait for what was published before.
    #[inline]
    fn is_awaited(&self) -> bool {
        self.flags.as_ref().is_some_and(|flags| self.segment.is_awaited(flags))
    }

    #[cold]
    fn wake(&self) {
        if let Some(flags) = &self.flags {
            self.segment.wake(flags, self.vertex.head());
        }
    }

    fn put_value(&self, at: Moment, value: &Value, origin: Origin) -> Result<Published, Error> {
        let bits = |scalar: Scalar| Payload::Bits(scalar.to_bits());
        match value {
            Value::F64(v) => self.put(at, ValueType::F64, bits((*v).into()), origin),
            Value::I64(v) => self.put(at, ValueType::I64, bits((*v).into()), origin),
            Value::U64(v) => self.put(at, ValueType::U64, bits((*v).into()), origin),
            Value::Structured(s) => {
                let text = s.to_string();
                self.put(at, ValueType::Structured, Payload::Bytes(text.as_bytes()), origin)
            }
        }
    }

    #[inline]
    fn put(
        &self,
        at: Moment,
        found: ValueType,
        payload: Payload<'_>,
        origin: Origin,
    ) -> Result<Published, Error> {
        if found != self.value_type {
            let (topic, wanted) = (self.topic.clone(), self.value_type);
            return Err(Error::WrongType { topic, wanted, found });
        }
        self.segment.check_own()?;
        self.vertex.raw().publish(self.owner, at, payload, origin).ok_or_else(|| self.gone())
    }
}

impl fmt::Debug for VertexWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VertexWriter({}, {})", self.topic, self.value_type)
    }
}

/// Vertices that are measured together. Not `Clone`, so that a group has one tick at a time.
#[derive(Debug)]
pub struct Group {
    segment: Arc<OwnSegment>,
    id: u32,
    /// Time of the last tick, complete or not, ns.
    last: i64,
    /// Vertices whose waiters are woken at the end of the tick; kept for its allocation.
    touched: Vec<VertexWriterId>,
    /// The text of the current structured value; kept for its allocation.
    text: String,
}

/// The part of a writer that wakes waiters.
#[derive(Clone, Copy, Debug)]
struct VertexWriterId {
    index: u32,
    place: Place,
}

impl Group {
    pub(crate) fn new(segment: &Arc<OwnSegment>, id: u32) -> Self {
        Self { segment: Arc::clone(segment), id, last: 0, touched: Vec::new(), text: String::new() }
    }

    /// Registers a vertex of this group.
    ///
    /// # Errors
    /// The errors of [`Publisher::register`](crate::Publisher::register).
    pub fn register(&self, spec: VertexSpec) -> Result<VertexWriter, Error> {
        self.segment.register(spec, self.id).map(|new| VertexWriter::new(&self.segment, new))
    }

    /// Starts a tick. All its samples carry one time: `time`, or just after the previous tick's if that is
    /// later. Readers can take the tick as one snapshot once it is [committed](Tick::commit).
    pub fn tick(&mut self, time: Timestamp) -> Tick<'_> {
        self.last = time.as_nanos().max(self.last.saturating_add(1));
        self.touched.clear();
        // After a step back of the clock the tick has a later time than it should, and its age is right.
        let at = Moment { time: self.last, ..self.segment.moment(time) };
        Tick { at, group: self }
    }
}

/// One tick of a group, complete with [`commit`](Self::commit).
///
/// A tick that is dropped without it, because an error ended it half-way, is passed over by snapshots. What it
/// published is still the latest value of each vertex, and the next tick has a later time.
#[derive(Debug)]
#[must_use = "a tick that is not committed is passed over by snapshots"]
pub struct Tick<'a> {
    group: &'a mut Group,
    at: Moment,
}

impl Tick<'_> {
    /// Returns the time that every sample of this tick carries.
    #[inline]
    pub fn time(&self) -> Timestamp {
        Timestamp::from_nanos(self.at.time)
    }

    /// Registers another vertex of the group during the tick.
    ///
    /// # Errors
    /// The errors of [`Publisher::register`](crate::Publisher::register).
    pub fn register(&self, spec: VertexSpec) -> Result<VertexWriter, Error> {
        self.group.register(spec)
    }

    /// Unregisters a vertex of the group during the tick; see
    /// [`Publisher::unregister`](crate::Publisher::unregister).
    pub fn unregister(&self, vertex: &VertexWriter) {
        if self.own(vertex).is_ok() {
            self.group.segment.unregister(vertex.index, vertex.owner);
        }
    }

    /// Publishes a number.
    ///
    /// # Errors
    /// [`Error::WrongType`]; [`Error::Gone`]; [`Error::SnapshotGroup`] if the vertex is not of this
    /// group.
    #[inline]
    pub fn publish(
        &mut self,
        vertex: &VertexWriter,
        value: impl Into<Scalar>,
    ) -> Result<Published, Error> {
        let value = value.into();
        self.own(vertex)?;
        let payload = Payload::Bits(value.to_bits());
        let done = vertex.put(self.at, value.value_type(), payload, Origin::Measured)?;
        Ok(self.touch(vertex, done))
    }

    /// Publishes any value.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    pub fn publish_value(
        &mut self,
        vertex: &VertexWriter,
        value: &Value,
    ) -> Result<Published, Error> {
        if let Value::Structured(value) = value {
            return self.publish_structured(vertex, value);
        }
        self.own(vertex)?;
        let done = vertex.put_value(self.at, value, Origin::Measured)?;
        Ok(self.touch(vertex, done))
    }

    /// Publishes a structured value. Allocates nothing after the group has published a value of this length.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    pub fn publish_structured(
        &mut self,
        vertex: &VertexWriter,
        value: &Structured,
    ) -> Result<Published, Error> {
        self.own(vertex)?;
        let text = &mut self.group.text;
        text.clear();
        write!(text, "{value}").expect("a String takes all");
        let payload = Payload::Bytes(text.as_bytes());
        let done = vertex.put(self.at, ValueType::Structured, payload, Origin::Measured)?;
        Ok(self.touch(vertex, done))
    }

    /// Publishes a list of numbers as a structured value, with `null` for a number that is not known or not
    /// finite. Allocates nothing after the group has published a value of this length.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish), and
    /// [`StructuredTooLong`](skopos_model::Error::StructuredTooLong).
    pub fn publish_list(
        &mut self,
        vertex: &VertexWriter,
        values: &[Option<Scalar>],
    ) -> Result<Published, Error> {
        self.own(vertex)?;
        let text = &mut self.group.text;
        text.clear();
        list::write(values, text);
        if text.len() > MAX_STRUCTURED_BYTES {
            return Err(skopos_model::Error::StructuredTooLong(text.len()).into());
        }
        let payload = Payload::Bytes(text.as_bytes());
        let done = vertex.put(self.at, ValueType::Structured, payload, Origin::Measured)?;
        Ok(self.touch(vertex, done))
    }

    /// Records that the source was polled in this tick and had not changed.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::SnapshotGroup`]; [`Error::Forked`].
    #[inline]
    pub fn check(&self, vertex: &VertexWriter) -> Result<(), Error> {
        self.own(vertex)?;
        vertex.check(self.at)
    }

    /// Completes the tick: snapshots have its samples from now on. Reports, too, that this process lives.
    pub fn commit(self) {
        let segment = &self.group.segment;
        if !segment.is_own() {
            return;
        }
        let shared = segment.group(self.group.id);
        shared.ticks.fetch_add(1, Ordering::Relaxed);
        // SYNC: pairs with the Acquire load in `snapshot`: a reader that sees this time sees every
        // sample of the tick.
        shared.tick_time.store(self.at.time, Ordering::Release);
        segment.heartbeat();
    }

    #[inline]
    fn own(&self, vertex: &VertexWriter) -> Result<(), Error> {
        let own = vertex.is_of(&self.group.segment) && vertex.group == self.group.id;
        if own { Ok(()) } else { Err(Error::SnapshotGroup(vertex.topic.clone())) }
    }

    #[inline]
    fn touch(&mut self, vertex: &VertexWriter, done: Published) -> Published {
        if done == Published::Stored {
            let (index, place) = (vertex.index, vertex.place);
            self.group.touched.push(VertexWriterId { index, place });
        }
        done
    }
}

impl Drop for Tick<'_> {
    fn drop(&mut self) {
        let segment = &self.group.segment;
        // In a child that was forked inside of a tick, the tick is the parent's.
        if !segment.is_own() {
            return;
        }
        let touched = self.group.touched.iter();
        segment.ring_all(touched.map(|t| (t.index, segment.vertex(&t.place).head)));
    }
}
