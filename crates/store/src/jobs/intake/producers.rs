//! Producers, their epochs and sequences.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use skopos_model::{ByteReader, Timestamp, unpoisoned};

use super::account::Accounts;

/// The progress of a producer, which is read without the intake: it is never locked for longer than a copy takes.
#[derive(Debug)]
pub struct Progress(Mutex<Reached>);

/// The last sequences of an epoch that have reached each level, with all before them; `i64::MIN` if none has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The epoch.
    pub epoch: i64,
    /// The last one on the disk.
    pub durable: i64,
    /// The last one in sealed parts.
    pub sealed: i64,
    /// The last one that the replica has on its disk.
    pub replica: i64,
}

impl Progress {
    /// Returns the progress as it is now.
    pub fn get(&self) -> Reached {
        *unpoisoned(self.0.lock())
    }
}

/// A producer of an epoch.
#[derive(Debug)]
pub(super) struct Producer {
    pub(super) name: String,
    pub(super) epoch: i64,
    /// Sequence of its last accepted record; before the first one, the sequence at which its log began.
    pub(super) last: i64,
    /// Sequence of its last record that the disk has.
    pub(super) durable: i64,
    /// Sequence of its last record that the replica has.
    pub(super) replica: i64,
    /// Its index in the current log, once that has a record of it.
    pub(super) index: Option<u32>,
    /// Time of its last record.
    pub(super) seen: Timestamp,
    /// The first unsealed record of each open job, as epoch and sequence.
    pub(super) unsealed: BTreeSet<(i64, i64)>,
    pub(super) progress: Arc<Progress>,
}

impl Producer {
    /// Returns the last sequence of which it, and all before it, are in sealed parts.
    pub(super) fn sealed(&self) -> i64 {
        let first = self.unsealed.range((self.epoch, i64::MIN)..).next();
        first.map_or(self.durable, |(_, first)| self.durable.min(first.saturating_sub(1)))
    }

    /// Tells those who acknowledge.
    fn tell(&self) {
        let (epoch, durable, sealed) = (self.epoch, self.durable, self.sealed());
        let replica = self.replica;
        *unpoisoned(self.progress.0.lock()) = Reached { epoch, durable, sealed, replica };
    }
}

/// The place of a producer. It is the same as long as the producer is known.
pub(super) type Slot = u32;

/// All known producers.
#[derive(Debug, Default)]
pub(super) struct Producers {
    slots: Vec<Option<Producer>>,
    free: Vec<Slot>,
    by_name: HashMap<String, Slot>,
    /// Producers with records since the last commit.
    touched: Vec<Slot>,
    accounts: Accounts,
}

impl Producers {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn find(&self, name: &str) -> Option<Slot> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Producer> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Producer> {
        self.slots.get_mut(slot as usize).and_then(Option::as_mut)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Producer> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Producer> {
        self.slots.iter_mut().flatten()
    }

    /// Adds a producer whose records up to `last` are known.
    pub(super) fn add(&mut self, name: &str, epoch: i64, last: i64, now: Timestamp) -> Slot {
        let durable = last;
        let (index, name) = (None, name.to_owned());
        let none = i64::MIN;
        let reached = Reached { epoch, durable: none, sealed: none, replica: none };
        let producer = Producer {
            name: name.clone(),
            epoch,
            last,
            durable,
            replica: none,
            index,
            seen: now,
            unsealed: BTreeSet::new(),
            progress: Arc::new(Progress(Mutex::new(reached))),
        };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as Slot
            }
        };
        self.slots[slot as usize] = Some(producer);
        self.by_name.insert(name, slot);
        slot
    }

    /// Begins a new epoch of a producer.
    pub(super) fn begin_epoch(&mut self, slot: Slot, epoch: i64) {
        if let Some(producer) = self.get_mut(slot) {
            let before = i64::MIN;
            (producer.epoch, producer.index) = (epoch, None);
            (producer.last, producer.durable, producer.replica) = (before, before, before);
        }
    }

    /// Returns the room that each account holds.
    pub(super) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Notes that a producer has a record of a length.
    pub(super) fn added(&mut self, slot: Slot, bytes: u32) {
        if let Some(Some(producer)) = self.slots.get(slot as usize) {
            self.accounts.add_bytes(&producer.name, bytes);
        }
    }

    /// Notes that a record of a producer is sealed.
    pub(super) fn removed(&mut self, slot: Slot, bytes: u32) {
        if let Some(Some(producer)) = self.slots.get(slot as usize) {
            self.accounts.remove_bytes(&producer.name, bytes);
        }
    }

    /// Notes the first unsealed record of a job.
    pub(super) fn add_first(&mut self, slot: Slot, first: (i64, i64)) {
        if let Some(Some(producer)) = self.slots.get_mut(slot as usize)
            && producer.unsealed.insert(first)
        {
            self.accounts.add_job(&producer.name, producer.unsealed.len() == 1);
        }
    }

    fn remove_first(&mut self, slot: Slot, first: (i64, i64)) {
        if let Some(Some(producer)) = self.slots.get_mut(slot as usize)
            && producer.unsealed.remove(&first)
        {
            self.accounts.remove_job(&producer.name, producer.unsealed.is_empty());
        }
    }

    /// Notes that a producer has a record which no commit has written yet.
    pub(super) fn touch(&mut self, slot: Slot) {
        if self.touched.last() != Some(&slot) {
            self.touched.push(slot);
        }
    }

    /// Notes that the disk has all records.
    pub(super) fn committed(&mut self) {
        for slot in self.touched.drain(..) {
            if let Some(Some(producer)) = self.slots.get_mut(slot as usize) {
                producer.durable = producer.last;
                producer.tell();
            }
        }
    }

    /// Notes that the disk has all records of all producers: their logs were read.
    pub(super) fn all_durable(&mut self) {
        for producer in self.iter_mut() {
            producer.durable = producer.last;
            producer.tell();
        }
    }

    /// Notes that the replica has the records of a producer's epoch up to a sequence.
    pub(super) fn replicated(&mut self, name: &str, epoch: i64, sequence: i64) {
        let slot = self.find(name);
        if let Some(producer) = slot.and_then(|slot| self.get_mut(slot))
            && producer.epoch == epoch
            && producer.replica < sequence
        {
            producer.replica = sequence;
            producer.tell();
        }
    }

    /// Notes the first unsealed records of a job, by producer and epoch.
    pub(super) fn add_firsts(&mut self, firsts: &BTreeMap<(Slot, i64), i64>) {
        for ((slot, epoch), sequence) in firsts {
            self.add_first(*slot, (*epoch, *sequence));
        }
    }

    /// Notes that a part of a job is sealed: its first unsealed records before that, and after it.
    pub(super) fn change_firsts(
        &mut self,
        before: &BTreeMap<(Slot, i64), i64>,
        after: &BTreeMap<(Slot, i64), i64>,
    ) {
        for ((slot, epoch), sequence) in before {
            self.remove_first(*slot, (*epoch, *sequence));
        }
        self.add_firsts(after);
        for (slot, _) in before.keys() {
            if let Some(producer) = self.get(*slot) {
                producer.tell();
            }
        }
    }

    /// Forgets the producers without unsealed records for which `is_gone` holds.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&Producer) -> bool) {
        let is_gone = |producer: &Producer| producer.unsealed.is_empty() && is_gone(producer);
        for (slot, place) in (0..).zip(&mut self.slots) {
            if place.as_ref().is_some_and(is_gone)
                && let Some(producer) = place.take()
            {
                self.by_name.remove(&producer.name);
                self.free.push(slot);
            }
        }
    }
}

/// Returns the description of a producer in a log.
pub(super) fn description(name: &str, last: i64) -> Vec<u8> {
    [&last.to_le_bytes()[..], name.as_bytes()].concat()
}

/// Reads a description: the sequence at which the log begins, and the name.
pub(in crate::jobs) fn described(description: &[u8]) -> Option<(i64, &str)> {
    let mut reader = ByteReader::new(description);
    let last = reader.i64()?;
    Some((last, reader.text(reader.remaining())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_epochs_begin_anew() {
        let mut producers = Producers::default();
        let now = Timestamp::from_nanos(0);
        let (a, b) = (producers.add("a", 1, 7, now), producers.add("b", 1, 8, now));
        assert_eq!((producers.find("a"), producers.len()), (Some(a), 2));
        producers.forget(|producer| producer.name == "a");
        assert_eq!((producers.find("a"), producers.add("c", 1, 0, now)), (None, a));
        producers.begin_epoch(b, 2);
        let b = producers.get(b).expect("known");
        assert_eq!((b.epoch, b.last, b.durable), (2, i64::MIN, i64::MIN));
        assert_eq!(described(&description("é", -2)), Some((-2, "é")));
        assert_eq!(described(&[0; 7]), None);
    }
}
