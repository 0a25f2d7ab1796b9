use std::collections::HashMap;

use skopos_model::TopicPattern;

/// An index from topics to the insight inputs that match them.
#[derive(Debug, Default)]
pub(super) struct InputIndex {
    /// Inputs that match exactly one topic: most of them.
    exact: HashMap<Box<str>, Vec<InputRef>>,
    /// Inputs with wildcards, each of which has to be tried.
    wild: Vec<(TopicPattern, InputRef)>,
}

/// The index of an insight in the table, and the place of one of its inputs.
pub(super) type InputRef = (u32, u16);

impl InputIndex {
    pub(super) fn add(&mut self, pattern: &TopicPattern, place: InputRef) {
        match pattern.as_topic() {
            Some(topic) => self.exact.entry(topic.as_str().into()).or_default().push(place),
            None => self.wild.push((pattern.clone(), place)),
        }
    }

    pub(super) fn remove<'a>(
        &mut self,
        insight: u32,
        patterns: impl Iterator<Item = &'a TopicPattern>,
    ) {
        self.wild.retain(|(_, (other, _))| *other != insight);
        for pattern in patterns {
            if let Some(places) = self.exact.get_mut(pattern.as_str()) {
                places.retain(|(other, _)| *other != insight);
                if places.is_empty() {
                    self.exact.remove(pattern.as_str());
                }
            }
        }
    }

    /// Returns the inputs that match `topic`.
    pub(super) fn matching(&self, topic: &str) -> Vec<InputRef> {
        let exact = self.exact.get(topic).into_iter().flatten().copied();
        let wild = self.wild.iter().filter(|(pattern, _)| pattern.matches_str(topic));
        exact.chain(wild.map(|(_, place)| *place)).collect()
    }
}
