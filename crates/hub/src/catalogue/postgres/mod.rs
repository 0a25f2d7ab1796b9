//! The catalogue in PostgreSQL: one for several hubs.
//!
//! Read in this order: `url` for the databases that it connects to, `tls`, `connection` and `pool` for the
//! connections, `schema` for the tables, `text` for texts that PostgreSQL cannot store as they are, `apply` for changes, `dialect` and `read` for
//! questions.
//!
//! Any number of hubs write at once: an entry is written by a statement that compares the parts in the database.

mod url;
mod tls;
mod connection;
mod schema;
mod pool;
mod text;
mod apply;
mod dialect;
mod read;
#[cfg(test)]
pub(crate) mod server;
#[cfg(test)]
#[path = "../../../../store/src/rounds.rs"]
mod rounds;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
#[cfg(test)]
mod upgrade_tests;

use std::collections::BTreeSet;
use std::io::Write;

use skopos_model::job::JobId;
use skopos_store::jobs::catalogue::{Error, check_looked_up};
use skopos_store::jobs::{
    Applied, Catalogue, Change, Filter, JobEntry, JobRow, Page, PageRequest, Visibility,
};

use pool::Pool;
pub use url::{PostgresUrl, UrlError};

/// The most attempts of a change that the server ended because it and another hub's waited for each other. One of the two
/// always goes on.
const MAX_ATTEMPTS: usize = 8;

/// The catalogue in PostgreSQL.
///
/// A call fails if the server is away; the next call connects again.
#[derive(Debug)]
pub struct PostgresCatalogue {
    pool: Pool,
}

impl PostgresCatalogue {
    /// Returns the catalogue in a database. The first call that reaches the server makes the tables, if they are not there.
    ///
    /// # Errors
    /// No thread can be started, or the certificate of the server's authority cannot be read.
    pub fn new(place: &PostgresUrl) -> Result<Self, Error> {
        Pool::new(place).map(|pool| Self { pool })
    }
}

impl Catalogue for PostgresCatalogue {
    fn apply(&self, change: &Change<'_>) -> Result<Applied, Error> {
        change.check()?;
        let rounds = apply::rounds(change);
        let mut attempts = 1;
        loop {
            let applied = self.pool.run(async |c| apply::apply(c, change, &rounds).await);
            match applied {
                Err(e) if attempts < MAX_ATTEMPTS && apply::is_deadlock(&e) => attempts += 1,
                applied => return applied,
            }
        }
    }

    fn rows(&self, filter: &Filter, request: &PageRequest) -> Result<Page<JobRow>, Error> {
        self.pool.run(async |connection| read::rows(connection, filter, request).await)
    }

    fn entries(&self, filter: &Filter, request: &PageRequest) -> Result<Page<JobEntry>, Error> {
        self.pool.run(async |connection| read::entries(connection, filter, request).await)
    }

    fn count(&self, filter: &Filter) -> Result<u64, Error> {
        self.pool.run(async |connection| read::count(connection, filter).await)
    }

    fn visible(
        &self,
        visibility: &Visibility,
        site: &str,
        ids: &[JobId],
    ) -> Result<BTreeSet<JobId>, Error> {
        check_looked_up(ids)?;
        self.pool.run(async |c| read::visible(c, (visibility, site), ids).await)
    }

    fn segments(&self, after: &str) -> Result<Vec<String>, Error> {
        self.pool.run(async |connection| read::segments(connection, after).await)
    }

    fn dump(&self, out: &mut dyn Write) -> Result<(), Error> {
        self.pool.run_here(async |connection| read::dump(connection, out).await)
    }
}
