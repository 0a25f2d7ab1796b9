use std::collections::HashMap;

use skopos_model::TopicPattern;

/// Which insights wait for which topics.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Inputs that stand for one topic: most of them.
    exact: HashMap<Box<str>, Vec<Place>>,
    /// Inputs with wildcards, each of which has to be tried.
    wild: Vec<(TopicPattern, Place)>,
}

/// An insight's place in the table, and which of its inputs it is.
pub(super) type Place = (u32, u16);

impl Wanted {
    pub(super) fn add(&mut self, pattern: &TopicPattern, place: Place) {
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

    /// Who waits for `topic`.
    pub(super) fn by(&self, topic: &str) -> Vec<Place> {
        let exact = self.exact.get(topic).into_iter().flatten().copied();
        let wild = self.wild.iter().filter(|(pattern, _)| pattern.matches_str(topic));
        exact.chain(wild.map(|(_, place)| *place)).collect()
    }
}
