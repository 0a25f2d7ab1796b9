//! Reads the logs that an earlier process left.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord};

use super::jobs::{OpenJob, Place, SealedParts};
use super::limits::CAPACITY;
use super::logs::{LogUse, Logs, generation_of};
use super::producers::{Producers, Slot, described};
use crate::log::{
    Damage, Disk, Error, LogWriter, NotALog, Record, Scanned, io_at, quarantine, scan,
};

/// The content of the logs of a folder.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) logs: Logs,
    pub(super) producers: Producers,
    pub(super) jobs: BTreeMap<JobId, OpenJob>,
    /// The newest log, if it can be continued, with its generation.
    pub(super) newest: Option<(u64, LogWriter)>,
    /// The last generation of which there is or was a file; zero before the first.
    pub(super) last: u64,
    /// Length of the torn tail that was cut off.
    pub(super) torn_bytes: u64,
    pub(super) damaged: Vec<Damage>,
    /// The first failure to read the sealed parts of a job.
    failure: Option<Error>,
}

/// Reads all logs of a folder.
pub(super) fn recover(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    sealed: &dyn SealedParts,
    now: Timestamp,
) -> Result<Recovered, Error> {
    let mut generations = Vec::new();
    for file in disk.list(folder).map_err(io_at(folder, "the folder cannot be listed"))? {
        if let Some(generation) = generation_of(&file.name) {
            generations.push(generation);
        } else if file.name.ends_with(".tmp") {
            let path = folder.join(&file.name);
            disk.remove(&path).map_err(io_at(&path, "it cannot be removed"))?;
        }
    }
    generations.sort_unstable();
    remove_unused(disk, folder, &mut generations)?;
    let aside = folder.join(crate::log::FOLDER);
    let aside = disk.list(&aside).map_err(io_at(&aside, "the folder cannot be listed"))?;
    let of_aside = aside.iter().filter_map(|file| generation_of(&file.name));
    let last = generations.iter().copied().chain(of_aside).max().unwrap_or(0);
    let mut recovered = Recovered {
        logs: Logs::new(disk.clone(), folder),
        producers: Producers::default(),
        jobs: BTreeMap::new(),
        newest: None,
        last,
        torn_bytes: 0,
        damaged: Vec::new(),
        failure: None,
    };
    for generation in &generations {
        recovered.read(disk, (*generation, folder), sealed, now)?;
    }
    match recovered.failure.take() {
        Some(e) => Err(e),
        None => Ok(recovered),
    }
}

/// Removes the newest logs without a whole frame: those that a process began and could not go on with. The log before
/// them is the one whose last frame may not have been synced.
fn remove_unused(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    generations: &mut Vec<u64>,
) -> Result<(), Error> {
    while let [.., _, newest] = generations[..] {
        let path = folder.join(super::logs::log_name(newest));
        let bytes = disk.read(&path).map_err(io_at(&path, "it cannot be read"))?;
        let scanned = scan(&bytes, newest, &mut |_| {});
        if !scanned.is_ok_and(|scanned| scanned.is_empty()) {
            break;
        }
        disk.remove(&path).map_err(io_at(&path, "it cannot be removed"))?;
        generations.pop();
    }
    Ok(())
}

impl Recovered {
    fn read(
        &mut self,
        disk: &Arc<dyn Disk>,
        (generation, folder): (u64, &Path),
        sealed: &dyn SealedParts,
        now: Timestamp,
    ) -> Result<(), Error> {
        let path = self.logs.path(generation);
        let name = super::logs::log_name(generation);
        let bytes = disk.read(&path).map_err(io_at(&path, "it cannot be read"))?;
        self.logs
            .uses
            .insert(generation, LogUse { bytes: bytes.len() as u64, ..LogUse::default() });
        let mut indices = Indices::default();
        let scanned = scan(&bytes, generation, &mut |record| {
            let place = |content: &[u8]| content.as_ptr() as usize - bytes.as_ptr() as usize;
            match record {
                Record::Producer { index, epoch, description } => {
                    indices.describe(index, self.describe(epoch, description, now), epoch);
                }
                Record::Entry { index, sequence, content } => {
                    let Some((slot, epoch)) = indices.get(index) else { return };
                    let place = Place {
                        generation,
                        at: place(content) as u64,
                        length: content.len() as u32,
                        producer: slot,
                        epoch,
                        sequence,
                    };
                    self.entry(place, content, sealed, now);
                }
            }
        });
        let scanned = match scanned {
            Ok(scanned) => scanned,
            Err(NotALog::Newer(layout)) => return Err(Error::newer(&path, layout)),
            Err(NotALog::Damaged) => {
                quarantine(&**disk, folder, &name)?;
                self.logs.uses.remove(&generation);
                let why = "it does not begin as a log does".to_owned();
                self.damaged.push(Damage { file: name, why });
                return Ok(());
            }
        };
        self.end(disk, generation, &scanned, indices)
    }

    /// Continues the log if it is the newest one and whole.
    fn end(
        &mut self,
        disk: &Arc<dyn Disk>,
        generation: u64,
        scanned: &Scanned,
        indices: Indices,
    ) -> Result<(), Error> {
        let losses = scanned.losses;
        let is_newest = generation == self.last;
        let is_torn = losses.tail > 0 && !is_newest;
        if losses.frames > 0 || losses.orphans > 0 || is_torn {
            let why = format!(
                "{} frames, {} entries and {} bytes at its end cannot be read",
                losses.frames, losses.orphans, losses.tail
            );
            let file = super::logs::log_name(generation);
            self.damaged.push(Damage { file, why });
            if let Some(log) = self.logs.uses.get_mut(&generation) {
                log.is_damaged = true;
            }
        } else if is_newest {
            self.torn_bytes = losses.tail;
            let (path, count) = (self.logs.path(generation), indices.0.len() as u32);
            let log =
                LogWriter::resume(disk.clone(), path, generation, (scanned, count), CAPACITY)?;
            for (index, known) in (0..).zip(&indices.0) {
                if let Some((slot, epoch)) = known
                    && let Some(producer) = self.producers.get_mut(*slot)
                    && producer.epoch == *epoch
                {
                    producer.index = Some(index);
                }
            }
            self.newest = Some((generation, log));
        }
        Ok(())
    }

    fn describe(&mut self, epoch: i64, description: &[u8], now: Timestamp) -> Option<Slot> {
        let (last, name) = described(description)?;
        let Some(slot) = self.producers.find(name) else {
            return Some(self.producers.add(name, epoch, last, now));
        };
        let known = self.producers.get(slot).map_or(epoch, |producer| producer.epoch);
        if epoch > known {
            self.producers.begin_epoch(slot, epoch);
        }
        if epoch >= known
            && let Some(producer) = self.producers.get_mut(slot)
        {
            producer.last = producer.last.max(last);
        }
        Some(slot)
    }

    fn entry(&mut self, place: Place, content: &[u8], sealed: &dyn SealedParts, now: Timestamp) {
        let Some(producer) = self.producers.get_mut(place.producer) else { return };
        // Another process may have written the record to two logs.
        let number = (place.epoch, place.sequence);
        if number <= (producer.epoch, producer.last) {
            return;
        }
        (producer.epoch, producer.last) = number;
        let Some(record) = JobRecord::read(content) else { return };
        let Ok(id) = record.id() else { return };
        let job = match self.jobs.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => match sealed.of_job(place.key()) {
                Ok((next_part, marks, entry)) => {
                    place.insert(OpenJob::new(next_part, marks, entry))
                }
                Err(e) => {
                    self.failure = self.failure.take().or(Some(e));
                    return;
                }
            },
        };
        if !job.has_sealed(&producer.name, place.epoch, place.sequence) {
            self.producers.added(place.producer, place.length);
            job.add(&record, place, now);
            self.logs.added(place.generation);
        }
    }
}

/// The producers of a log, with their epochs, by index.
#[derive(Debug, Default)]
struct Indices(Vec<Option<(Slot, i64)>>);

impl Indices {
    fn describe(&mut self, index: u32, slot: Option<Slot>, epoch: i64) {
        // The log core has checked the index.
        let at = index as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        self.0[at] = slot.map(|slot| (slot, epoch));
    }

    fn get(&self, index: u32) -> Option<(Slot, i64)> {
        self.0.get(index as usize).copied().flatten()
    }
}
