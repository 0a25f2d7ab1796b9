//! A recorder's segment from the side of its process.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use skopos_model::unpoisoned;

use crate::error::Error;
use crate::layout::{MAX_FILE_BYTES, MAX_NAME_BYTES, STATE_CLOSED, STATE_READY};
use crate::map::{Mapping, PinnedRing};
use crate::own_segment::reserve;
use crate::process::{Identity, Maker};
use crate::records::header::RecordsHeader;
use crate::records::layout::{
    Counter, DEFINITIONS_BYTES, MAX_DEFINITION_BYTES, MAX_RING_RECORDS, MAX_RINGS,
    MAX_SERVICE_NAME_BYTES, MIN_RING_RECORDS, RECORDS_ENDING, RecordsLive,
};
use crate::records::ring::{self, ClockWords, WORDS};
use crate::sync::Ordering;
use crate::{dir, sys};

/// Most records that belong together: a quarter of the smallest ring.
pub const MAX_GROUP: usize = 16;
/// Step in which memory for definitions is reserved.
const DEFINITIONS_STEP: u64 = 64 << 10;

/// Makes a [`RecordSegment`].
#[derive(Clone, Debug)]
pub struct RecordSegmentBuilder {
    name: String,
    node: String,
    dir: PathBuf,
    rings: u32,
    ring_records: u32,
    drains_itself: bool,
}

impl RecordSegmentBuilder {
    /// Sets the name of the node, for people; cut to [`MAX_NAME_BYTES`].
    #[must_use]
    pub fn node(mut self, node: &str) -> Self {
        self.node = node.chars().filter(char::is_ascii_graphic).take(MAX_NAME_BYTES).collect();
        self
    }

    /// Sets the runtime directory, instead of [`crate::runtime_dir`].
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = dir.into();
        self
    }

    /// Sets the number of rings, and the records of each, a power of two.
    #[must_use]
    pub fn rings(mut self, rings: u32, ring_records: u32) -> Self {
        (self.rings, self.ring_records) = (rings, ring_records);
        self
    }

    /// Says that the process drains its rings by itself.
    #[must_use]
    pub fn drains_itself(mut self, drains_itself: bool) -> Self {
        self.drains_itself = drains_itself;
        self
    }

    /// Makes the segment, in the file `NAME-PID.rpc`.
    ///
    /// # Errors
    /// [`Error::Held`] if this process has one of this name already; [`Error::Name`]; [`Error::Rings`];
    /// [`Error::Owner`] or [`Error::Permissions`] if another user owns or may write the directory; [`Error::Full`].
    pub fn create(self) -> Result<RecordSegment, Error> {
        dir::check_name(&self.name)?;
        if self.name.len() > MAX_SERVICE_NAME_BYTES {
            return Err(Error::Name(self.name));
        }
        let fits = (1..=MAX_RINGS).contains(&self.rings)
            && (MIN_RING_RECORDS..=MAX_RING_RECORDS).contains(&self.ring_records)
            && self.ring_records.is_power_of_two();
        if !fits {
            return Err(Error::Rings(self.rings, self.ring_records));
        }
        dir::ensure(&self.dir)?;
        let _lock = dir::DirLock::take(&self.dir)?;
        let name = format!("{}-{}.{RECORDS_ENDING}", self.name, std::process::id());
        let path = self.dir.join(name);
        self.refuse_held(&path)?;
        let own = self.make_file(&path).inspect_err(|_| {
            let _ = fs::remove_file(path.with_extension("new"));
        })?;
        Ok(RecordSegment { own: Arc::new(own) })
    }

    /// Refuses a path whose file is locked by a living process.
    fn refuse_held(&self, path: &Path) -> Result<(), Error> {
        let Ok(file) = File::open(path) else { return Ok(()) };
        if sys::is_locked(&file).map_err(Error::io(path, "cannot query its lock"))? {
            let (pid, since) = (std::process::id(), sys::now());
            return Err(Error::Held { name: self.name.clone(), pid, since });
        }
        Ok(())
    }

    fn make_file(&self, path: &Path) -> Result<Own, Error> {
        let maker =
            Maker::this().map_err(Error::io(path, "cannot tell this process from its children"))?;
        let header = RecordsHeader {
            rings: self.rings,
            ring_records: self.ring_records,
            definitions_bytes: DEFINITIONS_BYTES,
            process: Identity::this()?,
            uid: sys::effective_uid(),
            created_at: sys::now().as_nanos(),
            name: self.name.clone(),
            node: self.node.clone(),
            drains_itself: self.drains_itself,
        };
        if header.file_bytes() > MAX_FILE_BYTES {
            return Err(Error::Rings(self.rings, self.ring_records));
        }
        let new_path = path.with_extension("new");
        let file = dir::create_file(&new_path, 0o600, header.file_bytes())?;
        if !sys::try_lock(&file).map_err(Error::io(&new_path, "cannot lock"))? {
            let (pid, since) = (std::process::id(), sys::now());
            return Err(Error::Held { name: self.name.clone(), pid, since });
        }
        reserve(&file, &new_path, 0, header.definitions_offset())?;
        let map = Mapping::map(&file, header.file_bytes() as usize, true)
            .map_err(Error::io(&new_path, "cannot map"))?;
        map.store(0, &header.encode());
        let state = Mutex::new(Rings { free: (0..header.rings).rev().collect(), reserved: 0 });
        let own = Own { maker, map, file, path: path.into(), header, state };
        // SYNC: pairs with the Acquire load of the state in `RecordReader::open`.
        own.live().state.store(STATE_READY, Ordering::Release);
        fs::rename(&new_path, path).map_err(Error::io(path, "cannot rename into place"))?;
        // Other users read nothing here: calls and names of peers are those of one user.
        debug_assert!(fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o077 == 0));
        Ok(own)
    }
}

/// The segment of a recorder, in the process that writes it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RecordSegment {
    own: Arc<Own>,
}

#[derive(Debug)]
struct Own {
    maker: Maker,
    map: Mapping,
    /// Holds the lock that marks the process as alive.
    file: File,
    path: PathBuf,
    header: RecordsHeader,
    state: Mutex<Rings>,
}

/// The rings without a writer, and the bytes of definitions for which there is memory.
#[derive(Debug)]
struct Rings {
    free: Vec<u32>,
    reserved: u64,
}

impl Own {
    fn live(&self) -> &RecordsLive {
        self.map.records_live().unwrap_or_else(|| unreachable!("a segment has a header"))
    }
}

impl RecordSegment {
    /// Prepares the segment of service `name`: 1 to 48 of the characters `a-z 0-9 _ - .`.
    pub fn builder(name: &str) -> RecordSegmentBuilder {
        RecordSegmentBuilder {
            name: name.to_owned(),
            node: String::new(),
            dir: dir::runtime_dir(),
            rings: 64,
            ring_records: 8192,
            drains_itself: false,
        }
    }

    /// Returns the path of the segment's file.
    pub fn path(&self) -> &Path {
        &self.own.path
    }

    /// Returns false in a child of the process that made the segment.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.own.maker.is_this()
    }

    /// Gives this thread a ring of its own; `None` if all have a writer, the file system has no room, or this is a child
    /// of the process that made the segment.
    pub fn claim(&self) -> Option<RecordWriter> {
        let own = &self.own;
        if !self.is_own() {
            return None;
        }
        let index = unpoisoned(own.state.lock()).free.pop()?;
        let (head, slots) = (RecordsHeader::head_offset(index), own.header.slots_offset(index));
        let records = own.header.ring_records;
        let ring = own.map.pin_ring(head, slots, records);
        let ring = ring.filter(|ring| {
            let is_new = ring.head().claims.load(Ordering::Relaxed) == 0;
            !is_new || reserve(&own.file, &own.path, slots, own.header.ring_bytes()).is_ok()
        });
        let Some(ring) = ring else {
            unpoisoned(own.state.lock()).free.push(index);
            return None;
        };
        ring.head().thread.store(sys::thread_id(), Ordering::Relaxed);
        ring.head().claims.fetch_add(1, Ordering::Relaxed);
        // SYNC: pairs with the Acquire load in `RecordReader::rings`.
        own.live().rings_used.fetch_max(index + 1, Ordering::Release);
        let ticket = ring.head().head.load(Ordering::Relaxed);
        let quarter = (ring.mask() + 1).trailing_zeros().saturating_sub(2);
        Some(RecordWriter { ring, ticket, quarter, index, maker: own.maker, own: Arc::clone(own) })
    }

    /// Appends a definition: a kind of frame and its payload.
    ///
    /// # Errors
    /// [`Error::DefinitionsFull`] if it is too long or there is no room, which is counted; [`Error::Forked`].
    pub fn define(&self, kind: u32, payload: &[u8]) -> Result<(), Error> {
        let own = &self.own;
        if !self.is_own() {
            let pid = own.header.process.pid;
            return Err(Error::Forked { segment: own.header.name.clone(), pid });
        }
        let mut state = unpoisoned(own.state.lock());
        let used = own.live().definitions_used.load(Ordering::Relaxed);
        let length = (8 + payload.len() as u64).next_multiple_of(8);
        let fits = payload.len() <= MAX_DEFINITION_BYTES
            && used + length <= own.header.definitions_bytes
            && self.reserve_definitions(&mut state, used + length);
        if !fits {
            self.count(Counter::DefinitionsRefused, 1);
            let segment = own.header.name.clone();
            return Err(Error::DefinitionsFull { segment, bytes: payload.len() });
        }
        let mut bytes = Vec::with_capacity(length as usize);
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes.resize(length as usize, 0);
        own.map.store(own.header.definitions_offset() + used, &bytes);
        // SYNC: pairs with the Acquire load in `RecordReader::definitions`.
        own.live().definitions_used.store(used + length, Ordering::Release);
        Ok(())
    }

    fn reserve_definitions(&self, state: &mut Rings, end: u64) -> bool {
        let own = &self.own;
        while state.reserved < end {
            let step = DEFINITIONS_STEP.min(own.header.definitions_bytes - state.reserved);
            let at = own.header.definitions_offset() + state.reserved;
            if step == 0 || reserve(&own.file, &own.path, at, step).is_err() {
                return false;
            }
            state.reserved += step;
        }
        true
    }

    /// Publishes the clock: a moment in ticks and UNIX time, the length of a tick in ns, the bound of the error in ns. One
    /// thread at a time calls it.
    pub fn set_clock(&self, ticks: u64, unix_ns: i64, ns_per_tick: f64, error_ns: u64) {
        if !self.is_own() {
            return;
        }
        let live = self.own.live();
        let words = [ticks, unix_ns.cast_unsigned(), ns_per_tick.to_bits(), error_ns];
        ring::write_clock(&live.clock_version, live.clock_places(), ClockWords(words));
        live.heartbeat_boottime.store(sys::boottime(), Ordering::Relaxed);
    }

    /// Publishes the stage of recording.
    pub fn set_stage(&self, stage: u32) {
        if self.is_own() {
            self.own.live().stage.store(stage, Ordering::Relaxed);
        }
    }

    /// Adds to a counter.
    pub fn count(&self, counter: Counter, by: u64) {
        if self.is_own()
            && let Some(word) = self.own.live().counters.get(counter as usize)
        {
            word.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Sets a counter.
    pub fn set_counter(&self, counter: Counter, value: u64) {
        if self.is_own()
            && let Some(word) = self.own.live().counters.get(counter as usize)
        {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns a counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        let word = self.own.live().counters.get(counter as usize);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Says that the process has drained the records of a ring before number `next`.
    pub fn set_drained(&self, ring: u32, next: u64) {
        if self.is_own()
            && let Some(raw) = self.own.map.ring(RecordsHeader::head_offset(ring), 0, 0)
        {
            raw.head.drained.store(next, Ordering::Relaxed);
        }
    }

    /// Closes the segment. Its file is removed if `remove`; otherwise it stays for those who drain it.
    pub fn close(&self, remove: bool) {
        if !self.is_own() {
            return;
        }
        // SYNC: pairs with the Acquire load in `RecordReader::is_closed`.
        self.own.live().state.store(STATE_CLOSED, Ordering::Release);
        if remove {
            dir::remove_own(&self.own.path, &self.own.file);
        }
    }
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The record is in the ring.
    Yes,
    /// The record is in the ring, and a quarter of the ring was filled since this was last returned: time to drain.
    Quarter,
    /// This is a child of the process that made the segment: the record was not stored.
    Forked,
}

/// The writer of one ring. It belongs to one thread at a time; dropping it gives the ring to another one.
#[derive(Debug)]
pub struct RecordWriter {
    ring: PinnedRing,
    ticket: u64,
    /// Base-two logarithm of a quarter of the slots.
    quarter: u32,
    index: u32,
    maker: Maker,
    own: Arc<Own>,
}

impl RecordWriter {
    /// Returns the number of the ring.
    pub fn ring(&self) -> u32 {
        self.index
    }

    /// Returns true if the writer is one of `segment`.
    #[inline]
    pub fn is_of(&self, segment: &RecordSegment) -> bool {
        Arc::ptr_eq(&self.own, &segment.own)
    }

    /// Returns true if the segment was closed: the records are drained no more.
    pub fn is_over(&self) -> bool {
        self.own.live().state.load(Ordering::Relaxed) == STATE_CLOSED
    }

    /// Stores records that belong together; they become visible together. Never waits: old records that were not drained
    /// are overwritten. Of more than [`MAX_GROUP`] records only the first are stored.
    #[inline(always)]
    pub fn push(&mut self, records: &[[u64; WORDS]]) -> Stored {
        if !self.maker.is_this() {
            return Stored::Forked;
        }
        let records = &records[..records.len().min(MAX_GROUP)];
        let (before, ring) = (self.ticket, &self.ring);
        ring::write(ring.head(), |ticket| ring.slot(ticket), before, records);
        self.ticket += records.len() as u64;
        if before >> self.quarter == self.ticket >> self.quarter {
            Stored::Yes
        } else {
            Stored::Quarter
        }
    }
}

impl Drop for RecordWriter {
    fn drop(&mut self) {
        if self.maker.is_this() {
            unpoisoned(self.own.state.lock()).free.push(self.index);
        }
    }
}

impl RecordsLive {
    /// Returns the words of the clock.
    pub(crate) fn clock_places(&self) -> [&crate::sync::AtomicU64; 4] {
        [&self.clock_ticks, &self.clock_unix_ns, &self.clock_ns_per_tick, &self.clock_error_ns]
    }
}
