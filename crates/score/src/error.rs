use skopos_model::{Topic, Unit};
use thiserror::Error;

use crate::graph::{MAX_HEIGHT, MAX_INPUTS, MAX_MATCHED, MAX_VERTICES, VertexId};

/// An error of the graph.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A vertex of this topic exists already.
    #[error("{0} is in the graph already")]
    Exists(Topic),
    /// The graph is full.
    #[error("the graph is full: it holds at most {MAX_VERTICES} vertices")]
    Full,
    /// The vertex was removed or never existed.
    #[error("there is no vertex {0}")]
    Gone(VertexId),
    /// A caller set the value of an insight; only facts can be set.
    #[error("{0} is an insight: its value is computed, not set")]
    Computed(Topic),
    /// A caller treated a fact as an insight.
    #[error("{0} is a fact, not an insight")]
    NotComputed(Topic),
    /// The pattern of an input is not valid.
    #[error("{insight}: the input `{input}` is not a pattern of topics")]
    Pattern {
        /// The insight to add.
        insight: Topic,
        /// Name of the input.
        input: String,
        /// The error of the pattern.
        #[source]
        source: skopos_model::Error,
    },
    /// The insight has too many inputs.
    #[error("{insight} has {inputs} inputs, and an insight has at most {MAX_INPUTS}")]
    Inputs {
        /// The insight to add.
        insight: Topic,
        /// Number of its inputs.
        inputs: usize,
    },
    /// The pattern of an input matches too many topics.
    #[error("{insight}: more than {MAX_MATCHED} topics match `{pattern}`")]
    Matched {
        /// The insight to add.
        insight: Topic,
        /// The pattern of the input.
        pattern: String,
    },
    /// The topics of an input have different units, and the input requires one unit.
    #[error("{insight}: {}", unit_conflict(.topic, *.unit, .input, *.wanted, .other.as_ref()))]
    Unit {
        /// The insight to add.
        insight: Topic,
        /// Name of the input.
        input: String,
        /// The unit that the input requires.
        wanted: Unit,
        /// A topic that matches the input and has the required unit, if there is one.
        other: Option<Topic>,
        /// A topic that matches the input and has another unit.
        topic: Topic,
        /// The unit of that topic.
        unit: Unit,
    },
    /// The insight would be an input of itself, directly or through other insights.
    #[error("a cycle: {}", arrows(.0))]
    Cycle(
        /// The path of the cycle: each topic is an input of the next, and the last equals the
        /// first.
        Vec<Topic>,
    ),
    /// The insight would be too many layers above the facts.
    #[error("{0} would be more than {MAX_HEIGHT} insights above the facts")]
    Height(Topic),
}

impl Error {
    /// Returns a hint on how the user can mend the error.
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

/// Returns a text such as `different units in the input "used": n01/a/used is in bytes, n01/b/used
/// in seconds`.
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
