//! Walks folders at intervals, and counts their files and the space that they take. A file with
//! several names counts once, a hole in a file not at all.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use skopos_model::task::Completeness;

use super::{Mechanism, Sample};
use crate::ledger::{Ledger, Offer};
use crate::sys::Pid;

/// The name in reports.
pub(crate) const NAME: &str = "tree";

/// The share of the time that walks may take is 1 / this number: 1 %.
const WALK_SHARE: u32 = 100;

/// The most files that are walked through for one sample: some seconds of work. The report says if
/// there are more.
const MAX_FILES: u64 = 2_000_000;

/// The time that a walk of the working folder takes of the start, of a sample and at most of the end.
const FIRST_STEP: Duration = Duration::from_millis(2);
const STEP: Duration = Duration::from_millis(5);
const LAST_STEP: Duration = Duration::from_millis(20);

/// Number of entries between two looks at the clock: some hundred microseconds.
const ENTRIES_AT_ONCE: usize = 64;

/// The unit of `st_blocks`, independent of the file system's block size.
const BLOCK_BYTES: u64 = 512;

pub(crate) struct Tree {
    folders: Vec<PathBuf>,
    again: Option<Instant>,
    files_max: u64,
    bytes_max: u64,
    is_cut: bool,
    last: Option<(u64, u64)>,
    /// Folders that no sample found: the task may create them later, or a name is mistyped.
    missing: Vec<PathBuf>,
    /// The walk of the working folder that is under way. It takes a little time at each sample, because
    /// no option asked for it, and the folder may be the root of a file server.
    walk: Option<Walk>,
    /// The folders were not named: the working folder is walked step by step.
    in_steps: bool,
    /// A walk came to its end.
    is_whole: bool,
}

impl Tree {
    pub(crate) fn new(folders: Vec<PathBuf>) -> Self {
        let missing = folders.clone();
        Self {
            folders,
            again: None,
            files_max: 0,
            bytes_max: 0,
            is_cut: false,
            last: None,
            missing,
            walk: None,
            in_steps: false,
            is_whole: false,
        }
    }

    /// Counts the files of the working folder, without crossing to other file systems.
    pub(crate) fn of_working_folder(folder: PathBuf) -> Self {
        Self { in_steps: true, ..Self::new(vec![folder]) }
    }

    /// Walks on for a short time. The counts change at the end of a walk only, except during the first.
    fn step(&mut self, time: Duration) {
        let begun = Instant::now();
        self.missing.retain(|folder| !folder.exists());
        let mut walk = self.walk.take().unwrap_or_else(|| Walk::new(&self.folders, true));
        let is_done = walk.advance(Some(begun + time));
        if is_done || !self.is_whole {
            self.files_max = self.files_max.max(walk.files);
            self.bytes_max = self.bytes_max.max(walk.bytes);
        }
        if is_done {
            self.is_cut |= walk.is_cut;
            self.is_whole = true;
            self.last = Some((walk.files, walk.bytes));
        } else {
            self.walk = Some(walk);
        }
        self.again = Some(Instant::now() + begun.elapsed() * WALK_SHARE);
    }

    fn update(&mut self) {
        let begun = Instant::now();
        self.missing.retain(|folder| !folder.exists());
        let mut walk = Walk::new(&self.folders, false);
        walk.advance(None);
        let Walk { files, bytes, is_cut, .. } = walk;
        self.is_whole = true;
        self.files_max = self.files_max.max(files);
        self.bytes_max = self.bytes_max.max(bytes);
        self.is_cut |= is_cut;
        self.last = Some((files, bytes));
        let pause: Duration = begun.elapsed() * WALK_SHARE;
        self.again = Some(Instant::now() + pause);
    }
}

/// A walk through folders, which can pause.
#[derive(Default)]
struct Walk {
    waiting: Vec<PathBuf>,
    /// The folder that is being read.
    open: Option<fs::ReadDir>,
    /// Files with several names, by device and inode.
    linked: HashSet<(u64, u64)>,
    /// The only device of which folders are entered; `None` enters all.
    device: Option<u64>,
    files: u64,
    bytes: u64,
    is_cut: bool,
}

impl Walk {
    fn new(folders: &[PathBuf], stays: bool) -> Self {
        let device_of = |folder: &PathBuf| fs::metadata(folder).ok().map(|about| about.dev());
        let device = folders.first().and_then(device_of).filter(|_| stays);
        Self { waiting: folders.to_vec(), device, ..Self::default() }
    }

    /// Walks on until the end, or until `until`. Returns true at the end.
    fn advance(&mut self, until: Option<Instant>) -> bool {
        while !self.is_cut {
            if until.is_some_and(|until| until <= Instant::now()) {
                return false;
            }
            let Some(folder) = &mut self.open else {
                let Some(next) = self.waiting.pop() else { return true };
                self.enter(&next);
                continue;
            };
            for _ in 0..ENTRIES_AT_ONCE {
                match folder.next() {
                    Some(Ok(entry)) => count(
                        &entry,
                        (&mut self.files, &mut self.bytes),
                        &mut self.linked,
                        &mut self.waiting,
                        self.device,
                    ),
                    // An entry that is gone or unreadable is not available to the task either.
                    Some(Err(_)) => {}
                    None => {
                        self.open = None;
                        break;
                    }
                }
            }
            self.is_cut = self.files >= MAX_FILES;
        }
        true
    }

    fn enter(&mut self, path: &Path) {
        // A named path may be a file.
        if let Some(file) = fs::metadata(path).ok().filter(fs::Metadata::is_file) {
            self.files += 1;
            self.bytes += file.blocks() * BLOCK_BYTES;
            return;
        }
        self.open = fs::read_dir(path).ok();
    }
}

/// Counts one entry of a folder.
fn count(
    entry: &fs::DirEntry,
    (files, bytes): (&mut u64, &mut u64),
    linked: &mut HashSet<(u64, u64)>,
    waiting: &mut Vec<PathBuf>,
    device: Option<u64>,
) {
    let Ok(metadata) = entry.metadata() else { return };
    if metadata.is_dir() {
        if device.is_none_or(|device| device == metadata.dev()) {
            waiting.push(entry.path());
        }
    } else if metadata.nlink() > 1 && !linked.insert((metadata.dev(), metadata.ino())) {
        return;
    }
    *files += 1;
    *bytes += metadata.blocks() * BLOCK_BYTES;
}

impl Mechanism for Tree {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn attach(&mut self, _root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        // The child waits at its gate.
        if self.in_steps {
            self.step(FIRST_STEP);
        } else {
            self.update();
        }
        Ok(())
    }

    fn sample(&mut self, now: &mut Sample, _ledger: &mut Ledger) {
        if self.again.is_none_or(|again| again <= Instant::now()) {
            let begun = Instant::now();
            if self.in_steps {
                self.step(STEP);
            } else {
                self.update();
            }
            now.paced += begun.elapsed();
        }
        now.files = self.last.map(|(files, _)| files);
        now.footprint_bytes = self.last.map(|(_, bytes)| bytes);
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        if self.in_steps {
            // A walk that began before the end may lack the last files.
            self.walk = None;
            self.step((ledger.elapsed() / WALK_SHARE).clamp(FIRST_STEP, LAST_STEP));
        } else {
            self.update();
        }
        let missing: Vec<String> = self.missing.iter().map(|f| f.display().to_string()).collect();
        let absent = missing.join(", ");
        if !self.in_steps {
            ledger.missing_folders = missing;
        }
        if self.missing.len() == self.folders.len() {
            for name in ["files", "footprint_bytes"] {
                ledger.offers.mark_unavailable(name, format!("never found: {absent}"));
            }
            return;
        }
        let is_part = self.is_cut || !self.is_whole;
        let completeness = if is_part { Completeness::AtLeast } else { Completeness::Sampled };
        let reason = match self.is_cut {
            _ if !self.is_whole => {
                "the working folder has more files than could be walked through; name folders with \
                 --watch"
                    .to_owned()
            }
            true => format!("there are more than {MAX_FILES} files; the others are not counted"),
            false => {
                "the largest sample; excludes files that came and went between two samples".into()
            }
        };
        let reason = match self.missing.is_empty() {
            true => reason,
            false => format!("{reason}; never found: {absent}"),
        };
        for (name, value) in [("files", self.files_max), ("footprint_bytes", self.bytes_max)] {
            let (value, reason) = (value as f64, Some(reason.clone()));
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound: None, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_two_names_counts_once_and_a_hole_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).expect("made");
        fs::write(at("a"), vec![1; 100_000]).expect("written");
        fs::hard_link(at("a"), at("sub/b")).expect("linked");
        std::os::unix::fs::symlink("nowhere", at("c")).expect("linked");
        fs::File::create(at("hole")).and_then(|f| f.set_len(1 << 30)).expect("made");
        let walk = |folders: &[PathBuf]| {
            let mut walk = Walk::new(folders, false);
            assert!(walk.advance(None));
            (walk.files, walk.bytes, walk.is_cut)
        };
        let (files, bytes, is_cut) = walk(&[folder.path().to_owned()]);
        assert_eq!((files, is_cut), (4, false), "sub, one of a and b, c, hole");
        assert!((100_000..300_000).contains(&bytes), "{bytes}");
        assert_eq!(walk(&[at("none")]), (0, 0, false));
        assert_eq!(walk(&[at("a")]).0, 1, "a named file");
    }

    #[test]
    fn a_walk_that_pauses_counts_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        for n in 0..300 {
            let inner = folder.path().join((n % 7).to_string());
            fs::create_dir_all(&inner).expect("made");
            fs::write(inner.join(n.to_string()), "x").expect("written");
        }
        let folders = [folder.path().to_owned()];
        let (mut whole, mut steps) = (Walk::new(&folders, false), Walk::new(&folders, true));
        assert!(whole.advance(None));
        let mut pauses = 0;
        while !steps.advance(Some(Instant::now() + Duration::from_micros(50))) {
            pauses += 1;
            assert!(pauses < 100_000, "it comes to its end");
        }
        assert_eq!((steps.files, steps.bytes), (whole.files, whole.bytes));
        assert_eq!(whole.files, 307);
    }
}
