use skopos_model::{Kind, Topic, Unit, ValueType};

/// Default number of slots of a ring: two minutes at one sample a second.
pub const DEFAULT_SLOTS: u32 = 128;

/// The description of a vertex to register.
#[derive(Clone, Debug)]
pub struct VertexSpec {
    pub(crate) topic: Topic,
    pub(crate) value_type: ValueType,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) slots: u32,
}

impl VertexSpec {
    /// Describes a gauge without a unit and with [`DEFAULT_SLOTS`].
    pub fn new(topic: Topic, value_type: ValueType) -> Self {
        Self { topic, value_type, kind: Kind::Gauge, unit: Unit::NONE, slots: DEFAULT_SLOTS }
    }

    /// Sets the kind: the way in which values move.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the unit of the values.
    #[must_use]
    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Sets the number of samples that stay in memory: a power of two, at most
    /// [`MAX_SLOTS`](crate::layout::MAX_SLOTS).
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }
}
