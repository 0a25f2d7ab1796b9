//! The place of a catalogue: a file in the folder of jobs, or a database of PostgreSQL.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use skopos_store::jobs::catalogue::Error;
use skopos_store::jobs::{Catalogue, SqliteCatalogue};

use super::postgres::{PostgresCatalogue, PostgresUrl};

/// The name of the file in a folder of jobs.
const FILE: &str = "catalogue.sqlite";

/// Endings of the file and of those that SQLite keeps beside it.
const ENDINGS: [&str; 3] = ["", "-wal", "-shm"];

/// The place of a catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CataloguePlace {
    /// A file of SQLite.
    File(PathBuf),
    /// A database of PostgreSQL.
    Database(PostgresUrl),
}

impl CataloguePlace {
    /// Returns the place of the catalogue for the jobs in `folder`: a file there, if no database is configured.
    pub fn new(folder: &Path, database: Option<&PostgresUrl>) -> Self {
        match database {
            Some(url) => Self::Database(url.clone()),
            None => Self::File(folder.join(FILE)),
        }
    }

    /// Opens the catalogue. A file is made unless it exists; a database may be away, and then the calls fail.
    ///
    /// # Errors
    /// The file cannot be opened or is not a catalogue, or no thread can be started.
    pub fn open(&self) -> Result<Box<dyn Catalogue>, Error> {
        Ok(match self {
            Self::File(path) => Box::new(SqliteCatalogue::open(path)?),
            Self::Database(url) => Box::new(PostgresCatalogue::new(url)?),
        })
    }

    /// Returns true if nothing has to be made: the file exists, or the catalogue is in a database.
    pub fn exists(&self) -> bool {
        match self {
            Self::File(path) => path.exists(),
            Self::Database(_) => true,
        }
    }

    /// Returns true if the catalogue may be away while this machine works.
    pub fn is_database(&self) -> bool {
        matches!(self, Self::Database(_))
    }

    /// Removes the catalogue if it is a file, also a damaged one.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove_file(&self) -> io::Result<()> {
        let Self::File(path) = self else { return Ok(()) };
        for ending in ENDINGS {
            let mut path = path.clone().into_os_string();
            path.push(ending);
            match std::fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

impl fmt::Display for CataloguePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Database(url) => url.fmt(f),
        }
    }
}
