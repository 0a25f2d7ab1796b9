//! Walks folders at intervals, and counts their files and the space that they take. A file with
//! several names counts once, a hole in a file not at all.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
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
        }
    }

    fn update(&mut self) {
        let begun = Instant::now();
        self.missing.retain(|folder| !folder.exists());
        let (files, bytes, is_cut) = walk(&self.folders);
        self.files_max = self.files_max.max(files);
        self.bytes_max = self.bytes_max.max(bytes);
        self.is_cut |= is_cut;
        self.last = Some((files, bytes));
        let pause: Duration = begun.elapsed() * WALK_SHARE;
        self.again = Some(Instant::now() + pause);
    }
}

/// Returns the number of files, their space, and whether the walk was cut short.
fn walk(folders: &[PathBuf]) -> (u64, u64, bool) {
    let (mut files, mut bytes) = (0, 0);
    // Files with several names, by device and inode.
    let mut linked = HashSet::new();
    let mut waiting: Vec<PathBuf> = folders.to_vec();
    while let Some(folder) = waiting.pop() {
        // A named path may be a file.
        if let Some(file) = fs::metadata(&folder).ok().filter(fs::Metadata::is_file) {
            files += 1;
            bytes += file.blocks() * BLOCK_BYTES;
            continue;
        }
        // An entry that is gone or unreadable is not available to the task either.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else if metadata.nlink() > 1 && !linked.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            files += 1;
            bytes += metadata.blocks() * BLOCK_BYTES;
            if files == MAX_FILES {
                return (files, bytes, true);
            }
        }
    }
    (files, bytes, false)
}

impl Mechanism for Tree {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn attach(&mut self, _root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        self.update();
        Ok(())
    }

    fn sample(&mut self, now: &mut Sample, _ledger: &mut Ledger) {
        if self.again.is_none_or(|again| again <= Instant::now()) {
            let begun = Instant::now();
            self.update();
            now.paced += begun.elapsed();
        }
        now.files = self.last.map(|(files, _)| files);
        now.footprint_bytes = self.last.map(|(_, bytes)| bytes);
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        self.update();
        ledger.missing_folders = self.missing.iter().map(|f| f.display().to_string()).collect();
        let absent = ledger.missing_folders.join(", ");
        if self.missing.len() == self.folders.len() {
            for name in ["files", "footprint_bytes"] {
                ledger.offers.mark_unavailable(name, format!("never found: {absent}"));
            }
            return;
        }
        let completeness = if self.is_cut { Completeness::AtLeast } else { Completeness::Sampled };
        let reason = match self.is_cut {
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
        let (files, bytes, is_cut) = walk(&[folder.path().to_owned()]);
        assert_eq!((files, is_cut), (4, false), "sub, one of a and b, c, hole");
        assert!((100_000..300_000).contains(&bytes), "{bytes}");
        assert_eq!(walk(&[at("none")]), (0, 0, false));
        assert_eq!(walk(&[at("a")]).0, 1, "a named file");
    }
}
