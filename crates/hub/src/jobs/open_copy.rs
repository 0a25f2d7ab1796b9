//! The open copy of one hub's jobs, which is written by that hub's stream, and read while the hub is away.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;
use skopos_store::jobs::replica::{Keeper, Keeping};
use skopos_store::jobs::{Intake, IntakeLimits, Lts, Retention, SqliteCatalogue};
use skopos_term::tell;

use super::copy_of::{CopyOf, List};
use super::reads::Reads;
use super::shared::{AnyError, Shared, described, now};
use super::store::Jobs;
use crate::catalogue::CataloguePlace;

/// The folder of the lists of a copy's jobs, in that of the copy.
pub(super) const LISTS: &str = "lists";

/// A copy removes what its primary removes, and nothing else.
const NO_RETENTION: Retention = Retention { max_age: Duration::MAX, max_bytes: u64::MAX };

/// Pause before a list that could not be made is made again: it reads all segments.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The copy of a hub's jobs.
#[derive(Debug)]
pub(super) struct OpenCopy {
    pub(super) hub: String,
    pub(super) storage: u64,
    pub(super) folder: PathBuf,
    content: (Arc<Mutex<Intake>>, Arc<Lts>),
    pub(super) keeper: Mutex<Keeper>,
    /// Number of the latest stream. An earlier one ends.
    stream: AtomicU64,
    /// Number of the latest stream that has ended.
    ended: AtomicU64,
    /// Locked for short times: a list is made without it.
    reading: Mutex<ReadCopy>,
}

/// The state of a copy that is read.
#[derive(Debug, Default)]
struct ReadCopy {
    /// The log of who has read it.
    reads: Option<Arc<Reads>>,
    /// The list of its jobs, while its hub is away.
    list: Option<Arc<List>>,
    /// Number of the latest list.
    number: u64,
    /// The time at which the latest list could not be made.
    failed: Option<Instant>,
    /// The last warning, which is not printed again as long as it is the same.
    trouble: Option<String>,
}

impl OpenCopy {
    /// Opens the copy in a folder.
    ///
    /// # Errors
    /// Another process uses the folder, it has the copy of another storage, or a file cannot be read or written.
    pub(super) fn open(
        hub: &str,
        folder: &Path,
        keeping: Keeping<'_>,
        limits: IntakeLimits,
    ) -> Result<Self, AnyError> {
        let keeper = Keeper::open(folder, keeping, limits, now())?;
        match fs::remove_dir_all(folder.join(LISTS)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
        Ok(Self {
            hub: hub.to_owned(),
            storage: keeping.storage,
            folder: folder.to_path_buf(),
            content: keeper.content(),
            keeper: Mutex::new(keeper),
            stream: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            reading: Mutex::default(),
        })
    }

    /// Begins a stream, and returns its number. An earlier one ends.
    pub(super) fn begin(&self) -> u64 {
        self.stream.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns true if no stream has begun after one.
    pub(super) fn is_latest(&self, stream: u64) -> bool {
        self.stream.load(Ordering::Relaxed) == stream
    }

    /// Notes the end of a stream.
    pub(super) fn end(&self, stream: u64) {
        self.ended.fetch_max(stream, Ordering::Relaxed);
    }

    /// Returns true while the hub sends: then it answers for its jobs itself.
    pub(super) fn is_followed(&self) -> bool {
        self.stream.load(Ordering::Relaxed) > self.ended.load(Ordering::Relaxed)
    }

    /// Forgets the list, which is one of the time before a stream that has begun.
    pub(super) fn forget_list(&self) {
        let mut reading = unpoisoned(self.reading.lock());
        (reading.list, reading.failed) = (None, None);
    }

    /// Returns true if the list of the jobs could not be made some time ago.
    pub(super) fn has_failed(&self) -> bool {
        let failed = unpoisoned(self.reading.lock()).failed;
        failed.is_some_and(|at| at.elapsed() < LIST_AGAIN_AFTER)
    }

    /// Returns the copy with the list of its jobs; `None` if that is not made yet, or if the hub is there.
    pub(super) fn shown(&self, own: Option<&Arc<Shared>>) -> Option<Arc<Jobs>> {
        let mut reading = unpoisoned(self.reading.lock());
        // A stream that begins forgets the list after this lock was released.
        let list = reading.list.clone().filter(|_| !self.is_followed())?;
        let reads = self.reads(&mut reading).ok()?;
        let (hub, storage) = (self.hub.clone(), self.storage);
        let copy = CopyOf { hub, storage, own: own.cloned(), list: Some(list.clone()) };
        Some(Arc::new(Jobs::of_copy(list.shared.clone(), reads, copy)))
    }

    /// Makes the list of the jobs, unless the hub is there, there is one, or it could not be made a short time ago. A failure is
    /// warned about. Reads all segments.
    pub(super) fn list(&self, site: &str) {
        let stream = self.stream.load(Ordering::Relaxed);
        let is_listed = unpoisoned(self.reading.lock()).list.is_some();
        if is_listed || self.is_followed() || self.has_failed() {
            return;
        }
        let list = self.listed(site);
        let mut reading = unpoisoned(self.reading.lock());
        if !self.is_latest(stream) {
            // It may lack what the hub has sent meanwhile.
            return;
        }
        let trouble = list.as_ref().err().map(|e| described(&**e));
        if trouble != reading.trouble {
            let of = &self.hub;
            let warn =
                |why| tell(format!("warning: the copy of the jobs of {of} is not shown: {why}"));
            trouble.iter().for_each(warn);
            reading.trouble = trouble;
        }
        reading.failed = list.is_err().then(Instant::now);
        reading.list = list.ok();
    }

    fn listed(&self, site: &str) -> Result<Arc<List>, AnyError> {
        let number = {
            let mut reading = unpoisoned(self.reading.lock());
            self.reads(&mut reading)?;
            reading.number += 1;
            reading.number
        };
        let folder = self.folder.join(LISTS).join(number.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let catalogue = CataloguePlace::new(&folder, None).open()?;
        let shared = Arc::new(Shared::new(site, self.content.clone(), catalogue, NO_RETENTION));
        let list = Arc::new(List { shared, folder });
        list.shared.list_copy()?;
        Ok(list)
    }

    /// Returns the copy, in which jobs are found by their ids.
    ///
    /// # Errors
    /// Its log of reads cannot be opened.
    pub(super) fn by_id(&self, site: &str) -> Result<Arc<Jobs>, AnyError> {
        let mut reading = unpoisoned(self.reading.lock());
        let reads = self.reads(&mut reading)?;
        drop(reading);
        let catalogue = Box::new(SqliteCatalogue::in_memory()?);
        let shared = Arc::new(Shared::new(site, self.content.clone(), catalogue, NO_RETENTION));
        let (hub, storage) = (self.hub.clone(), self.storage);
        let copy = CopyOf { hub, storage, own: None, list: None };
        Ok(Arc::new(Jobs::of_copy(shared, reads, copy)))
    }

    fn reads(&self, reading: &mut ReadCopy) -> Result<Arc<Reads>, AnyError> {
        if reading.reads.is_none() {
            reading.reads = Some(Arc::new(Reads::open(&self.folder.join("reads"))?));
        }
        reading.reads.clone().ok_or_else(|| "the log of reads is not open".into())
    }
}
