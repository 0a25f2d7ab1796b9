//! The subset of all topics that a table has.

use skopos_model::Topic;

use crate::source::{Source, Wanted};

/// The subset of all topics that a table has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Subset {
    /// Every topic.
    All,
    /// This topic.
    One(Topic),
    /// Topics whose second segment is this one; the first is the node.
    Below(&'static str),
}

impl Subset {
    pub(crate) fn selects(&self, topic: &Topic) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => topic == one,
            Self::Below(name) => topic.segments().nth(1) == Some(name),
        }
    }

    /// Returns the topics to ask other nodes for. They know beginnings of topics and no second segments.
    pub(crate) fn of_nodes(&self, wanted: &Wanted, source: &dyn Source) -> Wanted {
        let Self::Below(name) = self else { return wanted.clone() };
        let starts = source.nodes().into_iter().map(|node| format!("{}/{name}/", node.name));
        Wanted::Starting(starts.filter(|start| wanted.selects(start)).collect())
    }
}
