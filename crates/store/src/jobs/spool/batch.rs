//! A batch of records, as a producer sends and spools it, and its file.
//!
//! # Layout
//! A file is a log of the log core, of generation 0, with one frame and one producer, whose description is its name. An
//! entry has the binary form of a record.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use skopos_model::job::{JobLoss, JobRecord, Kind, MAX_DOCUMENT_BYTES};

use crate::jobs::part::StoredRecord;
use crate::log::{Capacity, Disk, Error, Level, LogWriter, NotALog, Record, scan};

/// The room of a frame: a batch has at most [`MAX_BATCH_BYTES`], and a record more may exceed it.
const CAPACITY: Capacity = Capacity::new(MAX_BATCH_BYTES, MAX_DOCUMENT_BYTES + 1024);

/// The most bytes of a batch: the longest document, and as much again for records beside it. A reader has all of a batch in
/// memory.
pub const MAX_BATCH_BYTES: usize = 2 * MAX_DOCUMENT_BYTES;

/// The generation of all files.
const GENERATION: u64 = 0;

/// Records of one epoch of a producer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpooledBatch {
    /// The name of the producer.
    pub producer: String,
    /// The run of the producer.
    pub epoch: i64,
    /// The records with their sequences, which ascend.
    pub records: Vec<(i64, StoredRecord)>,
}

/// The kinds of records that a full spool drops at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Droppable {
    /// Measurements, which are dropped first.
    Samples,
    /// Reports, spans and lists of files, which are dropped when no measurement is left.
    Documents,
}

impl Droppable {
    pub(super) const ALL: [Self; 2] = [Self::Samples, Self::Documents];

    pub(super) fn has(self, kind: Kind) -> bool {
        match self {
            Self::Samples => kind == Kind::Sample,
            Self::Documents => matches!(kind, Kind::Report | Kind::Spans | Kind::Files),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Samples => "measurements",
            Self::Documents => "reports, spans and lists of files",
        }
    }
}

/// The dropped records of a job.
#[derive(Default)]
struct Dropped {
    count: u64,
    /// Place of the last one.
    last: usize,
    times: Option<(f64, f64)>,
}

impl SpooledBatch {
    /// Returns the bytes of its file, nearly.
    pub(super) fn bytes(&self) -> u64 {
        // The head of an entry has 17 bytes, those of the file, of a frame and of the producer 60.
        let records = self.records.iter().map(|(_, record)| record.as_bytes().len() as u64 + 17);
        60 + self.producer.len() as u64 + records.sum::<u64>()
    }

    /// Returns the first kinds that could be dropped from it.
    pub(super) fn droppable(&self) -> Option<Droppable> {
        Droppable::ALL.into_iter().find(|kinds| self.has(*kinds))
    }

    /// Returns true if it has records of these kinds.
    pub(super) fn has(&self, kinds: Droppable) -> bool {
        self.records.iter().filter_map(|(_, record)| record.get()).any(|r| kinds.has(r.kind))
    }

    /// Drops all records of these kinds. Each job gets a loss, which has the sequence of the last of its dropped records:
    /// if a hub has those records already, it has this sequence, and does not count them as lost. Returns the batch and
    /// the number of dropped records.
    pub(super) fn without(&self, kinds: Droppable, why: &str) -> (Self, u64) {
        let mut dropped: BTreeMap<(String, u32), Dropped> = BTreeMap::new();
        for (at, (_, record)) in self.records.iter().enumerate() {
            let Some(record) = record.get().filter(|record| kinds.has(record.kind)) else {
                continue;
            };
            let of_job = dropped.entry((record.job.to_owned(), record.generation)).or_default();
            let seconds = record.time.as_nanos() as f64 / 1e9;
            of_job.count += 1;
            of_job.last = at;
            of_job.times = Some(
                of_job
                    .times
                    .map_or((seconds, seconds), |(from, to)| (from.min(seconds), to.max(seconds))),
            );
        }
        let mut records = Vec::new();
        for (at, (sequence, stored)) in self.records.iter().enumerate() {
            let Some(record) = stored.get() else { continue };
            if !kinds.has(record.kind) {
                records.push((*sequence, stored.clone()));
                continue;
            }
            let of_job = dropped.get(&(record.job.to_owned(), record.generation));
            let Some(of_job) = of_job.filter(|dropped| dropped.last == at) else { continue };
            let loss = JobLoss {
                why: format!("{why}: {} were dropped", kinds.name()),
                records: of_job.count,
                from_seconds: of_job.times.map(|(from, _)| from),
                to_seconds: of_job.times.map(|(_, to)| to),
            };
            let content = serde_json::to_vec(&loss).unwrap_or_default();
            let loss = JobRecord { kind: Kind::Loss, node: "", content: &content, ..record };
            records.push((*sequence, StoredRecord::of(&loss)));
        }
        let count = dropped.values().map(|of_job| of_job.count).sum();
        (Self { producer: self.producer.clone(), epoch: self.epoch, records }, count)
    }

    /// Writes a file, which must not exist, and syncs it.
    pub(super) fn write(&self, disk: Arc<dyn Disk>, path: &Path) -> Result<(), Error> {
        let long = || Error::refused(path, &format!("a batch has at most {MAX_BATCH_BYTES} bytes"));
        let mut log = LogWriter::create(disk.clone(), path.to_owned(), GENERATION, CAPACITY)?;
        let mut written = || {
            let index = log.describe(self.epoch, self.producer.as_bytes()).ok_or_else(long)?;
            for (sequence, record) in &self.records {
                log.append(index, *sequence, record.as_bytes()).ok_or_else(long)?;
            }
            log.commit(Level::Disk)
        };
        let result = written();
        if result.is_err() {
            // On a full disk it would take the room of others.
            let _ = disk.remove(path);
        }
        result
    }

    /// Reads the bytes of a file.
    pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let damaged = |why: &str| Error::damaged(path, &why);
        let (mut batch, mut producers, mut is_sound) = (Self::default(), 0, true);
        let scanned = scan(bytes, GENERATION, &mut |record| match record {
            Record::Producer { epoch, description, .. } => {
                let name = std::str::from_utf8(description);
                is_sound &= name.is_ok();
                producers += 1;
                (batch.producer, batch.epoch) = (name.unwrap_or_default().to_owned(), epoch);
            }
            Record::Entry { sequence, content, .. } => match StoredRecord::read(content) {
                Some(record) => batch.records.push((sequence, record)),
                None => is_sound = false,
            },
        });
        let scanned = scanned.map_err(|e| match e {
            NotALog::Damaged => damaged("it does not begin with the head of a spooled batch"),
            NotALog::Newer(layout) => Error::newer(path, layout),
        })?;
        if !is_sound || producers != 1 || scanned.losses != Default::default() {
            return Err(damaged("not all of its records can be read"));
        }
        Ok(batch)
    }
}
