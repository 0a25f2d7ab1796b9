use std::io;
use std::time::Duration;

use skopos_model::schema::{Family, Metric};
use skopos_model::{Scalar, Structured};

/// The longest poll of a sensor that waits for something without a timeout of its own, such as a
/// file system. A file system that works answers within a second even when it is busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads one source and yields the facts of one family.
pub trait Sensor: Send {
    /// The family whose facts the sensor yields; also the sensor's name.
    fn family(&self) -> &'static Family;

    /// Reads the source once and hands every fact to the tick's sink.
    ///
    /// # Errors
    /// The source could not be read this time. Facts that were already handed over stand; the
    /// others keep their last value and grow old.
    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()>;

    /// The time in which the source gets new values: more frequent polls find nothing new. `None`
    /// leaves the interval to the agent.
    fn interval_hint(&self) -> Option<Duration> {
        None
    }

    /// Returns true if a poll can wait for something that may never come (a program, a device, a
    /// file system that hangs). The agent then polls the sensor where it cannot delay others.
    fn may_block(&self) -> bool {
        false
    }

    /// The longest time that the next poll may take: the sum of the timeouts of everything that the
    /// sensor waits for. A poll that takes longer hangs, and the agent reports it.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Parts of the family that this machine does not have. The sensor itself runs without them.
    fn skips(&self) -> Vec<Skip> {
        Vec::new()
    }
}

/// Something that is not measured, with the reason. Users see it as `what: reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// A family (`hwmon`) or a part of one (`cgroup/memory`).
    pub what: String,
    /// The reason, in words that say what would change it.
    pub reason: String,
}

impl Skip {
    /// Skips `what` because of `reason`.
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }
}

/// One poll of one sensor: its time, and the sink for its facts.
pub struct Tick<'a> {
    /// A clock that never steps, for rates between two polls. Its zero has no meaning.
    pub monotonic: Duration,
    /// Receives the facts.
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

    /// Hands over a list of numbers; `None` is a number that is not known.
    pub fn set_list(&mut self, id: FactId, values: &[Option<Scalar>]) {
        self.sink.set_list(id, values);
    }
}

/// A registered fact. Only the sink that returned it knows which fact it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FactId(u32);

impl FactId {
    /// The id of a fact that the sink refused to register. Setting it does nothing. The sink counts
    /// and reports the refusal.
    pub const REFUSED: Self = Self(u32::MAX);

    /// Returns the id with this index in the sink's own table.
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }

    /// Returns the index, or `None` if the fact was refused.
    pub const fn index(self) -> Option<u32> {
        if self.0 == u32::MAX { None } else { Some(self.0) }
    }
}

/// The destination of facts: the agent's segment, or a test's table.
pub trait Sink {
    /// Registers the fact `metric` of `instance`. The instance is empty if the family has no
    /// instances; otherwise it is already a segment of a topic (see
    /// `skopos_model::escape_segment`).
    fn register(&mut self, metric: &'static Metric, instance: &str) -> FactId;

    /// Registers a list of values of `metric`, which is a structured value whatever the type of the
    /// metric is. The instance names the members of the list.
    fn register_list(&mut self, metric: &'static Metric, instance: &str) -> FactId;

    /// Removes a fact whose instance is gone.
    fn unregister(&mut self, id: FactId);

    /// Sets the fact's value at this tick. Its type is the metric's.
    fn set(&mut self, id: FactId, value: Scalar);

    /// Sets a structured value; otherwise like [`set`](Self::set).
    fn set_structured(&mut self, id: FactId, value: &Structured);

    /// Sets the values of a fact that was registered as a list. Must not allocate for a list as long
    /// as earlier ones.
    fn set_list(&mut self, id: FactId, values: &[Option<Scalar>]);
}
