//! fanotify: reports the files in the watched folders that the task opens or writes. It names the
//! process, and covers new folders and opens by `io_uring`. Needs administrator rights.
//!
//! The whole file system of a folder is marked, so that the task needs no mounts of its own, which
//! would differ from those of other processes. Events of other processes arrive too and are
//! ignored. An event of a process that is not known yet is kept until the process is reported.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;

use skopos_model::task::Completeness;

use super::reasons::append_counts;
use super::{Launch, Mechanism};
use crate::ledger::{Ledger, Offer};
use crate::sys::Pid;
use crate::sys::fanotify::{FileEvent, Notifier, file_system_of, path_of};

/// The name in reports.
pub(crate) const NAME: &str = "fanotify";

/// The most distinct files that are counted, and the most folders whose paths are kept: some 50 MB
/// of handles.
const MAX_FILES: usize = 200_000;

/// The most events that wait until their process is known. Most belong to other tasks; the oldest
/// are dropped first.
const MAX_WAITING: usize = 16_384;

/// The most reads at once, each of hundreds of events: other processes may cause events without
/// end.
const MAX_READS: usize = 256;

#[derive(Default)]
pub(crate) struct Fanotify {
    folders: Vec<PathBuf>,
    notifier: Option<Notifier>,
    /// An open folder of each file system, by the id of the file system.
    file_systems: Vec<([u8; 8], File)>,
    /// For each folder, whether its files count.
    counts: HashMap<Vec<u8>, bool>,
    opened: HashSet<Vec<u8>>,
    modified: HashSet<Vec<u8>>,
    waiting: Vec<FileEvent>,
    /// Number of times that the kernel lost events.
    overflows: u64,
    /// Number of events of processes that never became known as the task's.
    others: u64,
    /// Number of events in folders that were removed before their paths were read.
    in_removed_folders: u64,
    /// Number of events of files beyond the limit.
    beyond_limit: u64,
    /// Number of file systems in the folders that cannot be watched.
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

    /// Handles an event of a process of the task.
    fn handle(&mut self, event: FileEvent) {
        if self.is_in_folders(&event.folder) {
            let both =
                [(event.is_opened, &mut self.opened), (event.is_written, &mut self.modified)];
            for (_, files) in both.into_iter().filter(|(is_so, _)| *is_so) {
                if files.len() < MAX_FILES {
                    files.insert(event.file.clone());
                } else if !files.contains(&event.file) {
                    self.beyond_limit += 1;
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
            self.in_removed_folders += 1;
            return false;
        };
        let counts = self.folders.iter().any(|watched| path.starts_with(watched));
        if self.counts.len() < MAX_FILES {
            self.counts.insert(folder.to_vec(), counts);
        }
        counts
    }

    fn missing(&self) -> String {
        let mut text = "in the watched folders only".to_owned();
        let counts = [
            (self.overflows, "times the kernel's queue overflowed"),
            (self.in_removed_folders, "events were in folders that were removed at once"),
            (self.beyond_limit, "events exceeded the number of files that are counted"),
            (self.others, "events were of processes not known to belong to the task"),
            (self.unwatched, "file systems in them cannot be watched"),
        ];
        append_counts(&mut text, &counts);
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
                // A file system without handles, such as /proc, is left out and reported.
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
            waiting.partition(|event| ledger.ever_contained(event.process));
        known.into_iter().for_each(|event| self.handle(event));
        self.waiting = unknown;
        for _ in 0..MAX_READS {
            let events = notifier.next();
            if events.is_empty() {
                break;
            }
            for event in events {
                self.overflows += u64::from(event.is_cut);
                if ledger.ever_contained(event.process) {
                    self.handle(event);
                } else if event.process != own && !event.is_cut {
                    self.waiting.push(event);
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

/// Returns all mount points.
fn mounts() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let place = |line: &str| line.split(' ').nth(4).map(|place| unescape(place).into());
    text.lines().filter_map(place).collect()
}

/// Decodes the octal escapes of spaces and similar characters.
fn unescape(text: &str) -> String {
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
