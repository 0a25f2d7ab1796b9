//! Filters of topics: they say which topics a scan reads, or which samples change an answer.

use skopos_eval::{Like, Statement};
use skopos_model::{Topic, schema};

use crate::source::{Source, Wanted};

/// A filter of topics.
///
/// [`wanted`](Self::wanted) is its coarse form, which a [`Source`] understands; [`selects`](Self::selects)
/// decides exactly.
#[derive(Clone, Debug)]
pub struct TopicFilter {
    wanted: Wanted,
    conditions: Vec<Condition>,
}

/// A condition on a topic.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// A topic that an insight's statement reads.
    Statement(Statement),
    /// A topic that matches a pattern of `LIKE`.
    Like(Like),
    /// A topic whose second segment is this one; the first is the node.
    Below(&'static str),
    /// A fact of one of these families.
    Families(Vec<String>),
    /// A topic with one of these metrics.
    Metrics(Vec<String>),
}

impl Condition {
    fn selects(&self, topic: &Topic) -> bool {
        let is_in = |texts: &[String], name| texts.iter().any(|text| text == name);
        match self {
            Self::Statement(statement) => statement.matches(topic),
            Self::Like(like) => like.matches(topic.as_str()),
            Self::Below(segment) => topic.segments().nth(1) == Some(segment),
            Self::Families(names) => {
                schema::lookup_in_family(topic).is_some_and(|(family, _)| is_in(names, family.name))
            }
            Self::Metrics(names) => is_in(names, topic.metric()),
        }
    }
}

impl From<Wanted> for TopicFilter {
    fn from(wanted: Wanted) -> Self {
        Self { wanted, conditions: Vec::new() }
    }
}

impl TopicFilter {
    /// Returns a filter that selects every topic.
    pub fn all() -> Self {
        Wanted::All.into()
    }

    /// Returns a filter that selects the topics of these nodes.
    pub fn of_nodes<'n>(nodes: impl IntoIterator<Item = &'n str>) -> Self {
        Wanted::Starting(nodes.into_iter().map(|node| format!("{node}/")).collect()).into()
    }

    /// Adds the condition that the second segment is `segment`: `insight` selects `n01/insight/load`.
    #[must_use]
    pub fn below(self, segment: &'static str) -> Self {
        self.and([Condition::Below(segment)])
    }

    /// Adds the condition that the topic is a fact of one of these families.
    pub(crate) fn of_families(self, names: Vec<String>) -> Self {
        self.and([Condition::Families(names)])
    }

    /// Adds conditions.
    pub(crate) fn and(mut self, conditions: impl IntoIterator<Item = Condition>) -> Self {
        self.conditions.extend(conditions);
        self
    }

    /// Returns the topics to ask a [`Source`] for: every selected topic, and possibly more.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Returns true if the filter selects `topic`.
    pub fn selects(&self, topic: &Topic) -> bool {
        self.wanted.selects(topic.as_str()) && self.fits(topic)
    }

    /// Returns true if a topic that a source shows for [`wanted`](Self::wanted) fits the other conditions.
    pub(crate) fn fits(&self, topic: &Topic) -> bool {
        self.conditions.iter().all(|condition| condition.selects(topic))
    }

    /// Returns the topics to ask other nodes for, which select by beginnings and not by second segments.
    pub(crate) fn wanted_of_nodes(&self, source: &dyn Source) -> Wanted {
        let below = self.conditions.iter().find_map(|condition| match condition {
            Condition::Below(segment) => Some(segment),
            _ => None,
        });
        let Some(segment) = below else { return self.wanted.clone() };
        let starts = source.nodes().into_iter().map(|node| format!("{}/{segment}/", node.name));
        Wanted::Starting(starts.filter(|start| self.wanted.selects(start)).collect())
    }
}
