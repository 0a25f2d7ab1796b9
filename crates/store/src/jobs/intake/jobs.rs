//! Jobs with records that are not sealed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};

use super::limits::IntakeLimits;
use super::producers::Slot;
use crate::jobs::entry::JobEntry;
use crate::jobs::part::{JobPart, Mark};
use crate::log::Error;

/// The sealed parts of a job, which the intake asks for when it first hears of the job.
pub trait SealedParts {
    /// Returns the number of the next part, the latest mark of each producer, and the entry of the sealed parts.
    ///
    /// # Errors
    /// A segment cannot be read. Without its marks, a record that it has would be stored twice.
    fn of_job(&self, id: &JobId) -> Result<(u32, Vec<Mark>, JobEntry), Error>;
}

/// Time after which the catalogue is told about a running job of which nothing but its measurements is new: their number
/// is not worth a transaction each time.
const NEWS_EVERY: Duration = Duration::from_secs(30);

/// The effect of a record on its job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    /// True if the job had no unsealed record of this epoch of the producer.
    pub(super) is_first: bool,
    /// True if the catalogue is to be told, and was not to be told before.
    pub(super) is_news: bool,
}

/// The place of a record that is not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) generation: u64,
    pub(super) at: u64,
    pub(super) length: u32,
    pub(super) producer: Slot,
    pub(super) epoch: i64,
    pub(super) sequence: i64,
}

/// A job with records that are not sealed.
#[derive(Debug)]
pub struct OpenJob {
    /// The entry of all records, sealed or not.
    pub(super) entry: JobEntry,
    /// The entry of the sealed records.
    pub(super) sealed: JobEntry,
    /// Number of the next part.
    pub(super) next_part: u32,
    /// Latest mark of each producer in the sealed parts.
    pub(super) marks: BTreeMap<String, (i64, i64)>,
    /// The unsealed records, in their order.
    pub(super) places: Vec<Place>,
    /// Bytes of these.
    pub(super) bytes: u64,
    /// Times of arrival of the first and of the last of these.
    pub(super) arrived: Option<(Timestamp, Timestamp)>,
    /// True while a part of it is being sealed.
    pub(super) is_sealing: bool,
    /// First unsealed sequence of each producer and epoch.
    pub(super) firsts: BTreeMap<(Slot, i64), i64>,
    /// True if the job waits for the catalogue to be told about it.
    pub(super) has_news: bool,
    /// Time at which the catalogue was told.
    pub(super) told: Option<Timestamp>,
}

impl OpenJob {
    pub(super) fn new(next_part: u32, marks: Vec<Mark>, sealed: JobEntry) -> Self {
        let mut latest: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for Mark { producer, epoch, sequence } in marks {
            let known = latest.entry(producer).or_insert((epoch, sequence));
            *known = (*known).max((epoch, sequence));
        }
        Self {
            entry: sealed.clone(),
            sealed,
            next_part,
            marks: latest,
            places: Vec::new(),
            bytes: 0,
            arrived: None,
            is_sealing: false,
            firsts: BTreeMap::new(),
            has_news: false,
            told: None,
        }
    }

    /// Returns the entry of all records.
    pub fn entry(&self) -> &JobEntry {
        &self.entry
    }

    /// Returns the number of records that are not sealed.
    pub fn unsealed(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of the next part.
    pub fn next_part(&self) -> u32 {
        self.next_part
    }

    /// Returns true if a sealed part has this record.
    pub(super) fn has_sealed(&self, producer: &str, epoch: i64, sequence: i64) -> bool {
        self.marks.get(producer).is_some_and(|mark| (epoch, sequence) <= *mark)
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: &JobRecord<'_>, place: Place, now: Timestamp) -> Added {
        self.entry.add(record);
        self.bytes += u64::from(place.length);
        self.places.push(place);
        let first = self.arrived.map_or(now, |(first, _)| first);
        self.arrived = Some((first, now));
        let is_first = match self.firsts.entry((place.producer, place.epoch)) {
            Entry::Vacant(vacant) => {
                vacant.insert(place.sequence);
                true
            }
            Entry::Occupied(_) => false,
        };
        let is_old = self.told.is_none_or(|told| now.since(told) >= NEWS_EVERY || now < told);
        let is_news = !self.has_news && (record.kind != Kind::Sample || is_old);
        self.has_news |= is_news;
        Added { is_first, is_news }
    }

    /// Returns true if a part is to be sealed.
    pub(super) fn is_due(&self, limits: &IntakeLimits, is_full: bool, now: Timestamp) -> bool {
        let Some((first, last)) = self.arrived.filter(|_| !self.is_sealing) else { return false };
        let is_settled = self.entry.end.is_some() && now.since(last) >= limits.settle;
        // The clock may have stepped back.
        let is_old = now.since(first) >= limits.seal_every || now < first;
        is_full
            || is_settled
            || is_old
            || self.places.len() >= limits.max_job_records / 2
            || self.bytes >= limits.max_job_bytes / 2
    }

    /// Returns true if the job takes no record until a part is sealed.
    pub(super) fn is_full(&self, limits: &IntakeLimits) -> bool {
        self.places.len() >= limits.max_job_records || self.bytes >= limits.max_job_bytes
    }

    /// Notes that sealed parts of another storage have the records up to `marks`, and returns the places of these. `names` are
    /// those of the producers. The entry keeps them: only the storage that seals parts needs one of the others.
    pub(super) fn cover(
        &mut self,
        number: u32,
        marks: &[Mark],
        name: impl Fn(Slot) -> Option<String>,
    ) -> Vec<Place> {
        for mark in marks {
            let known = self.marks.entry(mark.producer.clone()).or_insert((i64::MIN, i64::MIN));
            *known = (*known).max((mark.epoch, mark.sequence));
        }
        self.next_part = self.next_part.max(number.saturating_add(1));
        let mut names: BTreeMap<Slot, Option<String>> = BTreeMap::new();
        let (mut covered, mut rest) = (Vec::new(), Vec::new());
        for place in std::mem::take(&mut self.places) {
            let name = names.entry(place.producer).or_insert_with(|| name(place.producer));
            let is_covered =
                name.as_ref().is_some_and(|it| self.has_sealed(it, place.epoch, place.sequence));
            if is_covered { covered.push(place) } else { rest.push(place) }
        }
        self.places = rest;
        self.firsts.clear();
        for place in &self.places {
            self.firsts.entry((place.producer, place.epoch)).or_insert(place.sequence);
        }
        self.bytes = self.places.iter().map(|place| u64::from(place.length)).sum();
        covered
    }

    /// Notes that the first unsealed records are in `part`, and returns their places. `rest` are the others.
    pub(super) fn seal(
        &mut self,
        part: &JobPart,
        sealed: JobEntry,
        rest: &[JobRecord<'_>],
    ) -> Vec<Place> {
        let places: Vec<Place> = self.places.drain(..part.records.len()).collect();
        for mark in &part.marks {
            let known = self.marks.entry(mark.producer.clone()).or_insert((i64::MIN, i64::MIN));
            *known = (*known).max((mark.epoch, mark.sequence));
        }
        self.next_part = part.number + 1;
        self.firsts.clear();
        for place in &self.places {
            self.firsts.entry((place.producer, place.epoch)).or_insert(place.sequence);
        }
        self.bytes = self.places.iter().map(|place| u64::from(place.length)).sum();
        self.arrived =
            self.arrived.filter(|_| !self.places.is_empty()).map(|(_, last)| (last, last));
        self.is_sealing = false;
        self.entry = sealed.clone();
        rest.iter().for_each(|record| self.entry.add(record));
        self.sealed = sealed;
        places
    }
}
