//! Collects the parts of a snapshot.

use std::sync::Mutex;

use skopos_model::unpoisoned;

use crate::inbox::{Inbox, Message};

/// The most parts of a snapshot. A mirror's limit of vertices, with long topics, fits twice.
const MAX_PARTS: usize = 1024;

/// The number of a part: the end of its key, `0of3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PartNumber {
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

/// Collects the parts of one snapshot, and puts it into the inbox when it is dropped.
pub(crate) struct SnapshotParts {
    inbox: Inbox,
    node: String,
    incarnation: i64,
    parts: Mutex<Vec<(PartNumber, Vec<u8>)>>,
}

impl SnapshotParts {
    pub(crate) fn new(inbox: Inbox, node: String, incarnation: i64) -> Self {
        Self { inbox, node, incarnation, parts: Mutex::default() }
    }

    /// Adds a part; ignores it if its key has no part number.
    pub(crate) fn add(&self, key: &str, bytes: Vec<u8>) {
        let part = PartNumber::parse(key).map(|number| (number, bytes));
        unpoisoned(self.parts.lock()).extend(part);
    }
}

impl Drop for SnapshotParts {
    fn drop(&mut self) {
        let parts = std::mem::take(&mut *unpoisoned(self.parts.lock()));
        let Some(parts) = assemble(parts) else { return };
        let (node, incarnation) = (std::mem::take(&mut self.node), self.incarnation);
        // If the queue is full, the follower requests the snapshot again, as after a lost one.
        self.inbox.put(Message::Snapshot { node, incarnation, parts });
    }
}

/// Returns the parts in their order if the snapshot is complete. An incomplete snapshot would remove the
/// vertices of its missing parts.
fn assemble(mut parts: Vec<(PartNumber, Vec<u8>)>) -> Option<Vec<Vec<u8>>> {
    parts.sort_by_key(|(part, _)| *part);
    let of = parts.first()?.0.of;
    let is_next = |(at, (part, _)): (usize, &(PartNumber, _))| part.at == at && part.of == of;
    let is_complete = parts.len() == of && parts.iter().enumerate().all(is_next);
    is_complete.then(|| parts.into_iter().map(|(_, bytes)| bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_snapshot_is_discarded() {
        let part = |key: &str| PartNumber::parse(key).map(|part| (part, key.as_bytes().to_vec()));
        let all = |keys: &[&str]| {
            let parts = keys.iter().filter_map(|key| part(key)).collect();
            assemble(parts).map(|parts| parts.concat())
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
