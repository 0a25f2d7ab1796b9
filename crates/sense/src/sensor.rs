use std::io;
use std::time::Duration;

use skopos_model::schema::{Family, Metric};
use skopos_model::{Scalar, Structured};

/// How long a poll may take of a sensor that gives no time to what it waits for, such as a file
/// system: one that is alive answers within a second even when it is busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads one source and yields the facts of one family.
pub trait Sensor: Send {
    /// The family whose facts it yields; also its name.
    fn family(&self) -> &'static Family;

    /// Reads the source once and hands every fact to the tick's sink.
    ///
    /// # Errors
    /// The source could not be read this time; facts already handed over stand, the others keep
    /// their last value and grow old.
    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()>;

    /// How long the source takes to have news: polling it more often finds nothing. `None` if that
    /// is up to the agent.
    fn interval_hint(&self) -> Option<Duration> {
        None
    }

    /// True if a poll can wait for something that may never come (a program, a device, a file
    /// system that hangs), and so must not stand in the way of other sensors.
    fn may_block(&self) -> bool {
        false
    }

    /// How long the poll that comes next may honestly take; one that takes longer hangs, and is
    /// told to: the sum of what the sensor gives to each thing that it waits for.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Parts of the family that this machine does not have; the sensor itself runs without them.
    fn skips(&self) -> Vec<Skip> {
        Vec::new()
    }
}

/// Something that is not measured, and why. Shown to people as `what: reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// A family (`hwmon`) or a part of one (`cgroup/memory`).
    pub what: String,
    /// Why, in words that say what would change it.
    pub reason: String,
}

impl Skip {
    /// Skips `what` because of `reason`.
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }
}

/// One poll of one sensor: when, and where the facts go.
pub struct Tick<'a> {
    /// A clock that never steps, for rates between two polls; its zero means nothing.
    pub monotonic: Duration,
    /// Takes the facts.
    pub sink: &'a mut dyn Sink,
}

impl Tick<'_> {
    /// Hands over one fact.
    pub fn set(&mut self, id: FactId, value: impl Into<Scalar>) {
        self.sink.set(id, value.into());
    }

    /// Hands over one fact that is a text, list or record.
    pub fn set_structured(&mut self, id: FactId, value: &Structured) {
        self.sink.set_structured(id, value);
    }
}

/// A registered fact. Only the sink that gave it knows what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FactId(u32);

impl FactId {
    /// The id of a fact that the sink refused to register: setting it does nothing. The sink
    /// counts and reports the refusal.
    pub const REFUSED: Self = Self(u32::MAX);

    /// An id with this index in the sink's own table.
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }

    /// The index, or `None` if the fact was refused.
    pub const fn index(self) -> Option<u32> {
        if self.0 == u32::MAX { None } else { Some(self.0) }
    }
}

/// Where facts go: the agent's segment, or a test's table.
pub trait Sink {
    /// Registers the fact `metric` of `instance` (empty if the family has none; else a segment of
    /// a topic already, see `skopos_model::escape_segment`).
    fn register(&mut self, metric: &'static Metric, instance: &str) -> FactId;

    /// Takes a fact away whose instance is gone.
    fn unregister(&mut self, id: FactId);

    /// The fact's value at this tick. Its type is the metric's.
    fn set(&mut self, id: FactId, value: Scalar);

    /// As [`set`](Self::set), for a structured value.
    fn set_structured(&mut self, id: FactId, value: &Structured);
}
