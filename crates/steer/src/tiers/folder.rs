//! A tier on disk.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{Advice, fadvise};
use skopos_model::unpoisoned;

use crate::Error;
use crate::tiers::disk::Disk;
use crate::tiers::name::FileName;
use crate::tiers::settings::TierSpec;
use crate::tiers::unsettled::Unsettled;

const PART: &str = "part";
const LOCK: &str = "lock";

/// Bytes of one read and one write of a copy: large enough that a device works at its full speed.
const CHUNK_BYTES: usize = 1 << 20;
/// Most memory that is reserved before the bytes of a file are there; a larger file makes it grow.
const MAX_RESERVED_BYTES: u64 = 64 << 20;

/// The two kinds of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A copy that counts.
    Home,
    /// A copy that was brought up, which the next start removes.
    Cache,
}

impl Kind {
    fn folder(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Cache => "cache",
        }
    }
}

/// The side of a copy that failed.
#[derive(Debug)]
pub(super) enum Side {
    Source(io::Error),
    Target(io::Error),
}

/// The folder of a tier. This process has its lock.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    disk: Arc<dyn Disk>,
    parts: AtomicU64,
    unsettled: Mutex<Unsettled>,
    lock: File,
}

impl Drop for Folder {
    /// Unlocks the folder. Closing the file alone would not: a child that another thread has just forked holds a copy of the
    /// descriptor until it executes its program, and the lock with it.
    fn drop(&mut self) {
        // It fails for no descriptor that is locked, and closing it follows.
        let _ = self.lock.unlock();
    }
}

/// The content of a folder at the start.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) homes: Vec<(FileName, u64)>,
    pub(super) removed: u64,
    pub(super) foreign: u64,
}

impl Folder {
    /// Opens the folder of a tier, removes what an earlier process left unfinished, and makes its removals durable.
    pub(super) fn open(spec: &TierSpec, disk: Arc<dyn Disk>) -> Result<(Self, Found), Error> {
        let failed = |doing: &'static str| {
            let (tier, path) = (spec.name.clone(), spec.folder.clone());
            move |source| Error::TierFailed { tier, path, doing, source }
        };
        let root = spec.folder.clone();
        make(&root).map_err(failed("make the folder"))?;
        for inner in [Kind::Home.folder(), Kind::Cache.folder(), PART] {
            make(&root.join(inner)).map_err(failed("make the folder"))?;
        }
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = lock.open(root.join(LOCK)).map_err(failed("open the lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::TierInUse { tier: spec.name.clone(), path: root });
            }
            Err(TryLockError::Error(e)) => return Err(failed("lock")(e)),
        }
        let (parts, unsettled) = (AtomicU64::new(0), Mutex::default());
        let folder = Self { root, disk, parts, unsettled, lock };
        let found = folder.scan().map_err(failed("list the files"))?;
        folder.sync().map_err(failed("sync the folder"))?;
        Ok((folder, found))
    }

    fn scan(&self) -> io::Result<Found> {
        let mut found = Found::default();
        for inner in [PART, Kind::Cache.folder()] {
            for entry in fs::read_dir(self.root.join(inner))? {
                fs::remove_file(entry?.path())?;
                found.removed += 1;
            }
        }
        for entry in fs::read_dir(self.root.join(Kind::Home.folder()))? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let name = entry.file_name().to_str().and_then(FileName::of_disk);
            match name.filter(|_| metadata.is_file()) {
                Some(name) => found.homes.push((name, metadata.len())),
                None => found.foreign += 1,
            }
        }
        Ok(found)
    }

    /// Writes a file, and returns when it is as durable as the tier.
    pub(super) fn write(&self, kind: Kind, name: &FileName, data: &[u8]) -> io::Result<()> {
        let (part, mut file) = self.part()?;
        let written = file.write_all(data).and_then(|()| self.finish(kind, name, &part, &file));
        self.clean(written, &part)
    }

    /// Copies a file of `bytes` from another tier, as durable as [`write`](Self::write) makes it.
    pub(super) fn copy(
        &self,
        kind: Kind,
        name: &FileName,
        from: (&Self, Kind),
        bytes: u64,
    ) -> Result<(), Side> {
        let mut source = from.0.open_file(from.1, name).map_err(Side::Source)?;
        let (part, mut file) = self.part().map_err(Side::Target)?;
        let copied = copy(&mut source, &mut file, bytes)
            .and_then(|()| self.finish(kind, name, &part, &file).map_err(Side::Target));
        drop_pages(&source);
        if copied.is_err() {
            // The error of the copy counts; the next start removes the part.
            let _ = fs::remove_file(&part);
        }
        copied
    }

    /// Reads a file to the end of `into`.
    pub(super) fn read(&self, kind: Kind, name: &FileName, into: &mut Vec<u8>) -> io::Result<()> {
        let mut file = self.open_file(kind, name)?;
        into.reserve(file.metadata()?.len().min(MAX_RESERVED_BYTES) as usize);
        file.read_to_end(into)?;
        drop_pages(&file);
        Ok(())
    }

    /// Removes a file; a missing one is removed already. The removal of a copy that counts is durable after
    /// [`sync`](Self::sync) or [`settle`](Self::settle).
    pub(super) fn remove(&self, kind: Kind, name: &FileName) -> io::Result<()> {
        if kind == Kind::Home {
            self.bound_unsettled()?;
        }
        self.unlink(kind, name)
    }

    fn unlink(&self, kind: Kind, name: &FileName) -> io::Result<()> {
        match self.disk.remove(&self.path(kind, &name.on_disk)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.root.is_dir() => {}
            outcome => outcome?,
        }
        if kind == Kind::Home {
            unpoisoned(self.unsettled.lock()).note(&name.name, true);
        }
        Ok(())
    }

    /// Makes removals durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        let number = unpoisoned(self.unsettled.lock()).begin_sync();
        self.disk.sync(&self.root.join(Kind::Home.folder()))?;
        unpoisoned(self.unsettled.lock()).synced(number);
        Ok(())
    }

    /// Takes a file that the start has found, and that contradicts a faster tier. It stays until [`settle`](Self::settle)
    /// removes it.
    pub(super) fn note_foreign(&self, name: &FileName) {
        unpoisoned(self.unsettled.lock()).note_found(&name.name);
    }

    /// Returns when no old file of this name can come back: removes one that could not be removed before, or that contradicts a
    /// faster tier, and makes an earlier removal durable. The tier must not have a copy that counts.
    pub(super) fn settle(&self, name: &FileName) -> io::Result<()> {
        if !unpoisoned(self.unsettled.lock()).has(&name.name) {
            return Ok(());
        }
        self.unlink(Kind::Home, name)?;
        self.sync()
    }

    /// Returns the path of the folder.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn open_file(&self, kind: Kind, name: &FileName) -> io::Result<File> {
        File::open(self.path(kind, &name.on_disk))
    }

    fn path(&self, kind: Kind, on_disk: impl AsRef<OsStr>) -> PathBuf {
        self.root.join(kind.folder()).join(on_disk.as_ref())
    }

    /// Makes a file with a name that no other thread has.
    fn part(&self) -> io::Result<(PathBuf, File)> {
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join(PART).join(number.to_string());
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok((path, file))
    }

    fn finish(&self, kind: Kind, name: &FileName, part: &Path, file: &File) -> io::Result<()> {
        file.sync_all()?;
        drop_pages(file);
        let path = self.path(kind, &name.on_disk);
        if kind == Kind::Cache {
            // A start removes cached copies, so their names need not last.
            return fs::rename(part, path);
        }
        self.bound_unsettled()?;
        fs::rename(part, &path)?;
        let synced = self.sync();
        if synced.is_ok() {
            unpoisoned(self.unsettled.lock()).settled(&name.name);
        } else {
            let is_gone = self.disk.remove(&path).is_ok();
            unpoisoned(self.unsettled.lock()).note(&name.name, is_gone);
        }
        synced
    }

    /// Makes room for the name of another removal. Each thread adds one at most after it.
    fn bound_unsettled(&self) -> io::Result<()> {
        let is_full = || unpoisoned(self.unsettled.lock()).is_full();
        if is_full() {
            self.sync()?;
        }
        match is_full() {
            true => Err(io::Error::other("too many files of failed writes cannot be removed")),
            false => Ok(()),
        }
    }

    fn clean(&self, outcome: io::Result<()>, part: &Path) -> io::Result<()> {
        if outcome.is_err() {
            // The error of the write counts; the next start removes the part.
            let _ = fs::remove_file(part);
        }
        outcome
    }
}

/// Makes a folder, but not the one above it.
fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        outcome => outcome,
    }
}

fn copy(source: &mut File, target: &mut File, bytes: u64) -> Result<(), Side> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = bytes;
    loop {
        let read = match source.read(&mut chunk) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(Side::Source)? as u64,
        };
        if read > left || (read == 0 && left > 0) {
            let why = "the file has another length than when it was written";
            return Err(Side::Source(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        if read == 0 {
            return Ok(());
        }
        target.write_all(&chunk[..read as usize]).map_err(Side::Target)?;
        left -= read;
    }
}

/// Discards the pages of a file. A failure costs memory alone, so it is not an error.
fn drop_pages(file: &File) {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::disk::FileSystem;

    #[test]
    fn a_dropped_folder_is_free_while_a_forked_child_still_has_its_descriptor() {
        let dir = tempfile::tempdir().expect("a folder");
        let spec = TierSpec::new("fast", dir.path(), 1000);
        let (folder, _) = Folder::open(&spec, Arc::new(FileSystem)).expect("a tier");
        // A copy of the descriptor holds the lock as the copy of a child does.
        let of_child = folder.lock.try_clone().expect("a descriptor");
        assert!(matches!(Folder::open(&spec, Arc::new(FileSystem)), Err(Error::TierInUse { .. })));
        drop(folder);
        Folder::open(&spec, Arc::new(FileSystem)).expect("it is free");
        drop(of_child);
    }
}
