//! inotify: reports files that are opened in the watched folders. It does not tell the process, so
//! opens by other tasks count too. Opens in a new folder before it is watched are missed.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use skopos_model::task::Completeness;

use super::{Launch, Mechanism};
use crate::ledger::{Ledger, Offer};

/// The name in reports.
pub(crate) const NAME: &str = "inotify";

/// The most folders that are watched: the kernel's default limit of a user is at least this.
const MAX_FOLDERS: usize = 8192;

/// The most distinct files that are counted: some 20 MB of names.
const MAX_FILES: usize = 200_000;

/// The most events that are read at once. A busy folder may produce events without end.
const MAX_AT_ONCE: usize = 65_536;

pub(crate) struct Inotify {
    folders: Vec<PathBuf>,
    watcher: Option<OwnedFd>,
    watched: HashMap<i32, PathBuf>,
    opened: HashSet<(i32, Vec<u8>)>,
    /// Events were lost, or there were too many files or folders.
    is_cut: bool,
}

impl Inotify {
    pub(crate) fn new(folders: Vec<PathBuf>) -> Self {
        let (watched, opened) = (HashMap::new(), HashSet::new());
        Self { folders, watcher: None, watched, opened, is_cut: false }
    }

    /// Watches a folder and its subfolders.
    fn watch(&mut self, folder: &Path) -> io::Result<()> {
        let Some(watcher) = &self.watcher else { return Ok(()) };
        let mut waiting = vec![folder.to_owned()];
        while let Some(folder) = waiting.pop() {
            if self.watched.len() == MAX_FOLDERS {
                self.is_cut = true;
                return Ok(());
            }
            let wanted = WatchFlags::OPEN | WatchFlags::CREATE | WatchFlags::ONLYDIR;
            let watch = add_watch(watcher, &folder, wanted)?;
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    waiting.push(entry.path());
                }
            }
            self.watched.insert(watch, folder);
        }
        Ok(())
    }

    fn handle(&mut self, watch: i32, flags: ReadFlags, name: Option<&[u8]>) {
        self.is_cut |= flags.contains(ReadFlags::QUEUE_OVERFLOW);
        let Some(name) = name else { return };
        if flags.contains(ReadFlags::ISDIR) {
            let parent = self.watched.get(&watch).filter(|_| flags.contains(ReadFlags::CREATE));
            if let Some(folder) = parent.map(|parent| parent.join(OsStr::from_bytes(name))) {
                // This fails if the folder is gone, and then there is nothing to watch.
                let _ = self.watch(&folder);
            }
        } else if flags.contains(ReadFlags::OPEN) {
            if self.opened.len() < MAX_FILES {
                self.opened.insert((watch, name.to_vec()));
            } else {
                self.is_cut = true;
            }
        }
    }
}

impl Mechanism for Inotify {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        self.watcher = Some(init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        for folder in std::mem::take(&mut self.folders) {
            self.watch(&folder)
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", folder.display())))?;
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watcher.as_ref().map(|watcher| watcher.as_fd())
    }

    fn readable(&mut self, _ledger: &mut Ledger) {
        let Some(watcher) = self.watcher.take() else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Vec::new();
        let mut reader = Reader::new(&watcher, &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| name.to_bytes().to_vec());
            events.push((event.wd(), event.events(), name));
            if events.len() == MAX_AT_ONCE {
                break;
            }
        }
        self.watcher = Some(watcher);
        for (watch, flags, name) in events {
            self.handle(watch, flags, name.as_deref());
        }
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        self.watcher = None;
        let reason = match self.is_cut {
            true => "some events, files or folders exceeded the limits and are missing",
            false => "in the watched folders only; includes files that other tasks opened",
        };
        let (value, reason) = (self.opened.len() as f64, Some(reason.to_owned()));
        let completeness = Completeness::AtLeast;
        let offer = Offer { method: NAME, value, completeness, error_bound: None, reason };
        ledger.offers.add("opened_files", offer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_files_count_once_and_folders_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).expect("made");
        fs::write(at("unopened"), "x").expect("written");
        let (mut inotify, mut ledger) = (Inotify::new(vec![folder.path().into()]), Ledger::new());
        inotify.prepare(&mut Launch::default()).expect("it can be watched");
        for name in ["a", "a", "sub/b"] {
            fs::write(at(name), "x").expect("written");
        }
        fs::create_dir(at("new")).expect("made");
        inotify.readable(&mut ledger);
        fs::write(at("new/c"), "x").expect("written");
        fs::write(at("new/d"), "x").expect("written");
        inotify.readable(&mut ledger);
        inotify.finish(&mut ledger);
        let reading = ledger.offers.best("opened_files", "");
        assert_eq!((reading.value, reading.completeness), (Some(4.0), Completeness::AtLeast));
        assert!(Inotify::new(vec![at("none")]).prepare(&mut Launch::default()).is_err());
    }
}
