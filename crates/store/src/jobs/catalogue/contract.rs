//! The trait of catalogues.

use std::collections::BTreeSet;
use std::io::Write;

use skopos_model::job::JobId;

use super::super::entry::JobEntry;
use super::error::Error;
use super::filter::{Filter, Visibility};
use super::page::{Page, PageRequest};
use super::row::JobRow;

/// The most entries, removals and segments of one change: twenty segments of 500 parts. A reader of the same database
/// waits at most for the memory of this many.
pub const MAX_CHANGE: usize = 10_000;

/// The most names of one answer of [`Catalogue::segments`].
pub const MAX_SEGMENTS: usize = 10_000;

/// The most jobs of one question of [`Catalogue::visible`]: more than an answer about the places of jobs has. The names of this
/// many are at most some megabytes of parameters.
pub const MAX_LOOKED_UP: usize = 10_000;

/// Checks the number of jobs that are looked up together.
///
/// # Errors
/// There are more than [`MAX_LOOKED_UP`].
pub fn check_looked_up(ids: &[JobId]) -> Result<(), Error> {
    let (what, count, most) = ("jobs to look up", ids.len(), MAX_LOOKED_UP);
    if count > most { Err(Error::Large { what, count, most }) } else { Ok(()) }
}

/// A job of a site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey {
    /// The site that has the job.
    pub site: String,
    /// The job.
    pub id: JobId,
}

/// A change of the catalogue, in the order in which it is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change<'c> {
    /// Jobs that are removed. One that is also among the entries gets that entry, even if it has fewer parts.
    pub removed: &'c [JobKey],
    /// Entries that are added, or replace those of their jobs unless they have fewer parts.
    pub entries: &'c [JobEntry],
    /// Segments that do not exist any more.
    pub removed_segments: &'c [String],
    /// Segments whose parts are in entries of this change or of earlier ones.
    pub segments: &'c [String],
}

/// The result of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Number of entries that were added or replaced others.
    pub written: u64,
    /// Number of entries that were not written, because the known one has more parts.
    pub older: u64,
    /// Number of jobs that were removed.
    pub removed: u64,
    /// Number of words by which the entries of the change are not found, because an entry has too many.
    pub unindexed_words: u64,
}

/// The catalogue of jobs.
///
/// Calls block. Any number of threads, and of programs on one database, may call at once.
pub trait Catalogue: Send + Sync {
    /// Makes a change in one transaction. It is durable when this returns.
    ///
    /// # Errors
    /// The change is too large, or the database refused it; then none of it is made.
    fn apply(&self, change: &Change<'_>) -> Result<Applied, Error>;

    /// Returns a page of the jobs that pass a filter, as rows.
    ///
    /// # Errors
    /// The question is out of bounds, or the database cannot be read.
    fn rows(&self, filter: &Filter, request: &PageRequest) -> Result<Page<JobRow>, Error>;

    /// Returns a page of the jobs that pass a filter, as entries.
    ///
    /// # Errors
    /// The question is out of bounds, or the database cannot be read.
    fn entries(&self, filter: &Filter, request: &PageRequest) -> Result<Page<JobEntry>, Error>;

    /// Returns the number of jobs that pass a filter.
    ///
    /// # Errors
    /// The filter is out of bounds, or the database cannot be read.
    fn count(&self, filter: &Filter) -> Result<u64, Error>;

    /// Returns those of some jobs of a site, at most [`MAX_LOOKED_UP`], that exist and may be seen. No entry is read, so this
    /// costs a small part of as many calls of [`get`](Self::get).
    ///
    /// # Errors
    /// There are too many jobs, or the database cannot be read.
    fn visible(
        &self,
        visibility: &Visibility,
        site: &str,
        ids: &[JobId],
    ) -> Result<BTreeSet<JobId>, Error>;

    /// Returns the names of the segments that come after a name, in the order of bytes; at most [`MAX_SEGMENTS`].
    ///
    /// # Errors
    /// The database cannot be read.
    fn segments(&self, after: &str) -> Result<Vec<String>, Error>;

    /// Writes the whole content in a canonical form: a line for each segment, and one for each entry in the order of
    /// site, job and generation.
    ///
    /// # Errors
    /// The database cannot be read, or `out` cannot be written.
    fn dump(&self, out: &mut dyn Write) -> Result<(), Error>;

    /// Returns the entry of a job, if it exists and may be seen.
    ///
    /// # Errors
    /// The database cannot be read.
    fn get(
        &self,
        visibility: &Visibility,
        site: &str,
        id: &JobId,
    ) -> Result<Option<JobEntry>, Error> {
        let filter = Filter {
            site: Some(site.to_owned()),
            job: Some(id.job().to_owned()),
            generation: Some(id.generation()),
            ..Filter::new(visibility.clone())
        };
        let request = PageRequest { most: 1, ..PageRequest::default() };
        Ok(self.entries(&filter, &request)?.items.pop())
    }

    /// Removes jobs, and returns the number of those that were there.
    ///
    /// # Errors
    /// The same as for [`apply`](Self::apply).
    fn remove(&self, jobs: &[JobKey]) -> Result<u64, Error> {
        let change = Change { removed: jobs, ..Change::default() };
        self.apply(&change).map(|applied| applied.removed)
    }
}

impl Change<'_> {
    /// Checks that the change is within its bounds.
    ///
    /// # Errors
    /// A list is too long.
    pub fn check(&self) -> Result<(), Error> {
        for (what, count) in [
            ("removed jobs", self.removed.len()),
            ("entries", self.entries.len()),
            ("removed segments", self.removed_segments.len()),
            ("segments", self.segments.len()),
        ] {
            if count > MAX_CHANGE {
                return Err(Error::Large { what, count, most: MAX_CHANGE });
            }
        }
        Ok(())
    }
}
