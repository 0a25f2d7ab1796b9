//! Topics by their plain names: `n01_mem_free_bytes` means `n01/mem/free_bytes`.
//!
//! Each statement can have hundreds of plain names, and none of them says where its node ends. So all topics are read once,
//! for all names that are looked up within a moment.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use skopos_model::{Topic, unpoisoned};

use crate::source::{Source, Wanted};
use crate::tables::times;

/// Time for which an index is valid, in durations of its making. It limits all look-ups together to a fifth of a core, and a
/// new topic has its plain name after a moment.
const VALID: u32 = 4;

/// Topics by plain name.
#[derive(Debug, Default)]
pub(crate) struct PlainNames(Mutex<Option<Index>>);

#[derive(Debug)]
struct Index {
    valid_until: Instant,
    hasher: RandomState,
    /// Topics by the hash of their plain names, sorted.
    topics: Vec<(u64, Topic)>,
}

impl PlainNames {
    /// Returns the only topic with this plain name: of those that are live, or of those on disk if none is.
    pub(crate) fn topic(&self, source: &dyn Source, name: &str) -> Option<Topic> {
        let mut index = unpoisoned(self.0.lock());
        let is_valid = index.as_ref().is_some_and(|index| Instant::now() < index.valid_until);
        if !is_valid {
            *index = Some(Index::read(source));
        }
        index.as_ref()?.topic(name)
    }
}

impl Index {
    fn read(source: &dyn Source) -> Self {
        let (begun, hasher) = (Instant::now(), RandomState::new());
        let entry = |topic: &Topic| (hash(&hasher, plain(topic)), topic.clone());
        let mut topics = Vec::new();
        source.topics(&Wanted::All, &mut |described| topics.push(entry(described.topic)));
        topics.sort_unstable();
        topics.dedup();
        let live = topics.len();
        if source.has_history() {
            // An error here is reported when samples are read.
            for part in source.history(&times(&[])).unwrap_or_default().parts {
                for stretch in part.stretches() {
                    let stored = entry(&stretch.series.topic);
                    let at = topics[..live].partition_point(|(hash, _)| *hash < stored.0);
                    // A live topic hides one on disk.
                    if topics[..live].get(at).is_none_or(|(hash, _)| *hash != stored.0) {
                        topics.push(stored);
                    }
                }
            }
            topics.sort_unstable();
            topics.dedup();
        }
        let valid_until = Instant::now() + (begun.elapsed() * VALID).min(Duration::from_secs(10));
        Self { valid_until, hasher, topics }
    }

    fn topic(&self, name: &str) -> Option<Topic> {
        let wanted = hash(&self.hasher, name.chars());
        let from = self.topics.partition_point(|(hash, _)| *hash < wanted);
        let equal = self.topics[from..].iter().take_while(|(hash, _)| *hash == wanted);
        let mut named = equal.map(|(_, topic)| topic).filter(|topic| plain(topic).eq(name.chars()));
        let (first, second) = (named.next(), named.next());
        first.filter(|_| second.is_none()).cloned()
    }
}

/// Returns the characters of a topic, with `_` for each that an unquoted name cannot have.
fn plain(topic: &Topic) -> impl Iterator<Item = char> {
    let is_plain = |c: &char| c.is_ascii_alphanumeric();
    topic.as_str().chars().map(move |c| if is_plain(&c) { c } else { '_' })
}

fn hash(hasher: &RandomState, name: impl Iterator<Item = char>) -> u64 {
    let mut hasher = hasher.build_hasher();
    name.for_each(|c| hasher.write_u32(u32::from(c)));
    hasher.finish()
}
