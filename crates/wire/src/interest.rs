//! The nodes and topics that a follower wants.

use std::sync::Arc;

use skopos_model::{Topic, TopicPattern};
use zenoh::key_expr::OwnedKeyExpr;

/// Selects the nodes and topics that a follower wants; the default selects all.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    /// A topic is wanted if one of these matches it. An empty list matches every topic.
    patterns: Arc<[TopicPattern]>,
    /// A node that is not followed: the node on which the follower runs.
    own: Option<String>,
}

impl Interest {
    /// Selects the topics that `patterns` match, of all nodes except `own`.
    pub fn new(patterns: &[TopicPattern], own: &str) -> Self {
        Self { patterns: patterns.into(), own: Some(own.to_owned()) }
    }

    pub(crate) fn is_in(&self, topic: &Topic) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.matches(topic))
    }

    pub(crate) fn is_own(&self, node: &str) -> bool {
        self.own.as_deref() == Some(node)
    }

    /// Returns the nodes that can have a wanted topic, as parts of keys. No part includes another one.
    pub(crate) fn nodes(&self) -> Vec<OwnedKeyExpr> {
        let all = || OwnedKeyExpr::new("*").into_iter();
        if self.patterns.is_empty() {
            return all().collect();
        }
        let node = |pattern: &TopicPattern| {
            let first = pattern.as_str().split('/').next().unwrap_or_default();
            // A key has `*` for a whole part and `$*` for some of its characters.
            let key = if first.trim_matches('*').is_empty() {
                "*".to_owned()
            } else {
                first.replace('*', "$*")
            };
            OwnedKeyExpr::new(key).ok()
        };
        let found: Vec<OwnedKeyExpr> = self.patterns.iter().filter_map(node).collect();
        let mut nodes: Vec<OwnedKeyExpr> = Vec::new();
        for key in &found {
            if nodes.iter().any(|other| other.includes(key)) {
                continue;
            }
            nodes.retain(|other| !key.includes(other));
            nodes.push(key.clone());
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_can_have_a_wanted_topic_are_followed() {
        for (patterns, expected) in [
            (vec![], vec!["*"]),
            (vec!["n02/fs/**"], vec!["n02"]),
            (vec!["n*/fs/**"], vec!["n$*"]),
            (vec!["n02/fs/**", "n*/mem/*", "n03/load/*"], vec!["n$*"]),
            (vec!["n*1*/fs/*", "m/x"], vec!["n$*1$*", "m"]),
            (vec!["n01/a", "**/load_1m"], vec!["*"]),
            (vec!["*/mem/*", "n01/a"], vec!["*"]),
        ] {
            let parsed: Vec<_> =
                patterns.iter().map(|p| TopicPattern::new(p).expect("a pattern")).collect();
            let nodes = Interest::new(&parsed, "n01").nodes();
            let nodes: Vec<&str> = nodes.iter().map(|key| key.as_str()).collect();
            assert_eq!(nodes, expected, "{patterns:?}");
        }
    }
}
