//! Whole segments that are copied: to a replica and back from it, and to clients that download all of their jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use skopos_model::job::JobId;
use skopos_model::unpoisoned;

use super::chores::Changes;
use super::folder::{Lts, Placed};
use super::index::Slot;
use super::state::list;
use crate::jobs::segment::{PartInfo, Segment, SegmentName};
use crate::log::{self, DiskFile, Error, io_at};

/// The most bytes of a segment that are in memory while it is copied.
const COPY_BYTES: u64 = 1 << 20;

/// A segment of which all parts may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeSegment {
    /// The name of the file.
    pub name: String,
    /// The number of parts.
    pub parts: usize,
    /// Bytes of the file.
    pub bytes: u64,
    /// Number of records of each kind.
    pub kinds: BTreeMap<String, u64>,
}

/// The file of a segment that is read from its begin to its end. It may be removed meanwhile.
#[derive(Debug)]
pub struct SegmentFile {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    at: u64,
    length: u64,
}

impl SegmentFile {
    /// Returns the bytes that were read so far.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns true if all bytes were read.
    pub fn is_read(&self) -> bool {
        self.at >= self.length
    }

    /// Reads the next piece; `None` at the end. The reader of the copy checks the bytes: a segment has checksums.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let length = (self.length - self.at).min(COPY_BYTES);
        if length == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        let read = self.file.read_at(&mut bytes, self.at);
        read.map_err(io_at(&self.path, "it cannot be read"))?;
        self.at += length;
        Ok(Some(bytes))
    }
}

/// A state of the list of segments: it differs after each change of the list.
pub type Version = (u64, usize);

impl Lts {
    /// Returns false if no segment has a part of a job. No file is read.
    pub fn may_have(&self, id: &JobId) -> bool {
        self.last_part(id).is_some()
    }

    /// Returns the number of the last part that a segment may have of a job. No file is read.
    pub fn last_part(&self, id: &JobId) -> Option<u32> {
        self.state().index.find(id).last().map(|(number, _)| *number)
    }

    /// Returns the state of the list of segments.
    pub fn version(&self) -> Version {
        let state = self.state();
        (state.next_slot, state.segments.len())
    }

    /// Returns the names of all segments, those in quarantine included: a replica keeps their whole copies.
    pub(in crate::jobs) fn names(&self) -> Result<BTreeSet<String>, Error> {
        let mut names = self.known_names();
        names.extend(self.aside()?);
        Ok(names)
    }

    /// Returns the names of the segments that are in use.
    pub(in crate::jobs) fn known_names(&self) -> BTreeSet<String> {
        self.state().segments.values().map(|known| known.name.file_name()).collect()
    }

    /// Returns the names of the segments in quarantine.
    fn aside(&self) -> Result<Vec<String>, Error> {
        let aside = list(&*self.disk, &self.folder.join(log::FOLDER))?;
        let names = aside.into_iter().map(|file| file.name);
        Ok(names.filter(|name| SegmentName::parse(name).is_some()).collect())
    }

    /// Returns the damaged segments that are known and have no whole copy in the folder.
    pub(in crate::jobs) fn wanted(&self) -> Result<Vec<String>, Error> {
        let damaged: BTreeSet<String> =
            unpoisoned(self.damaged.lock()).iter().map(|damage| damage.file.clone()).collect();
        let known = self.known_names();
        let aside = self.aside()?.into_iter().filter(|name| !known.contains(name));
        let damaged = damaged.into_iter().filter(|name| known.contains(name));
        Ok(aside.chain(damaged).collect())
    }

    /// Opens the file of a segment to copy it; `None` if it does not exist.
    pub(in crate::jobs) fn open_to_copy(
        &self,
        name: &str,
    ) -> Result<Option<Box<dyn DiskFile>>, Error> {
        if SegmentName::parse(name).is_none() {
            return Ok(None);
        }
        let path = self.folder.join(name);
        match self.disk.open_to_read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(io_at(&path, "it cannot be opened")),
        }
    }

    /// Describes the segment that has a part of a job; `None` if there is none.
    ///
    /// # Errors
    /// The segment cannot be read.
    pub fn segment_of(&self, id: &JobId, part: u32) -> Result<Option<WholeSegment>, Error> {
        let found = self.find_part(id, part)?;
        Ok(found.map(|(segment, _)| WholeSegment {
            name: segment.name().to_owned(),
            parts: segment.parts().len(),
            bytes: segment.bytes(),
            kinds: segment.kinds(),
        }))
    }

    /// Opens the file of a segment; `None` if it does not exist.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open_file(&self, name: &str) -> Result<Option<SegmentFile>, Error> {
        let path = self.folder.join(name);
        let Some(file) = self.open_to_copy(name)? else { return Ok(None) };
        let length = file.length().map_err(io_at(&path, "its length cannot be read"))?;
        Ok(Some(SegmentFile { path, file, at: 0, length }))
    }

    /// Checks every byte of the next segment after `after` in the order of their arrival, and returns its place. Damage is
    /// noted. `None` if there is no later segment.
    ///
    /// # Errors
    /// The segment cannot be read.
    pub fn verify_next(&self, after: Option<u64>) -> Result<Option<u64>, Error> {
        let from = after.map_or(0, |after| after.saturating_add(1));
        let next: Option<Slot> = self.state().segments.range(from..).next().map(|(slot, _)| *slot);
        if let Some(slot) = next {
            self.verify_segment(slot)?;
        }
        Ok(next)
    }

    /// Takes over the whole segments of another folder, and removes those that are not in `keep`. Returns the parts of the
    /// new ones. It can be repeated after a crash at any place.
    pub(in crate::jobs) fn adopt(
        &self,
        incoming: &Path,
        keep: Option<&BTreeSet<String>>,
    ) -> Result<Vec<PartInfo>, Error> {
        let _writing = unpoisoned(self.writing.lock());
        let mut adopted = BTreeSet::new();
        for file in list(&*self.disk, incoming)? {
            if SegmentName::parse(&file.name).is_none() {
                continue;
            }
            let (from, to) = (incoming.join(&file.name), self.folder.join(&file.name));
            self.state().is_behind = true;
            self.disk.rename(&from, &to).map_err(io_at(&from, "it cannot be renamed"))?;
            adopted.insert(file.name);
        }
        self.sync()?;
        let synced = self.disk.sync_folder(incoming);
        synced.map_err(io_at(incoming, "the folder cannot be synced"))?;
        self.catch_up()?;
        let names: Vec<(Slot, String)> = {
            let state = self.state();
            state.segments.iter().map(|(slot, known)| (*slot, known.name.file_name())).collect()
        };
        let mut parts = Vec::new();
        for (slot, name) in &names {
            if adopted.contains(name)
                && let Some(segment) = self.segment(*slot)?
            {
                parts.extend_from_slice(segment.parts());
            }
        }
        if let Some(keep) = keep {
            let gone = names.iter().filter(|(_, name)| !keep.contains(name));
            let gone: Vec<Slot> = gone.map(|(slot, _)| *slot).collect();
            self.remove(&gone, |_| false).1?;
            self.sync()?;
        }
        Ok(parts)
    }

    /// Puts the whole copy of a damaged segment, which lies in the folder `incoming`, in its place. The damaged one is moved
    /// to the quarantine.
    ///
    /// # Errors
    /// The copy is damaged or contradicts later segments, or a file cannot be moved.
    pub fn restore(
        &self,
        (disk, incoming): (&dyn log::Disk, &Path),
        name: &str,
    ) -> Result<Changes, Error> {
        let _writing = unpoisoned(self.writing.lock());
        self.catch_up()?;
        let segment = whole(disk, incoming, name)?;
        if let Some(why) = self.conflict_of(&segment)? {
            return Err(Error::refused(&incoming.join(name), &why));
        }
        let slot = {
            let state = self.state();
            let found = state.segments.iter().find(|(_, known)| known.name.file_name() == name);
            found.map(|(slot, _)| *slot)
        };
        if let Some(slot) = slot {
            self.remove(&[slot], |_| true).1?;
        }
        self.state().is_behind = true;
        let to = self.folder.join(name);
        let copied = self.copy((disk, &incoming.join(name)), &to);
        copied.map_err(io_at(&to, "the copy cannot be put in place"))?;
        self.sync()?;
        self.catch_up()?;
        unpoisoned(self.damaged.lock()).retain(|damage| damage.file != name);
        let restored = segment.parts().iter().map(|part| Placed::new(name, part)).collect();
        Ok(Changes { restored, ..Changes::default() })
    }

    /// Copies a whole segment, which may lie on another disk.
    fn copy(&self, (disk, from): (&dyn log::Disk, &Path), to: &Path) -> std::io::Result<()> {
        let temporary = self.folder.join(SegmentName::temporary(self.state().next_number));
        match self.disk.remove(&temporary) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let (file, new) = (disk.open_to_read(from)?, self.disk.create(&temporary)?);
        let (mut at, length) = (0, file.length()?);
        while at < length {
            let mut bytes = vec![0; (length - at).min(COPY_BYTES) as usize];
            file.read_at(&mut bytes, at)?;
            new.write_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
        new.sync()?;
        self.disk.rename(&temporary, to)?;
        disk.remove(from)
    }
}

/// Opens a segment and checks all of its bytes.
pub(in crate::jobs) fn whole(
    disk: &dyn log::Disk,
    folder: &Path,
    name: &str,
) -> Result<Segment, Error> {
    let path: PathBuf = folder.join(name);
    let segment = Segment::open_on(disk, &path)?;
    segment.verify()?;
    Ok(segment)
}
