use skopos_model::{Kind, Topic, Unit, ValueType};

use crate::input::Input;

/// The declaration of an insight's vertex.
#[derive(Clone, Debug)]
pub struct InsightSpec {
    /// The topic.
    pub topic: Topic,
    /// The unit of the values.
    pub unit: Unit,
    /// The kind of the values.
    pub kind: Kind,
    /// The type of the values. An integer becomes a double if a double is declared; any other
    /// difference makes the insight unknown.
    pub value_type: ValueType,
    /// The inputs.
    pub inputs: Vec<Input>,
    /// The name for people: `device health`.
    pub name: String,
    /// The formula in the names of the inputs, or the SQL.
    pub formula: String,
}
