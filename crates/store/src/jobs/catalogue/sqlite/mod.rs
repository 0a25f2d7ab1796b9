//! The catalogue in SQLite: a file, or memory.
//!
//! Read in this order: `schema` for the tables, `pool` for the connections, `apply` for changes, `dialect` and `read`
//! for questions.
//!
//! The file is in write-ahead mode with `synchronous=FULL`: a change is on disk when `apply` returns. One change is
//! made at a time; readers do not wait for it.

mod schema;
mod pool;
mod apply;
mod dialect;
mod read;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upgrade_tests;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use skopos_model::job::JobId;

use super::super::entry::JobEntry;
use super::contract::{Applied, Catalogue, Change, check_looked_up};
use super::error::Error;
use super::filter::{Filter, Visibility};
use super::page::{Page, PageRequest};
use super::row::JobRow;
use pool::Pool;

/// The catalogue in SQLite.
#[derive(Debug)]
pub struct SqliteCatalogue {
    pool: Pool,
}

impl SqliteCatalogue {
    /// Opens a catalogue; creates it, and its folder, if it does not exist.
    ///
    /// # Errors
    /// The file cannot be created or opened, is not a catalogue, or was written by a later version.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Pool::open(path).map(|pool| Self { pool })
    }

    /// Returns an empty catalogue in memory.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn in_memory() -> Result<Self, Error> {
        Pool::in_memory().map(|pool| Self { pool })
    }
}

impl Catalogue for SqliteCatalogue {
    fn apply(&self, change: &Change<'_>) -> Result<Applied, Error> {
        change.check()?;
        apply::apply(self.pool.place(), &mut self.pool.writer(), change)
    }

    fn rows(&self, filter: &Filter, request: &PageRequest) -> Result<Page<JobRow>, Error> {
        self.pool.read(|connection| read::rows(self.pool.place(), connection, filter, request))
    }

    fn entries(&self, filter: &Filter, request: &PageRequest) -> Result<Page<JobEntry>, Error> {
        self.pool.read(|connection| read::entries(self.pool.place(), connection, filter, request))
    }

    fn count(&self, filter: &Filter) -> Result<u64, Error> {
        self.pool.read(|connection| read::count(self.pool.place(), connection, filter))
    }

    fn visible(
        &self,
        visibility: &Visibility,
        site: &str,
        ids: &[JobId],
    ) -> Result<BTreeSet<JobId>, Error> {
        check_looked_up(ids)?;
        self.pool.read(|c| read::visible(self.pool.place(), c, (visibility, site), ids))
    }

    fn segments(&self, after: &str) -> Result<Vec<String>, Error> {
        self.pool.read(|connection| read::segments(self.pool.place(), connection, after))
    }

    fn dump(&self, out: &mut dyn Write) -> Result<(), Error> {
        self.pool.read(|connection| read::dump(self.pool.place(), connection, out))
    }
}
