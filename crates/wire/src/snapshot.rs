//! Collects the parts of a snapshot.

use std::sync::Mutex;

use skopos_access::Action;
use skopos_model::unpoisoned;

use crate::arrived::Snapshot;
use crate::inbox::{Inbox, Message};
use crate::trust::{self, Desk, Exchange};

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
    pub(crate) desk: Desk,
    pub(crate) node: String,
    pub(crate) incarnation: i64,
    /// The nonce of the request.
    pub(crate) nonce: Vec<u8>,
    /// This follower's half of the exchange of keys, where messages are signed.
    pub(crate) exchange: Mutex<Option<Exchange>>,
    pub(crate) parts: Mutex<Vec<(PartNumber, Part)>>,
}

/// A part: its payload, and the publisher's half of the exchange of keys.
pub(crate) struct Part {
    payload: Vec<u8>,
    half: Vec<u8>,
}

impl SnapshotParts {
    /// Adds a part; ignores it if its key has no part number, or if the publisher did not make it.
    pub(crate) fn add(&self, part: trust::Message) {
        let Some(number) = PartNumber::parse(&part.key) else { return };
        let Ok(half) = self.desk.check(&self.nonce, &part, Action::Publish { node: &self.node })
        else {
            self.inbox.note_forged();
            return;
        };
        let mut parts = unpoisoned(self.parts.lock());
        parts.push((number, Part { payload: part.payload, half }));
        // It does not wait for others, who may claim to have parts, too.
        if let Some(whole) = assemble(&mut parts) {
            drop(parts);
            self.put(whole);
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

/// Takes the parts in their order if the snapshot is complete. An incomplete snapshot would remove the
/// vertices of its missing parts.
fn assemble<T>(parts: &mut Vec<(PartNumber, T)>) -> Option<Vec<T>> {
    let of = parts.first()?.0.of;
    if parts.len() < of {
        return None;
    }
    parts.sort_by_key(|(part, _)| *part);
    let is_next = |(at, (part, _)): (usize, &(PartNumber, T))| part.at == at && part.of == of;
    let is_complete = parts.len() == of && parts.iter().enumerate().all(is_next);
    is_complete.then(|| std::mem::take(parts).into_iter().map(|(_, part)| part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_snapshot_is_discarded() {
        let part = |key: &str| PartNumber::parse(key).map(|part| (part, key.as_bytes().to_vec()));
        let all = |keys: &[&str]| {
            let mut parts = keys.iter().filter_map(|key| part(key)).collect();
            assemble(&mut parts).map(|parts: Vec<Vec<u8>>| parts.concat())
        };
        assert_eq!(all(&["k/1of2", "k/0of2"]), Some(b"k/0of2k/1of2".to_vec()));
        for keys in [
            &["k/0of2"][..],
            &["k/1of2"],
            &["k/0of3", "k/2of3"],
            &["k/0of2", "k/0of2"],
            &["k/0of1", "k/0of2"],
            &["k/0"],
            &["k/1of1"],
            &["k/0of4096"],
            &[],
        ] {
            assert_eq!(all(keys), None, "{keys:?}");
        }
    }
}
