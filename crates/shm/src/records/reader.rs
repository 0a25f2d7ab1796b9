//! A recorder's segment from the side of those who drain it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::header::Refusal;
use crate::layout::{HEADER_BYTES, MAX_FILE_BYTES, STATE_CLOSED, STATE_NEW};
use crate::map::Mapping;
use crate::process::Watched;
use crate::records::header::RecordsHeader;
use crate::records::layout::{
    Counter, MAX_DEFINITION_BYTES, RECORDS_ENDING, RECORDS_VERSION, RecordsLive,
};
use crate::records::ring::{self, Drained};
use crate::sync::{AcquireLoad as _, AtomicU64, Ordering};
use crate::{dir, sys};

/// Attempts of a reader at the clock while it is being changed.
const CLOCK_ATTEMPTS: u32 = 1000;

/// A recorder's segment, mapped for reading.
#[derive(Debug)]
pub struct RecordReader {
    map: Mapping,
    file: File,
    path: PathBuf,
    header: RecordsHeader,
    process: Watched,
}

/// Returns the segments of recorders in `dir`, by name; an empty list if the directory does not exist.
///
/// # Errors
/// [`Error::Owner`] or [`Error::Permissions`] if another user owns or may write the directory; [`Error::Io`].
pub fn record_segments(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    dir::check_owner(dir)?;
    dir::files_of(dir, RECORDS_ENDING)
}

/// Removes the file of a segment whose process has ended, under the lock of its directory. Returns false if the file is
/// that of another segment by now.
///
/// # Errors
/// [`Error::Io`].
pub fn remove_record_segment(segment: &RecordReader) -> Result<bool, Error> {
    let path = segment.path();
    let _lock = dir::DirLock::take(path.parent().unwrap_or(path))?;
    if !dir::is_own(path, &segment.file) || segment.is_held() && !segment.is_closed() {
        return Ok(false);
    }
    fs::remove_file(path).map_err(Error::io(path, "cannot remove"))?;
    Ok(true)
}

impl RecordReader {
    /// Maps the segment at `path` and checks it.
    ///
    /// # Errors
    /// [`Error::Owner`] unless the file belongs to this user or root; [`Error::NotASegment`] and
    /// [`Error::LayoutVersion`] if this program cannot read the file; [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(Error::io(path, "cannot open"))?;
        let meta = file.metadata().map_err(Error::io(path, "cannot read its metadata"))?;
        let refuse = |why: &str| Error::NotASegment { path: path.into(), why: why.to_owned() };
        if !meta.is_file() {
            return Err(refuse("not a plain file"));
        }
        // The owner of the file can truncate it while it is mapped, and the reader then dies of SIGBUS.
        let wanted = sys::effective_uid();
        if meta.uid() != wanted && meta.uid() != 0 {
            return Err(Error::Owner { path: path.into(), found: meta.uid(), wanted });
        }
        if meta.len() < HEADER_BYTES as u64 || meta.len() > MAX_FILE_BYTES {
            return Err(refuse("its length is not that of a segment"));
        }
        let map = Mapping::map(&file, meta.len() as usize, false)
            .map_err(Error::io(path, "cannot map"))?;
        let fixed = map.fixed_header().ok_or_else(|| refuse("shorter than a header"))?;
        let header =
            RecordsHeader::decode(&fixed, meta.len()).map_err(|refusal| match refusal {
                Refusal::Version(found) if found != RECORDS_VERSION => {
                    Error::LayoutVersion { path: path.into(), found }
                }
                Refusal::Version(_) => refuse("wrong version"),
                Refusal::Damaged(why) => refuse(&why),
            })?;
        let process = Watched::find(&header.process);
        let reader = Self { map, file, path: path.into(), header, process };
        // SYNC: pairs with the Release store in `RecordSegmentBuilder::make_file`.
        if reader.live().state.load_acquire() == STATE_NEW {
            return Err(refuse("its process has not finished it"));
        }
        Ok(reader)
    }

    fn live(&self) -> &RecordsLive {
        self.map.records_live().unwrap_or_else(|| unreachable!("`open` saw a whole header"))
    }

    /// Returns the path of the segment's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the service.
    pub fn name(&self) -> &str {
        &self.header.name
    }

    /// Returns the name of the node.
    pub fn node(&self) -> &str {
        &self.header.node
    }

    /// Returns the process id, in its own namespace.
    pub fn pid(&self) -> u32 {
        self.header.process.pid
    }

    /// Returns field 22 of the `/proc/PID/stat` of the process.
    pub fn start_ticks(&self) -> u64 {
        self.header.process.start_ticks
    }

    /// Returns the id of the machine's boot in which the process ran.
    pub fn boot_id(&self) -> [u8; 16] {
        self.header.process.boot_id
    }

    /// Returns the user id of the process.
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// Returns true if the process writes its records to a trace by itself.
    pub fn drains_itself(&self) -> bool {
        self.header.drains_itself
    }

    /// Returns the time at which the segment was made, UNIX ns.
    pub fn created_at(&self) -> i64 {
        self.header.created_at
    }

    /// Returns true if the process closed the segment.
    pub fn is_closed(&self) -> bool {
        // SYNC: pairs with the Release store in `RecordSegment::close`.
        self.live().state.load_acquire() == STATE_CLOSED
    }

    /// Returns true while the process lives. Two system calls.
    pub fn is_held(&self) -> bool {
        sys::is_locked(&self.file).unwrap_or(true) && !self.process.has_ended()
    }

    /// Returns the stage of recording, as the process set it.
    pub fn stage(&self) -> u32 {
        self.live().stage.load(Ordering::Relaxed)
    }

    /// Returns a counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        let word = self.live().counters.get(counter as usize);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the clock: a moment in ticks and UNIX time, the length of a tick in ns, the bound of the error in ns.
    /// `None` before it is known, and if the process died while it changed it.
    pub fn clock(&self) -> Option<(u64, i64, f64, u64)> {
        let live = self.live();
        let read = || ring::read_clock(&live.clock_version, live.clock_places());
        let words = (0..CLOCK_ATTEMPTS).find_map(|_| read())?;
        let [ticks, unix_ns, ns_per_tick, error_ns] = words.0;
        let ns_per_tick = f64::from_bits(ns_per_tick);
        let is_known = ns_per_tick.is_finite() && ns_per_tick > 0.0;
        is_known.then_some((ticks, unix_ns.cast_signed(), ns_per_tick, error_ns))
    }

    /// Returns the number of rings that ever had a writer.
    pub fn rings(&self) -> u32 {
        // SYNC: pairs with the Release in `RecordSegment::claim`.
        self.live().rings_used.load_acquire().min(self.header.rings)
    }

    fn ring(&self, ring: u32) -> Option<ring::RawRing<'_>> {
        let (head, slots) = (RecordsHeader::head_offset(ring), self.header.slots_offset(ring));
        let is_used = ring < self.rings();
        is_used.then(|| self.map.ring(head, slots, self.header.ring_records)).flatten()
    }

    /// Returns the number of records of a ring that the process itself has drained.
    pub fn drained(&self, ring: u32) -> u64 {
        self.ring(ring).map_or(0, |ring| ring.head.drained.load(Ordering::Relaxed))
    }

    /// Returns the number of records in a ring that the process itself has not drained, at most as many as a ring has.
    pub fn waiting(&self, ring: u32) -> u64 {
        self.ring(ring).map_or(0, |ring| {
            let drained = ring.head.drained.load(Ordering::Relaxed);
            ring.count().saturating_sub(drained).min(ring.slots.len() as u64)
        })
    }

    /// Appends the records of a ring from number `from` on to `into`, at most `limit`, 64 bytes each.
    pub fn drain(&self, ring: u32, from: u64, limit: u64, into: &mut Vec<u8>) -> Drained {
        let nothing = Drained { first: from, next: from, lost: 0 };
        let Some(ring) = self.ring(ring) else { return nothing };
        let (start, mut first_copied) = (into.len(), None);
        let drained = ring.copy(from, limit, |ticket, words| {
            first_copied.get_or_insert(ticket);
            into.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
        });
        // The first ones may be torn.
        let torn = drained.first - first_copied.unwrap_or(drained.first);
        into.drain(start..start + torn as usize * 64);
        drained
    }

    /// Hands the definitions from byte `from` of their region on to `take`, each with its kind and payload. Returns the
    /// place for the next call. A definition with an impossible length ends the reading: nothing behind it can be found.
    pub fn definitions(&self, from: u64, mut take: impl FnMut(u32, &[u8])) -> u64 {
        // SYNC: pairs with the Release store in `RecordSegment::define`.
        let used = self.live().definitions_used.load_acquire().min(self.header.definitions_bytes);
        let mut at = from;
        let mut payload = Vec::new();
        while at + 8 <= used {
            let offset = self.header.definitions_offset() + at;
            let Some(head) = self.map.at::<AtomicU64>(offset) else { break };
            let head = head.load(Ordering::Relaxed);
            let (kind, length) = (head as u32, (head >> 32) as usize);
            let whole = (8 + length as u64).next_multiple_of(8);
            if length > MAX_DEFINITION_BYTES || at + whole > used {
                break;
            }
            let words = self.map.slice::<AtomicU64>(offset + 8, length.div_ceil(8));
            payload.clear();
            for word in words.unwrap_or_default() {
                payload.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            payload.truncate(length);
            take(kind, &payload);
            at += whole;
        }
        at
    }
}
