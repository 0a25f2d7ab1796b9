use skopos_model::{Kind, Topic, Unit, ValueType};

use crate::Input;

/// The most inputs of one insight, each of which may stand for many topics. The fullest of the
/// built-in ones has eight.
pub const MAX_INPUTS: usize = 64;

/// The most topics that stand for one input: what one node of a site with many devices on each can
/// have, and a limit to what a careless `**` costs.
pub const MAX_MATCHED: usize = 1 << 16;

/// The most insights on a path from a fact. The paper measures 32; twice that is far above what
/// anybody can explain, and bounds a change's way.
pub const MAX_HEIGHT: usize = 64;

/// An insight that is to become a vertex.
#[derive(Clone, Debug)]
pub struct InsightSpec {
    /// Its topic.
    pub topic: Topic,
    /// The unit of its values.
    pub unit: Unit,
    /// How its values move.
    pub kind: Kind,
    /// Their type. An integer where a double is declared becomes one; whatever else differs makes
    /// the insight unknown.
    pub value_type: ValueType,
    /// What it is computed from.
    pub inputs: Vec<Input>,
    /// Its name, for people: `device health`.
    pub name: String,
    /// How it is computed, in the names of its inputs, or its SQL.
    pub formula: String,
}
