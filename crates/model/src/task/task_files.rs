//! The files of one task, as they are kept: a part of [`Files`] that is bounded.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Completeness, FileUse, Files, MAX_FILES_LISTED, Rank, Summary};

/// The most files that are kept of a job, those with the most bytes: as many as a report lists. The ranks of a parallel job
/// share them evenly, and each keeps at least one.
pub const MAX_FILE_ROWS: usize = MAX_FILES_LISTED;

/// The longest path: twice that of Linux, for bytes that are not text are replaced by longer ones.
const MAX_PATH_BYTES: usize = 8192;

/// The most entries of a histogram: as many as a number of 64 bits has powers of two, and one.
const MAX_SIZES: usize = 65;

/// The usage of files by a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFiles {
    /// The class of the task.
    pub class: String,
    /// The number of the rank, if the task is one of a parallel job.
    #[serde(default)]
    pub rank: Option<u32>,
    /// The mechanism that counted.
    pub method: String,
    /// The part of the task that the counts cover.
    pub completeness: Completeness,
    /// Fields of files that this mechanism does not count: their zeros have no meaning.
    #[serde(default)]
    pub not_counted: Vec<String>,
    /// The files with the most bytes, the greatest first: at most [`MAX_FILE_ROWS`].
    pub files: Vec<FileUse>,
    /// Number of files that are not in that list.
    pub files_left_out: u64,
    /// The sums over those files.
    pub left_out: FileUse,
}

/// The reason why the files of a task are refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilesError {
    /// The list is too long.
    #[error("a task has {0} files; at most {MAX_FILE_ROWS} are kept")]
    Many(usize),
    /// A path is too long.
    #[error("a path has {0} bytes; at most {MAX_PATH_BYTES} are allowed")]
    Path(usize),
    /// A histogram has too many entries.
    #[error("a histogram has {0} entries; at most {MAX_SIZES} are allowed")]
    Sizes(usize),
}

impl TaskFiles {
    /// Returns the `most` files of a task with the most bytes. The others are summed up and counted.
    pub fn new(summary: &Summary, files: &Files, most: usize) -> Self {
        let (kept, rest) = files.files.split_at(files.files.len().min(most));
        let mut left_out = FileUse { path: String::new(), ..files.left_out.clone() };
        rest.iter().for_each(|file| left_out.add(file));
        Self {
            class: summary.task.class.clone(),
            rank: summary.task.rank.as_ref().map(|rank| rank.rank),
            method: files.method.clone(),
            completeness: files.completeness,
            not_counted: files.not_counted.clone(),
            files: kept.to_vec(),
            files_left_out: files.files_left_out.saturating_add(rest.len() as u64),
            left_out,
        }
    }

    /// Returns the most files that a task keeps: its share of [`MAX_FILE_ROWS`] if it is a rank.
    pub fn most(rank: Option<&Rank>) -> usize {
        let ranks = rank.map_or(1, |rank| rank.size.max(1));
        (MAX_FILE_ROWS / usize::try_from(ranks).unwrap_or(MAX_FILE_ROWS)).max(1)
    }

    /// Checks that every list is within its bounds.
    ///
    /// # Errors
    /// There are too many files, or a path or a histogram is too long.
    pub fn check(&self) -> Result<(), FilesError> {
        if self.files.len() > MAX_FILE_ROWS {
            return Err(FilesError::Many(self.files.len()));
        }
        self.files.iter().chain([&self.left_out]).try_for_each(|file| {
            let sizes = file.read_sizes.len().max(file.write_sizes.len());
            match (file.path.len(), sizes) {
                (bytes, _) if bytes > MAX_PATH_BYTES => Err(FilesError::Path(bytes)),
                (_, entries) if entries > MAX_SIZES => Err(FilesError::Sizes(entries)),
                _ => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(files: Vec<FileUse>) -> TaskFiles {
        TaskFiles {
            class: "a".to_owned(),
            rank: None,
            method: "preload".to_owned(),
            completeness: Completeness::AtLeast,
            not_counted: Vec::new(),
            files,
            files_left_out: 0,
            left_out: FileUse::default(),
        }
    }

    #[test]
    fn a_rank_keeps_its_share_and_at_least_one_file() {
        let rank = |size| Rank { job: "7".to_owned(), rank: 0, size, launcher: "pmi".to_owned() };
        assert_eq!(TaskFiles::most(None), MAX_FILE_ROWS);
        assert_eq!(TaskFiles::most(Some(&rank(0))), MAX_FILE_ROWS);
        assert_eq!(TaskFiles::most(Some(&rank(4))), MAX_FILE_ROWS / 4);
        assert_eq!(TaskFiles::most(Some(&rank(1_000_000))), 1);
    }

    #[test]
    fn lists_out_of_bounds_are_refused() {
        let of = |path: usize, sizes: usize| FileUse {
            path: "p".repeat(path),
            write_sizes: vec![1; sizes],
            ..FileUse::default()
        };
        assert_eq!(kept(vec![of(4096, 24); MAX_FILE_ROWS]).check(), Ok(()));
        let many = kept(vec![of(1, 0); MAX_FILE_ROWS + 1]).check();
        assert_eq!(many, Err(FilesError::Many(MAX_FILE_ROWS + 1)));
        assert_eq!(kept(vec![of(8193, 0)]).check(), Err(FilesError::Path(8193)));
        assert_eq!(kept(vec![of(1, 66)]).check(), Err(FilesError::Sizes(66)));
    }
}
