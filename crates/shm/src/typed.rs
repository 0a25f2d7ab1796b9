//! Handles whose type has the type of the values: a number goes in, a number comes out.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use skopos_model::{Origin, Scalar, Timestamp, Topic, ValueType};

use crate::clocks::Difference;
use crate::error::Error;
use crate::host::Host;
use crate::publisher::Publisher;
use crate::ring::Published;
use crate::spec::VertexSpec;
use crate::subscribe::{Delivery, Subscription};
use crate::sys;
use crate::vertex::Vertex;
use crate::writer::VertexWriter;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f64 {}
    impl Sealed for i64 {}
    impl Sealed for u64 {}
}

/// The type of the numbers of a vertex: `f64`, `i64` or `u64`.
pub trait Number: Copy + Into<Scalar> + sealed::Sealed {
    /// The type in the directory.
    const TYPE: ValueType;

    /// Makes the number from the bits of a slot.
    #[doc(hidden)]
    fn from_bits(bits: u64) -> Self;
}

impl Number for f64 {
    const TYPE: ValueType = ValueType::F64;

    #[inline]
    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }
}

impl Number for i64 {
    const TYPE: ValueType = ValueType::I64;

    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits.cast_signed()
    }
}

impl Number for u64 {
    const TYPE: ValueType = ValueType::U64;

    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits
    }
}

/// The only writer of a vertex of numbers. Dropping it unregisters the vertex.
///
/// It takes no lock, so it is the fastest way to publish. [`VertexWriter`] is for several threads.
pub struct Writer<T> {
    // No clone of it leaves this type: that makes it the only writer.
    only: VertexWriter,
    /// The difference of the clocks at the last publish.
    clocks: Difference,
    numbers: PhantomData<T>,
}

impl<T: Number> Writer<T> {
    /// Returns the topic of the vertex.
    pub fn topic(&self) -> &Topic {
        self.only.topic()
    }

    /// Publishes a number, measured now.
    ///
    /// # Errors
    /// [`Error::Gone`] after the publisher is dropped; [`Error::Forked`] in a child of the publisher.
    #[inline]
    pub fn publish(&mut self, value: T) -> Result<Published, Error> {
        self.publish_at(sys::now(), value)
    }

    /// Publishes a number, measured at `time`; see [`VertexWriter::publish_at`].
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    #[inline]
    pub fn publish_at(&mut self, time: Timestamp, value: T) -> Result<Published, Error> {
        self.only.publish_alone(&mut self.clocks, time, value.into().to_bits())
    }

    /// Records that the source was polled at `time` and had not changed.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    #[inline]
    pub fn check_at(&mut self, time: Timestamp) -> Result<(), Error> {
        self.only.check_alone(&mut self.clocks, time)
    }
}

impl<T> Drop for Writer<T> {
    fn drop(&mut self) {
        self.only.unregister();
    }
}

impl<T> fmt::Debug for Writer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.only.fmt(f)
    }
}

impl Publisher {
    /// Registers a gauge without a unit under `topic` and returns its only writer.
    ///
    /// # Errors
    /// [`Error::Model`] if `topic` is not a topic; the errors of [`register`](Self::register).
    pub fn writer<T: Number>(&self, topic: &str) -> Result<Writer<T>, Error> {
        self.writer_of(VertexSpec::new(topic.parse()?, T::TYPE))
    }

    /// Registers a vertex with a kind, a unit and a number of slots, and returns its only writer.
    ///
    /// # Errors
    /// [`Error::WrongType`] if `spec` has another type than `T`; the errors of [`register`](Self::register).
    pub fn writer_of<T: Number>(&self, spec: VertexSpec) -> Result<Writer<T>, Error> {
        if spec.value_type != T::TYPE {
            let (topic, wanted) = (spec.topic, spec.value_type);
            return Err(Error::WrongType { topic, wanted, found: T::TYPE });
        }
        let only = self.register(spec)?;
        Ok(Writer { only, clocks: Difference::default(), numbers: PhantomData })
    }
}

/// A reader of a vertex of numbers. Cheap to clone; [`vertex`](Self::vertex) has the rest of what a vertex can do.
#[derive(Clone)]
pub struct Reader<T> {
    vertex: Vertex,
    numbers: PhantomData<T>,
}

impl<T: Number> Reader<T> {
    /// Returns the latest number, however old it is. Makes no system call, takes no lock and allocates nothing.
    ///
    /// # Errors
    /// [`Error::Unknown`] if the publisher could not measure it; the errors of [`Vertex::latest`].
    //
    // Always inlined, as `Vertex::latest`.
    #[inline(always)]
    pub fn get(&self) -> Result<T, Error> {
        let (bits, is_known) = self.vertex.latest_bits()?;
        if is_known { Ok(T::from_bits(bits)) } else { Err(self.unknown()) }
    }

    /// Returns the latest number if its source was polled within `max_age`.
    ///
    /// # Errors
    /// [`Error::Stale`] if it is older; the errors of [`get`](Self::get).
    #[inline]
    pub fn fresh(&self, max_age: Duration) -> Result<T, Error> {
        let reading = self.vertex.latest()?;
        let age = reading.age();
        if age > max_age {
            let topic = self.vertex.topic().clone();
            return Err(Error::Stale { topic, age, max_age });
        }
        if reading.sample.origin == Origin::Unknown {
            return Err(self.unknown());
        }
        let scalar = Scalar::try_from(&reading.sample.value);
        scalar.map(|scalar| T::from_bits(scalar.to_bits())).map_err(|()| self.unknown())
    }

    /// Waits at most `timeout` for the next number that is stored; `None` if nothing came.
    ///
    /// # Errors
    /// The errors of [`Subscription::next_timeout`] and [`get`](Self::get).
    pub fn wait(&self, timeout: Duration) -> Result<Option<T>, Error> {
        match self.vertex.subscribe().next_timeout(timeout)? {
            Some(Delivery::Sample(_) | Delivery::Lost(_)) => self.get().map(Some),
            None => Ok(None),
        }
    }

    /// Subscribes from now on.
    pub fn subscribe(&self) -> Subscription {
        self.vertex.subscribe()
    }

    /// Returns the vertex.
    pub fn vertex(&self) -> &Vertex {
        &self.vertex
    }

    #[cold]
    fn unknown(&self) -> Error {
        Error::Unknown(self.vertex.topic().clone())
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.vertex.fmt(f)
    }
}

impl<T: Number> TryFrom<Vertex> for Reader<T> {
    type Error = Error;

    /// # Errors
    /// [`Error::WrongType`] if the vertex holds another type.
    fn try_from(vertex: Vertex) -> Result<Self, Error> {
        let wanted = vertex.info().value_type;
        if wanted == T::TYPE {
            return Ok(Self { vertex, numbers: PhantomData });
        }
        Err(Error::WrongType { topic: vertex.topic().clone(), wanted, found: T::TYPE })
    }
}

impl Host {
    /// Returns a reader of the vertex that [`lookup`](Self::lookup) finds.
    ///
    /// # Errors
    /// [`Error::WrongType`] if the vertex holds another type; the errors of [`lookup`](Self::lookup).
    pub fn reader<T: Number>(&self, topic: &str) -> Result<Reader<T>, Error> {
        self.lookup(topic)?.try_into()
    }
}
