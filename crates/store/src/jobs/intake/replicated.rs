//! The two ends of replication: an intake whose logs are followed, and one that keeps the records of another.

use std::path::PathBuf;

use skopos_model::job::JobId;

use super::core::Intake;
use crate::jobs::lts::Placed;
use crate::jobs::part::Mark;
use crate::log::Error;

/// The durable end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::jobs) struct LogEnd {
    pub(in crate::jobs) generation: u64,
    pub(in crate::jobs) path: PathBuf,
    pub(in crate::jobs) end: u64,
    /// True if the log is closed.
    pub(in crate::jobs) is_closed: bool,
}

/// A producer with a sequence that it has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::jobs) struct ProducerAt {
    pub(in crate::jobs) name: String,
    pub(in crate::jobs) epoch: i64,
    pub(in crate::jobs) sequence: i64,
}

impl Intake {
    /// Returns the first log from a generation on, as far as it is durable.
    pub(in crate::jobs) fn log_from(&self, generation: u64) -> Option<LogEnd> {
        let (generation, log) = self.logs.uses.range(generation..).next()?;
        let is_closed = *generation != self.generation;
        let end = if is_closed { log.bytes } else { self.synced };
        let (generation, path) = (*generation, self.logs.path(*generation));
        Some(LogEnd { generation, path, end, is_closed })
    }

    /// Returns the producers with the last sequence of which it, and all before it, are in sealed parts.
    pub(in crate::jobs) fn sealed_producers(&self) -> Vec<ProducerAt> {
        let known = self.producers.iter();
        let reached = known.map(|producer| ProducerAt {
            name: producer.name.clone(),
            epoch: producer.epoch,
            sequence: producer.sealed(),
        });
        reached.filter(|at| at.sequence > i64::MIN).collect()
    }

    /// Forgets the jobs that a catalogue is to be told about: a replica has none.
    pub(in crate::jobs) fn forget_news(&mut self) {
        self.news.clear();
    }

    /// Returns the durable bytes of the logs after a place.
    pub(in crate::jobs) fn durable_bytes_after(&self, generation: u64, at: u64) -> u64 {
        let logs = self.logs.uses.range(generation..).map(|(of, log)| {
            let end = if *of == self.generation { self.synced } else { log.bytes };
            if *of == generation { end.saturating_sub(at) } else { end }
        });
        logs.sum()
    }

    /// Returns true if a producer that was not known has sent records again that are sealed. The next list of segments tells
    /// that the replica has them.
    pub(in crate::jobs) fn has_resealed(&self) -> bool {
        self.has_resealed
    }

    /// Takes back what [`has_resealed`](Self::has_resealed) returns.
    pub(in crate::jobs) fn take_resealed(&mut self) {
        self.has_resealed = false;
    }

    /// Returns true if records are kept that parts have which were restored: they were not there when the logs were read. Then
    /// the intake must be [opened anew](Self::reopen).
    pub fn overlaps(&self, restored: &[Placed]) -> bool {
        restored.iter().any(|placed| {
            self.jobs.get(&placed.id).is_some_and(|job| job.next_part <= placed.part.number)
        })
    }

    /// Takes over what another intake of the same folder knows about the replica.
    pub(super) fn replicated_as(&mut self, known: &Self) {
        for producer in known.producers.iter() {
            self.producers.replicated(&producer.name, producer.epoch, producer.replica);
        }
    }

    /// Notes that the replica has records.
    pub(in crate::jobs) fn replicated(&mut self, producers: &[ProducerAt]) {
        for ProducerAt { name, epoch, sequence } in producers {
            self.producers.replicated(name, *epoch, *sequence);
        }
    }

    /// Notes that a part of another storage has the records of a job up to `marks`, with the parts before it. They are
    /// forgotten.
    ///
    /// # Errors
    /// A log cannot be removed; it is removed later.
    pub(in crate::jobs) fn covered(
        &mut self,
        id: &JobId,
        number: u32,
        marks: &[Mark],
    ) -> Result<(), Error> {
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        let before = job.firsts.clone();
        let producers = &self.producers;
        let name = |slot| producers.get(slot).map(|producer| producer.name.clone());
        for place in job.cover(number, marks, name) {
            self.logs.removed(place.generation);
            self.producers.removed(place.producer, place.length);
        }
        let after = job.firsts.clone();
        if job.places.is_empty() {
            self.jobs.remove(id);
        }
        self.producers.change_firsts(&before, &after);
        self.remove_sealed()
    }
}
