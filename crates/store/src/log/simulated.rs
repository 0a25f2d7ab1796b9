//! A disk that forgets: the crash simulator.
//!
//! The disk has what a program sees, and what would be left after a loss of power. A crash keeps what was synced. Of the
//! writes and names that were not, it keeps a random choice; a write may be torn. The disk can also fail: it runs out of
//! space, a write or a sync fails. As on Linux, a sync that failed drops some of the writes before it: programs go on
//! reading them, later syncs succeed without them, whichever process asks, and a crash loses them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::disk::{Disk, DiskFile, Listed, Lock};

/// A source of random numbers: SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns true once in `times`; never if that is zero.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }
}

/// Failures of the disk: each once in so many operations, never if zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failures {
    pub(crate) writes: u64,
    pub(crate) syncs: u64,
    pub(crate) names: u64,
}

type FileId = usize;

#[derive(Clone, Debug)]
struct State {
    random: Random,
    failures: Failures,
    /// Changes that are still made, if the program ends after them.
    left: Option<u64>,
    /// Bytes that fit on the disk.
    space: u64,
    /// A folder that cannot be made, because the disk is full.
    unmade: Option<PathBuf>,
    files: Vec<SimulatedFile>,
    /// The names that programs see, and those that were synced.
    names: BTreeMap<PathBuf, FileId>,
    synced_names: BTreeMap<PathBuf, FileId>,
    /// Changes of names that were not synced, in their order.
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Name(PathBuf, FileId),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, FileId),
}

#[derive(Clone, Debug, Default)]
struct SimulatedFile {
    content: Vec<u8>,
    synced: Vec<u8>,
    /// Writes that were not synced, in their order.
    pending: Vec<Write>,
}

#[derive(Clone, Debug)]
enum Write {
    At(u64, Vec<u8>),
    Cut(u64),
}

impl Write {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::At(at, bytes) => {
                let at = *at as usize;
                let end = at + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[at..end].copy_from_slice(bytes);
            }
            Self::Cut(length) => content.resize(*length as usize, 0),
        }
    }
}

/// The simulated disk. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct OpenFile(Arc<Mutex<State>>, FileId);

fn error(kind: io::ErrorKind) -> io::Error {
    io::Error::from(kind)
}

impl SimulatedDisk {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Random::new(seed),
            failures: Failures::default(),
            left: None,
            space: u64::MAX,
            unmade: None,
            files: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            pending: Vec::new(),
        })))
    }

    /// Returns a disk with the same content, which does not share it.
    pub(crate) fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().clone())))
    }

    pub(crate) fn fail(&self, failures: Failures) {
        self.state().failures = failures;
    }

    /// Makes so many further changes and refuses those after them, as if the program had ended; makes all if `None`.
    pub(crate) fn stop_after(&self, changes: Option<u64>) {
        self.state().left = changes;
    }

    /// Returns true if no change is left of those that [`stop_after`](Self::stop_after) gave.
    pub(crate) fn has_stopped(&self) -> bool {
        self.state().left == Some(0)
    }

    /// Leaves room for so many more bytes.
    pub(crate) fn leave_space(&self, bytes: u64) {
        let mut state = self.state();
        state.space = state.used() + bytes;
    }

    /// Leaves no room to make this folder.
    pub(crate) fn refuse_folder(&self, folder: Option<PathBuf>) {
        self.state().unmade = folder;
    }

    /// Loses power: keeps what was synced, and a random choice of what was not.
    pub(crate) fn crash(&self) {
        let mut state = self.state();
        let state = &mut *state;
        let mut names = std::mem::take(&mut state.synced_names);
        for change in std::mem::take(&mut state.pending) {
            if state.random.once_in(2) {
                change.apply(&mut names);
            }
        }
        (state.names, state.synced_names) = (names.clone(), names);
        for file in &mut state.files {
            for write in std::mem::take(&mut file.pending) {
                match (state.random.below(3), write) {
                    (0, _) => {}
                    (1, Write::At(at, bytes)) => {
                        let kept = state.random.below(bytes.len() as u64 + 1) as usize;
                        Write::At(at, bytes[..kept].to_vec()).apply(&mut file.synced);
                    }
                    (_, write) => write.apply(&mut file.synced),
                }
            }
            file.content.clone_from(&file.synced);
        }
    }

    /// Flips a bit of a random file below `folder` that is not empty. Returns its path.
    pub(crate) fn flip(&self, folder: &Path) -> Option<(PathBuf, u64)> {
        let mut state = self.state();
        let state = &mut *state;
        let is_there = |(path, id): &(&PathBuf, &FileId)| {
            path.parent() == Some(folder) && !state.files[**id].content.is_empty()
        };
        let files: Vec<(PathBuf, FileId)> =
            state.names.iter().filter(is_there).map(|(path, id)| (path.clone(), *id)).collect();
        if files.is_empty() {
            return None;
        }
        let (path, id) = files[state.random.below(files.len() as u64) as usize].clone();
        let file = &mut state.files[id];
        let bit = state.random.below(file.content.len() as u64 * 8);
        file.content[(bit / 8) as usize] ^= 1 << (bit % 8);
        file.synced.clone_from(&file.content);
        file.pending.clear();
        Some((path, bit))
    }

    /// Flips a bit of a file back.
    pub(crate) fn flip_back(&self, path: &Path, bit: u64) {
        let mut state = self.state();
        if let Some(id) = state.names.get(path).copied() {
            let file = &mut state.files[id];
            file.content[(bit / 8) as usize] ^= 1 << (bit % 8);
            file.synced.clone_from(&file.content);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the disk")
    }
}

impl State {
    fn used(&self) -> u64 {
        self.names.values().map(|id| self.files[*id].content.len() as u64).sum()
    }

    fn find(&self, path: &Path) -> io::Result<FileId> {
        self.names.get(path).copied().ok_or_else(|| error(io::ErrorKind::NotFound))
    }

    /// Takes one of the changes that are left.
    fn spend(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => Err(error(io::ErrorKind::Other)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        self.spend()?;
        if self.random.once_in(self.failures.names) {
            return Err(error(io::ErrorKind::Other));
        }
        change.apply(&mut self.names);
        self.pending.push(change);
        Ok(())
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, FileId>) {
        match self {
            Self::Name(path, id) => drop(names.insert(path.clone(), *id)),
            Self::Remove(path) => drop(names.remove(path)),
            Self::Rename(from, to, id) => {
                if names.get(from) == Some(id) {
                    names.remove(from);
                }
                names.insert(to.clone(), *id);
            }
        }
    }

    fn is_in(&self, folder: &Path) -> bool {
        match self {
            Self::Name(path, _) | Self::Remove(path) | Self::Rename(_, path, _) => {
                path.parent() == Some(folder)
            }
        }
    }
}

impl Disk for SimulatedDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let state = self.state();
        let below = state.names.iter().filter(|(path, _)| path.parent() == Some(folder));
        let listed = below.filter_map(|(path, id)| {
            let name = path.file_name()?.to_str()?.to_owned();
            Some(Listed { name, bytes: state.files[*id].content.len() as u64 })
        });
        Ok(listed.collect())
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        match self.state().unmade.as_deref() == Some(folder) {
            true => Err(error(io::ErrorKind::StorageFull)),
            false => Ok(()),
        }
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        let state = &mut *state;
        state.spend()?;
        if state.random.once_in(state.failures.syncs) {
            return Err(error(io::ErrorKind::Other));
        }
        let (synced, rest) =
            std::mem::take(&mut state.pending).into_iter().partition(|c| c.is_in(folder));
        state.pending = rest;
        let synced: Vec<Change> = synced;
        synced.iter().for_each(|change| change.apply(&mut state.synced_names));
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        if state.names.contains_key(path) {
            return Err(error(io::ErrorKind::AlreadyExists));
        }
        let id = state.files.len();
        state.files.push(SimulatedFile::default());
        state.change(Change::Name(path.to_owned(), id))?;
        Ok(Box::new(OpenFile(self.0.clone(), id)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let id = self.state().find(path)?;
        Ok(Box::new(OpenFile(self.0.clone(), id)))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let id = state.find(from)?;
        state.change(Change::Rename(from.to_owned(), to.to_owned(), id))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.find(path)?;
        state.change(Change::Remove(path.to_owned()))
    }

    fn lock(&self, _: &Path) -> io::Result<Option<Lock>> {
        Ok(Some(Lock::default()))
    }
}

impl OpenFile {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the disk")
    }
}

impl DiskFile for OpenFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.state().files[self.1].content.len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let state = self.state();
        let content = &state.files[self.1].content;
        let at = at as usize;
        let found = content.get(at..at + bytes.len());
        bytes.copy_from_slice(found.ok_or_else(|| error(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut state = self.state();
        let state = &mut *state;
        state.spend()?;
        let is_failure = state.random.once_in(state.failures.writes);
        let is_full = state.used() + bytes.len() as u64 > state.space;
        let mut written = bytes.len();
        if is_failure || is_full {
            written = state.random.below(bytes.len() as u64 + 1) as usize;
        }
        let write = Write::At(at, bytes[..written].to_vec());
        let file = &mut state.files[self.1];
        write.apply(&mut file.content);
        file.pending.push(write);
        match (is_failure, is_full) {
            (true, _) => Err(error(io::ErrorKind::Other)),
            (_, true) => Err(error(io::ErrorKind::StorageFull)),
            _ => Ok(()),
        }
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        let mut state = self.state();
        let state = &mut *state;
        state.spend()?;
        if state.random.once_in(state.failures.writes) {
            return Err(error(io::ErrorKind::Other));
        }
        let file = &mut state.files[self.1];
        Write::Cut(length).apply(&mut file.content);
        file.pending.push(Write::Cut(length));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        let state = &mut *state;
        state.spend()?;
        let file = &mut state.files[self.1];
        if state.random.once_in(state.failures.syncs) {
            // The kernel marks these pages as clean, so no later sync writes them or reports them.
            for write in std::mem::take(&mut file.pending) {
                if state.random.once_in(2) {
                    write.apply(&mut file.synced);
                }
            }
            return Err(error(io::ErrorKind::Other));
        }
        // Not the content: what an earlier sync dropped stays unsynced.
        for write in std::mem::take(&mut file.pending) {
            write.apply(&mut file.synced);
        }
        Ok(())
    }
}
