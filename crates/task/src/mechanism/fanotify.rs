//! fanotify: which files in the watched folders the task opens, and which it writes. It tells the
//! process, sees new folders and what `io_uring` opens, and needs an administrator.
//!
//! What is marked is the file system of a folder, so that the task needs no mounts of its own, which
//! would not be those of others any more. Events of other processes come too, and are left alone. One
//! of a process that nobody has told of yet is kept until somebody does.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;

use skopos_model::task::Completeness;

use super::{Launch, Mechanism};
use crate::ledger::{Ledger, Offer};
use crate::sys::Pid;
use crate::sys::fanotify::{FileEvent, Notifier, file_system_of, path_of};

/// The name in reports.
pub(crate) const NAME: &str = "fanotify";

/// The most files that are told apart, and the most folders whose place is kept: some 50 MB of handles.
const MAX_FILES: usize = 200_000;

/// Events that wait until it is known whose they are. Most are of other tasks: those of processes that
/// asked longest ago go first.
const MAX_WAITING: usize = 16_384;

/// Reads at once, each of hundreds of events: others may have no end of them.
const MAX_READS: usize = 256;

#[derive(Default)]
pub(crate) struct Fanotify {
    folders: Vec<PathBuf>,
    notifier: Option<Notifier>,
    /// A folder of each file system, by its id.
    file_systems: Vec<([u8; 8], File)>,
    /// Whether what is in a folder counts.
    counts: HashMap<Vec<u8>, bool>,
    opened: HashSet<Vec<u8>>,
    modified: HashSet<Vec<u8>>,
    waiting: Vec<FileEvent>,
    /// Times at which the kernel lost events.
    overflows: u64,
    /// Events of processes of which nobody told that they are the task's.
    others: u64,
    /// Files whose folder was gone before anybody could ask where it was.
    homeless: u64,
    /// Files that found no room.
    beyond: u64,
    /// File systems in the folders that cannot be watched.
    unwatched: u64,
}

impl Fanotify {
    pub(crate) fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders, ..Self::default() }
    }

    fn watch(&mut self, notifier: &Notifier, place: &PathBuf) -> io::Result<()> {
        let folder = File::open(place)?;
        let id = file_system_of(folder.as_fd())?;
        if !self.file_systems.iter().any(|(other, _)| *other == id) {
            notifier.watch(folder.as_fd())?;
            self.file_systems.push((id, folder));
        }
        Ok(())
    }

    /// One of a process of the task.
    fn happened(&mut self, told: FileEvent) {
        if self.is_in_folders(&told.folder) {
            let both = [(told.is_opened, &mut self.opened), (told.is_written, &mut self.modified)];
            for (_, files) in both.into_iter().filter(|(is_so, _)| *is_so) {
                if files.len() < MAX_FILES {
                    files.insert(told.file.clone());
                } else if !files.contains(&told.file) {
                    self.beyond += 1;
                }
            }
        }
    }

    fn is_in_folders(&mut self, folder: &[u8]) -> bool {
        if let Some(counts) = self.counts.get(folder) {
            return *counts;
        }
        let on = self.file_systems.iter().find(|(id, _)| folder.starts_with(id));
        let Some(Ok(path)) = on.map(|(_, on)| path_of(folder, on.as_fd())) else {
            self.homeless += 1;
            return false;
        };
        let counts = self.folders.iter().any(|watched| path.starts_with(watched));
        if self.counts.len() < MAX_FILES {
            self.counts.insert(folder.to_vec(), counts);
        }
        counts
    }

    fn missing(&self) -> String {
        let mut text = "in the watched folders alone".to_owned();
        for (count, what) in [
            (self.overflows, "times more happened than the kernel could keep"),
            (self.homeless, "events were in folders that were gone at once"),
            (self.beyond, "events of files found no room"),
            (self.others, "events were of processes that are not known to be the task's"),
            (self.unwatched, "file systems in them cannot be watched"),
        ] {
            if count > 0 {
                text += &format!("; {count} {what}");
            }
        }
        text
    }
}

impl Mechanism for Fanotify {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        let notifier = Notifier::new()?;
        let named = |folder: &PathBuf, e: io::Error| {
            io::Error::new(e.kind(), format!("{}: {e}", folder.display()))
        };
        let canonical = |folder: PathBuf| fs::canonicalize(&folder).map_err(|e| named(&folder, e));
        let folders = std::mem::take(&mut self.folders).into_iter().map(canonical);
        self.folders = folders.collect::<io::Result<_>>()?;
        for folder in self.folders.clone() {
            self.watch(&notifier, &folder).map_err(|e| named(&folder, e))?;
        }
        for place in mounts() {
            if self.folders.iter().any(|folder| place.starts_with(folder) && place != *folder) {
                // What has no handles, such as /proc, is left out and said.
                self.unwatched += u64::from(self.watch(&notifier, &place).is_err());
            }
        }
        self.notifier = Some(notifier);
        Ok(())
    }

    fn attach(&mut self, _root: Pid, ledger: &mut Ledger) -> io::Result<()> {
        ledger.keep_exited_pids();
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.notifier.as_ref().map(Notifier::descriptor)
    }

    fn readable(&mut self, ledger: &mut Ledger) {
        let Some(mut notifier) = self.notifier.take() else { return };
        let own = std::process::id() as Pid;
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (known, unknown): (Vec<_>, Vec<_>) =
            waiting.partition(|told| ledger.ever_contained(told.process));
        known.into_iter().for_each(|told| self.happened(told));
        self.waiting = unknown;
        for _ in 0..MAX_READS {
            let came = notifier.next();
            if came.is_empty() {
                break;
            }
            for told in came {
                self.overflows += u64::from(told.is_cut);
                if ledger.ever_contained(told.process) {
                    self.happened(told);
                } else if told.process != own && !told.is_cut {
                    self.waiting.push(told);
                }
            }
        }
        let too_many = self.waiting.len().saturating_sub(MAX_WAITING);
        self.others += self.waiting.drain(..too_many).len() as u64;
        self.notifier = Some(notifier);
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        self.readable(ledger);
        self.notifier = None;
        self.others += self.waiting.len() as u64;
        let reason = self.missing();
        for (name, files) in [("opened_files", &self.opened), ("modified_files", &self.modified)] {
            let (value, reason) = (files.len() as f64, Some(reason.clone()));
            let completeness = Completeness::AtLeast;
            let offer = Offer { method: NAME, value, completeness, error_bound: None, reason };
            ledger.offers.add(name, offer);
        }
    }
}

/// All places where something is mounted.
fn mounts() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let place = |line: &str| line.split(' ').nth(4).map(|place| unescaped(place).into());
    text.lines().filter_map(place).collect()
}

/// Spaces and the like are written as three octal digits.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                whole.push(char::from(byte));
                whole.push_str(part.get(3..).unwrap_or_default());
            }
            None => whole.push_str(part),
        }
    }
    whole
}
