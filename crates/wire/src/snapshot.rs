//! Collects the parts of a snapshot.
//!
//! A publisher may be hostile. So a part is refused, and counted, if it is longer than a batch can be, if there is a part
//! of its number, if it says another number of parts than the first one, or if the snapshot is complete already: one
//! request makes a follower keep at most [`MAX_PARTS`] parts, and leads to at most one snapshot.

use std::collections::BTreeMap;
use std::sync::Mutex;

use skopos_access::Action;
use skopos_model::unpoisoned;
use zenoh::sample::Sample;

use crate::arrived::Snapshot;
use crate::batch::MAX_BATCH_BYTES;
use crate::inbox::{Inbox, Message};
use crate::trust::{self, Exchange, ProofRules};

/// The most parts of a snapshot. A mirror's limit of vertices, with long topics, fits twice.
const MAX_PARTS: usize = 1024;

/// The number of a part: the end of its key, `0of3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartNumber {
    at: usize,
    of: usize,
}

impl PartNumber {
    fn parse(key: &str) -> Option<Self> {
        let (at, of) = key.rsplit('/').next()?.split_once("of")?;
        let part = Self { at: at.parse().ok()?, of: of.parse().ok()? };
        (part.at < part.of && part.of <= MAX_PARTS).then_some(part)
    }
}

/// A request for a snapshot: collects the parts, and puts the snapshot into the inbox when it is complete.
pub(crate) struct SnapshotParts {
    pub(crate) inbox: Inbox,
    pub(crate) rules: ProofRules,
    pub(crate) node: String,
    pub(crate) incarnation: i64,
    /// The nonce of the request.
    pub(crate) nonce: Vec<u8>,
    /// This follower's half of the exchange of keys, where messages are signed.
    pub(crate) exchange: Mutex<Option<Exchange>>,
    pub(crate) parts: Mutex<Collected<Part>>,
}

/// A part: its payload, and the publisher's half of the exchange of keys.
pub(crate) struct Part {
    payload: Vec<u8>,
    half: Vec<u8>,
}

/// The parts of a snapshot until it is complete.
pub(crate) enum Collected<T> {
    /// These parts have arrived, by their numbers, of so many.
    Some { parts: BTreeMap<usize, T>, of: Option<usize> },
    /// All parts have arrived, and were taken.
    Whole,
}

impl<T> Default for Collected<T> {
    fn default() -> Self {
        Self::Some { parts: BTreeMap::new(), of: None }
    }
}

/// The effect of a part.
#[derive(Debug, PartialEq, Eq)]
enum Added<T> {
    /// The part is kept, and others are missing.
    Kept,
    /// The part was the last one: these are all parts, in their order.
    Whole(Vec<T>),
    /// The part contradicts others, or comes too late.
    Refused,
}

impl<T> Collected<T> {
    fn add(&mut self, number: PartNumber, part: T) -> Added<T> {
        let Self::Some { parts, of } = self else { return Added::Refused };
        if *of.get_or_insert(number.of) != number.of || parts.contains_key(&number.at) {
            return Added::Refused;
        }
        parts.insert(number.at, part);
        if parts.len() < number.of {
            return Added::Kept;
        }
        let whole = std::mem::take(parts).into_values().collect();
        *self = Self::Whole;
        Added::Whole(whole)
    }
}

impl SnapshotParts {
    /// Adds a part; counts it instead if it cannot be one of this snapshot, or if the publisher did not make it.
    pub(crate) fn add(&self, part: &Sample) {
        let number = PartNumber::parse(part.key_expr().as_str());
        let number = number.filter(|_| part.payload().len() <= MAX_BATCH_BYTES);
        let Some(number) = number else { return self.inbox.note_malformed() };
        let part = trust::Message::from(part);
        let Ok(half) = self.rules.check(&self.nonce, &part, Action::Publish { node: &self.node })
        else {
            self.inbox.note_forged();
            return;
        };
        // It does not wait for others, who may claim to have parts, too.
        let part = Part { payload: part.payload, half };
        let added = unpoisoned(self.parts.lock()).add(number, part);
        match added {
            Added::Kept => {}
            Added::Whole(whole) => self.put(whole),
            Added::Refused => self.inbox.note_malformed(),
        }
    }

    fn put(&self, mut parts: Vec<Part>) {
        let half = parts.first_mut().map(|part| std::mem::take(&mut part.half)).unwrap_or_default();
        let exchange = unpoisoned(self.exchange.lock()).take();
        let snapshot = Snapshot {
            node: self.node.clone(),
            incarnation: self.incarnation,
            parts: parts.into_iter().map(|part| part.payload).collect(),
            exchange: exchange.filter(|_| !half.is_empty()).map(|own| (own, half)),
        };
        // If the queue is full, the follower requests the snapshot again, as after a lost one.
        self.inbox.put(Message::Snapshot(snapshot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the whole snapshot, if one was ever complete, and the number of refused parts.
    fn collected(keys: &[&str]) -> (Option<String>, usize) {
        let (mut parts, mut whole, mut refused) = (Collected::default(), None, 0);
        for key in keys {
            let number = PartNumber::parse(key);
            match number.map_or(Added::Refused, |number| parts.add(number, (*key).to_owned())) {
                Added::Kept => {}
                Added::Whole(all) => {
                    assert!(whole.is_none(), "a second snapshot of one request");
                    whole = Some(all.concat());
                }
                Added::Refused => refused += 1,
            }
        }
        (whole, refused)
    }

    #[test]
    fn an_incomplete_snapshot_is_discarded() {
        assert_eq!(collected(&["k/1of2", "k/0of2"]), (Some("k/0of2k/1of2".to_owned()), 0));
        for (keys, refused) in [
            (&["k/0of2"][..], 0),
            (&["k/1of2"], 0),
            (&["k/0of3", "k/2of3"], 0),
            (&["k/0of2", "k/0of2"], 1),
            (&["k/0of2", "k/0of1"], 1),
            (&["k/0"], 1),
            (&["k/1of1"], 1),
            (&["k/0of4096"], 1),
            (&[], 0),
        ] {
            assert_eq!(collected(keys), (None, refused), "{keys:?}");
        }
    }

    #[test]
    fn a_publisher_that_repeats_parts_is_kept_once() {
        let mut parts = vec!["k/0of1024"; 3000];
        assert_eq!(collected(&parts), (None, 2999), "none of them grows the rest");
        let rest: Vec<String> = (1..1024).map(|at| format!("k/{at}of1024")).collect();
        parts.extend(rest.iter().map(String::as_str));
        let (whole, refused) = collected(&parts);
        assert_eq!((whole.is_some(), refused), (true, 2999), "a repeated part spoils nothing");
        assert_eq!(collected(&["k/0of1"; 100]), (Some("k/0of1".to_owned()), 99));
    }
}
