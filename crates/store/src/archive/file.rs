use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Row, params_from_iter};

use super::error::{Error, sql_error};
use super::schema;
use crate::sqlite::READ_TIMEOUT;

/// An open archive.
#[derive(Debug)]
pub struct Archive {
    pub(super) path: PathBuf,
    pub(super) connection: Connection,
}

impl Archive {
    /// Opens an archive for writing; creates it, and its folder, if it does not exist.
    ///
    /// # Errors
    /// The file cannot be created or opened, is not an archive, or was written by a later version.
    pub fn create(path: &Path) -> Result<Self, Error> {
        if let Some(folder) = path.parent() {
            // If this fails, `open` reports the error.
            let _ = std::fs::create_dir_all(folder);
        }
        let connection = Connection::open(path).map_err(|e| cannot_open(path, e))?;
        Self::prepared(path, connection)
    }

    /// Opens an existing archive for writing. Creates nothing.
    ///
    /// # Errors
    /// The errors of [`Self::create`], or the file does not exist.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let connection = open_existing(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        Self::prepared(path, connection)
    }

    /// Opens an existing archive for reading.
    ///
    /// # Errors
    /// The same as for [`Self::open`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let connection = open_existing(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(READ_TIMEOUT).map_err(|e| cannot_open(path, e))?;
        match schema::is_current(path, &connection)? {
            true => Ok(Self { path: path.to_owned(), connection }),
            // An earlier version of Skopos wrote the file, so it must be migrated first.
            false => Self::open(path),
        }
    }

    /// Returns an empty archive in memory.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn in_memory() -> Result<Self, Error> {
        let path = Path::new("memory");
        let connection = Connection::open_in_memory().map_err(|e| cannot_open(path, e))?;
        Self::prepared(path, connection)
    }

    fn prepared(path: &Path, mut connection: Connection) -> Result<Self, Error> {
        schema::prepare(path, &mut connection)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Runs a query, and passes its rows to `each` until that returns false. `doing` names the action in
    /// an error.
    pub(super) fn for_each_row(
        &self,
        query: &str,
        values: Vec<Value>,
        doing: &'static str,
        mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>,
    ) -> Result<(), Error> {
        let read = || {
            let mut statement = self.connection.prepare_cached(query)?;
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                if !each(row)? {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|e| sql_error(&self.path, doing, e))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn open_existing(path: &Path, access: OpenFlags) -> Result<Connection, Error> {
    if !path.exists() {
        return Err(Error::Missing(path.to_owned()));
    }
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|e| cannot_open(path, e))
}

fn cannot_open(path: &Path, source: rusqlite::Error) -> Error {
    sql_error(path, "it cannot be opened", source)
}
