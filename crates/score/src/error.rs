use skopos_model::{Topic, Unit};
use thiserror::Error;

use crate::graph::{MAX_HEIGHT, MAX_INPUTS, MAX_MATCHED, MAX_VERTICES, VertexId};

/// What can be wrong with what SCoRe is asked to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is a vertex of this topic.
    #[error("{0} is in the graph already")]
    Exists(Topic),
    /// The graph has no room.
    #[error("the graph is full: it holds at most {MAX_VERTICES} vertices")]
    Full,
    /// This vertex is gone, or never was.
    #[error("there is no vertex {0}")]
    Gone(VertexId),
    /// Only facts are set from outside.
    #[error("{0} is an insight: its value is computed, not set")]
    Computed(Topic),
    /// Only insights are computed.
    #[error("{0} is a fact, not an insight")]
    NotComputed(Topic),
    /// An input that is no pattern.
    #[error("{insight}: the input `{input}` is not a pattern of topics")]
    Pattern {
        /// The insight that was to be added.
        insight: Topic,
        /// The input's name.
        input: String,
        /// What is wrong with it.
        #[source]
        source: skopos_model::Error,
    },
    /// More inputs than an insight can have.
    #[error("{insight} has {inputs} inputs, and an insight has at most {MAX_INPUTS}")]
    Inputs {
        /// The insight that was to be added.
        insight: Topic,
        /// How many it was to have.
        inputs: usize,
    },
    /// A pattern that matches too much.
    #[error("{insight}: more than {MAX_MATCHED} topics match `{pattern}`")]
    Matched {
        /// The insight that was to be added.
        insight: Topic,
        /// The input's pattern.
        pattern: String,
    },
    /// Topics of different units where one unit is asked for.
    #[error("{insight}: {}", unit_conflict(.topic, *.unit, .input, *.wanted, .other.as_ref()))]
    Unit {
        /// The insight that was to be added.
        insight: Topic,
        /// The input's name.
        input: String,
        /// The unit that it asks for.
        wanted: Unit,
        /// A topic that matches it and has that unit, if there is one.
        other: Option<Topic>,
        /// The topic that matches it and has another unit.
        topic: Topic,
        /// That other unit.
        unit: Unit,
    },
    /// An insight would be computed from itself.
    #[error("a cycle: {}", arrows(.0))]
    Cycle(
        /// Each is an input of the next; the last is the first.
        Vec<Topic>,
    ),
    /// Insights over insights over insights.
    #[error("{0} would be more than {MAX_HEIGHT} insights above the facts")]
    Height(Topic),
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Exists(_) => "give it another topic, or remove the one that is there first",
            Self::Full => "narrow the patterns of what is taken in",
            Self::Cycle(_) => "narrow the pattern of an input so that it does not match the others",
            Self::Height(_) => "compute it from facts, or from insights closer to them",
            Self::Inputs { .. } => "let one input stand for several topics by a pattern",
            Self::Matched { .. } => "narrow the pattern, or make insights of parts of it first",
            Self::Unit { .. } => "narrow the pattern to topics of one unit",
            Self::Gone(_) | Self::Computed(_) | Self::NotComputed(_) | Self::Pattern { .. } => {
                return None;
            }
        })
    }
}

/// `the input "used" takes bytes: n01/a/used is in bytes, n01/b/used in seconds`.
pub(crate) fn unit_conflict(
    topic: &Topic,
    unit: Unit,
    input: &str,
    wanted: Unit,
    other: Option<&Topic>,
) -> String {
    let named = |unit: Unit| match unit.as_str() {
        "" => "plain numbers".to_owned(),
        text => text.to_owned(),
    };
    let (unit, wanted) = (named(unit), named(wanted));
    match other {
        Some(other) => {
            format!(
                "different units in the input `{input}`: {other} is in {wanted}, {topic} in {unit}"
            )
        }
        None => format!("the input `{input}` takes {wanted}, and {topic} is in {unit}"),
    }
}

fn arrows(path: &[Topic]) -> String {
    path.iter().map(Topic::as_str).collect::<Vec<_>>().join(" → ")
}
