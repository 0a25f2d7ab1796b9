use skopos_model::{Kind, Topic, Unit, ValueType};

/// Slots of a ring unless the vertex says otherwise: two minutes at one sample a second.
pub const DEFAULT_SLOTS: u32 = 128;

/// What a vertex to be registered is.
#[derive(Clone, Debug)]
pub struct VertexSpec {
    pub(crate) topic: Topic,
    pub(crate) value_type: ValueType,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) slots: u32,
}

impl VertexSpec {
    /// A gauge without unit and with [`DEFAULT_SLOTS`].
    pub fn new(topic: Topic, value_type: ValueType) -> Self {
        Self { topic, value_type, kind: Kind::Gauge, unit: Unit::NONE, slots: DEFAULT_SLOTS }
    }

    /// How its values move.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The unit of its values.
    #[must_use]
    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// How many samples stay in memory: a power of two, at most [`MAX_SLOTS`].
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }
}
