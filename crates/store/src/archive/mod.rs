//! The archive: one SQLite file with the reports of many tasks.
//!
//! Read in this order: `schema` says what is in the file and how an older one becomes a newer one;
//! `import` puts reports in; [`Conditions`] select tasks; this file answers questions about them, and
//! `rows` shows them as they are.
//!
//! The file is in write-ahead mode: readers and one writer do not wait for each other, a second writer
//! waits. `synchronous=NORMAL`: what was imported survives the end of any process at any time; a loss of
//! power may take the last batches, whole, and never damages the file.

mod schema;
mod import;
mod condition;
mod rows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, params_from_iter};
use skopos_model::task::{Resource, Summary};

pub use condition::{ConditionError, Conditions, FIELDS};
pub use import::{Foreign, Imported, Refused};
pub use rows::{Cell, Field, Only};

use crate::estimate::Record;
use crate::stats::Distribution;

/// How long a writer waits for another one. A batch takes well below a second; ten of them may wait.
const BUSY: Duration = Duration::from_secs(60);

/// How long a reader waits, who is hardly ever made to: for as long as somebody takes away the log that
/// writers leave.
const READ_BUSY: Duration = Duration::from_secs(2);

/// Why the archive could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such file.
    #[error("there is no archive {0}")]
    Missing(PathBuf),
    /// It is not an archive of tasks.
    #[error("{0} is no archive of tasks")]
    NotAnArchive(PathBuf),
    /// A later version of Skopos has written it.
    #[error("{path} has version {found} of the archive's format, and this program knows {known}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest that is known here.
        known: i64,
    },
    /// SQLite says no.
    #[error("{path}: {doing}")]
    Sql {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What it said.
        #[source]
        source: rusqlite::Error,
    },
}

/// An open archive.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    connection: Connection,
}

/// One class in one line.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its tasks.
    pub tasks: u64,
    /// The hosts that they ran on.
    pub hosts: u64,
    /// When the first began and the last ended, in seconds of UNIX time.
    pub from_seconds: f64,
    /// See `from_seconds`.
    pub to_seconds: f64,
}

/// What the tasks of a class used of one resource on one host.
#[derive(Clone, Debug, Default)]
pub struct Used {
    /// The values.
    pub distribution: Distribution,
    /// Values among them that are lower bounds: what was measured does not cover the whole task.
    pub lower_bounds: u64,
    /// Tasks of which this resource is not known.
    pub unknown: u64,
}

impl Used {
    /// Adds all that `other` was given.
    pub fn merge(&mut self, other: &Self) {
        self.distribution.merge(&other.distribution);
        self.lower_bounds += other.lower_bounds;
        self.unknown += other.unknown;
    }
}

/// Records for an estimate.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// One for each task that returned 0.
    pub records: Vec<Record>,
    /// Records among them whose value is a lower bound.
    pub lower_bounds: u64,
    /// Tasks that did not return 0, or were ended for a limit: what they would have needed is unknown.
    pub unfinished: u64,
    /// Tasks of which this resource or the time is not known.
    pub unknown: u64,
}

impl Archive {
    /// Opens an archive to write to, and makes it with the folder that it is in if it is not there.
    ///
    /// # Errors
    /// The file cannot be made or opened, is something else, or was written by a later version.
    pub fn create(path: &Path) -> Result<Self, Error> {
        if let Some(folder) = path.parent() {
            // If it fails, the open says so.
            let _ = std::fs::create_dir_all(folder);
        }
        let connection = Connection::open(path).map_err(|e| sql(path, "it cannot be opened", e))?;
        Self::prepared(path, connection)
    }

    /// Opens an archive that is there. Nothing is made.
    ///
    /// # Errors
    /// As [`Self::create`], or the file is not there.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            return Err(Error::Missing(path.to_owned()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)
            .map_err(|e| sql(path, "it cannot be opened", e))?;
        Self::prepared(path, connection)
    }

    /// Opens an archive that is there, to be read and never written to.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            return Err(Error::Missing(path.to_owned()));
        }
        let failed = |e| sql(path, "it cannot be opened", e);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(READ_BUSY).map_err(failed)?;
        match schema::is_current(path, &connection)? {
            true => Ok(Self { path: path.to_owned(), connection }),
            // An earlier version of Skopos wrote it, and it has to be brought up to date first.
            false => Self::open(path),
        }
    }

    fn prepared(path: &Path, mut connection: Connection) -> Result<Self, Error> {
        connection.busy_timeout(BUSY).map_err(|e| sql(path, "it cannot be opened", e))?;
        schema::prepare(path, &mut connection)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The classes in the order of their names.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn classes(&self, conditions: &Conditions) -> Result<Vec<Class>, Error> {
        let (clause, values) = conditions.sql();
        let query = format!(
            "SELECT class, count(*), count(DISTINCT host), min(start_seconds), max(end_seconds)
             FROM task WHERE {clause} GROUP BY class ORDER BY class"
        );
        let doing = "the classes cannot be read";
        let read = || {
            let mut statement = self.connection.prepare(&query)?;
            let rows = statement.query_map(params_from_iter(values), |row| {
                Ok(Class {
                    name: row.get(0)?,
                    tasks: row.get(1)?,
                    hosts: row.get(2)?,
                    from_seconds: row.get(3)?,
                    to_seconds: row.get(4)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|e| sql(&self.path, doing, e))
    }

    /// What the tasks of a class used of each resource, by host and resource. Those of all hosts come
    /// by merging.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn used(
        &self,
        class: &str,
        conditions: &Conditions,
    ) -> Result<BTreeMap<String, BTreeMap<String, Used>>, Error> {
        let (clause, mut values) = conditions.sql();
        values.push(class.to_owned().into());
        let query = format!(
            "SELECT host, resource.name, value, is_whole FROM task
             JOIN reading ON reading.task = task.id JOIN resource ON resource.id = reading.resource
             WHERE {clause} AND class = ?"
        );
        let mut hosts: BTreeMap<String, BTreeMap<String, Used>> = BTreeMap::new();
        let read = || {
            let mut statement = self.connection.prepare(&query)?;
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                let (host, name): (String, String) = (row.get(0)?, row.get(1)?);
                let used = hosts.entry(host).or_default().entry(name).or_default();
                match row.get::<_, Option<f64>>(2)? {
                    Some(value) if used.distribution.add(value) => {
                        used.lower_bounds += u64::from(!row.get::<_, bool>(3)?);
                    }
                    _ => used.unknown += 1,
                }
            }
            Ok(())
        };
        read().map_err(|e| sql(&self.path, "the values cannot be read", e))?;
        Ok(hosts)
    }

    /// What the tasks of a class used of one resource and for how long.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn records(
        &self,
        class: &str,
        resource: &Resource,
        conditions: &Conditions,
    ) -> Result<Records, Error> {
        let (clause, mut values) = conditions.sql();
        let name: rusqlite::types::Value = resource.name.to_owned().into();
        values.insert(0, name);
        values.push(class.to_owned().into());
        let query = format!(
            "SELECT value, is_whole, end_seconds - start_seconds, exit_type = 'normal' AND status = 0
             FROM task LEFT JOIN reading ON reading.task = task.id
             AND reading.resource = (SELECT id FROM resource WHERE name = ?)
             WHERE {clause} AND class = ?"
        );
        let mut found = Records::default();
        let read = || {
            let mut statement = self.connection.prepare(&query)?;
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                let value: Option<f64> = row.get(0)?;
                let seconds: f64 = row.get(2)?;
                let is_finished: Option<bool> = row.get(3)?;
                let seconds = if resource.unit == "seconds" { 1.0 } else { seconds };
                match value.filter(|_| seconds > 0.0) {
                    _ if is_finished != Some(true) => found.unfinished += 1,
                    Some(value) => {
                        found.records.push(Record { value, seconds });
                        found.lower_bounds +=
                            u64::from(row.get::<_, Option<bool>>(1)? != Some(true));
                    }
                    None => found.unknown += 1,
                }
            }
            Ok(())
        };
        read().map_err(|e| sql(&self.path, "the values cannot be read", e))?;
        Ok(found)
    }

    /// Hands over each report, as the JSON document that it came as, in the order of import. `each`
    /// returns false to stop.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn export(
        &self,
        conditions: &Conditions,
        mut each: impl FnMut(&str) -> bool,
    ) -> Result<u64, Error> {
        let (clause, values) = conditions.sql();
        let query = format!("SELECT document FROM task WHERE {clause} ORDER BY id");
        let mut exported = 0;
        let read = || {
            let mut statement = self.connection.prepare(&query)?;
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                exported += 1;
                if !each(&row.get::<_, String>(0)?) {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|e| sql(&self.path, "the reports cannot be read", e))?;
        Ok(exported)
    }

    /// Adds one report. False if it was there.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, summary: &Summary) -> Result<bool, Error> {
        import::add(self, summary)
    }

    /// Checks the whole file, `PRAGMA integrity_check`: empty if it is whole.
    ///
    /// # Errors
    /// The file cannot be read at all.
    pub fn damage(&self) -> Result<Vec<String>, Error> {
        let read = || {
            let mut statement = self.connection.prepare("PRAGMA integrity_check")?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            let rows: rusqlite::Result<Vec<String>> = rows.collect();
            rows.map(|rows| rows.into_iter().filter(|row| row != "ok").collect())
        };
        read().map_err(|e| sql(&self.path, "it cannot be checked", e))
    }
}

fn sql(path: &Path, doing: &'static str, source: rusqlite::Error) -> Error {
    Error::Sql { path: path.to_owned(), doing, source }
}
