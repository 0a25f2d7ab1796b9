//! What a follower is after, and who hears at once what becomes of it.

use std::sync::Arc;

use skopos_model::{Sample, Timestamp, Topic, TopicPattern};
use zenoh::key_expr::OwnedKeyExpr;

use crate::{Description, State};

/// Hears what becomes of the nodes that are followed, on the thread that takes it in: it should not wait
/// for anything. `()` hears nothing.
pub trait Watcher: Send {
    /// Something became of a node: it came or went, told something or lost something.
    fn heard(&mut self, node: &str, state: &State);
    /// A vertex came.
    fn came(&mut self, description: &Description);
    /// It told a sample, later than the one before.
    fn told(&mut self, topic: &Topic, sample: &Sample);
    /// Its source was looked at, and nothing was new.
    fn checked(&mut self, topic: &Topic, at: Timestamp);
    /// It went.
    fn went(&mut self, topic: &Topic);
}

impl Watcher for () {
    fn heard(&mut self, _: &str, _: &State) {}
    fn came(&mut self, _: &Description) {}
    fn told(&mut self, _: &Topic, _: &Sample) {}
    fn checked(&mut self, _: &Topic, _: Timestamp) {}
    fn went(&mut self, _: &Topic) {}
}

/// Which nodes and topics a follower is after.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    /// Topics that one of these matches; all, if there is none.
    patterns: Arc<[TopicPattern]>,
    /// A node that is not followed: the one that this is.
    own: Option<String>,
}

impl Interest {
    /// What these patterns match of all nodes but `own`.
    pub fn new(patterns: &[TopicPattern], own: &str) -> Self {
        Self { patterns: patterns.into(), own: Some(own.to_owned()) }
    }

    pub(crate) fn is_in(&self, topic: &Topic) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.matches(topic))
    }

    pub(crate) fn is_own(&self, node: &str) -> bool {
        self.own.as_deref() == Some(node)
    }

    /// Nodes of which anything can match, as parts of keys; none is within another.
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
    fn only_nodes_of_which_something_can_match_are_followed() {
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
