use skopos_model::Unit;

/// An input of an insight: its name in the formula, and the topics that it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The name in the formula.
    pub name: String,
    /// A pattern of topics (`skopos_model::TopicPattern`), the node included.
    pub pattern: String,
    /// The unit that all matching topics must have; `None` accepts any unit.
    pub unit: Option<Unit>,
    /// True if the insight is unknown without this input; the age of the input is then the age of
    /// the insight.
    pub needed: bool,
}
