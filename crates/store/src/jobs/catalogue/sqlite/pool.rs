//! The connections of a catalogue: one that writes, and some that read.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OpenFlags};

use super::super::error::Error;
use super::schema;
use crate::sqlite::READ_TIMEOUT;

/// The most connections that read at a time; further readers wait. More than the cores of a hub that answers in
/// milliseconds gain nothing.
const MAX_READERS: usize = 8;

/// Prepared statements of each connection: some tens of forms of questions, and those of changes.
const STATEMENTS: usize = 64;

/// Memory for pages, in KiB: the inner pages and the last leaves of the indexes of a million jobs.
const WRITER_CACHE_KIB: i64 = 64 * 1024;
const READER_CACHE_KIB: i64 = 8 * 1024;

/// Pages of the write-ahead log after which it is copied into the file: 128 MB. Each change writes to the same pages of
/// the indexes by node and user, some thousands, so that fewer copies write less.
const CHECKPOINT_PAGES: i64 = 32_000;

/// The connections of a catalogue.
#[derive(Debug)]
pub(super) struct Pool {
    /// The file, or "memory", for messages.
    place: String,
    /// The file; `None` for memory, which the connection that writes reads, too.
    path: Option<PathBuf>,
    // Readers are closed first: the last connection copies the write-ahead log into the file, and removes it.
    readers: Mutex<Readers>,
    writer: Mutex<Connection>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Readers {
    idle: Vec<Connection>,
    busy: usize,
}

/// A connection that reads. Dropping it returns it, also when its user panics.
struct Reader<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
}

impl Pool {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        if let Some(folder) = path.parent() {
            // If this fails, the next line reports the error.
            let _ = std::fs::create_dir_all(folder);
        }
        let place = path.display().to_string();
        let connection = Connection::open(path)
            .map_err(|e| Error::database(&place, "it cannot be opened", e))?;
        Self::with(place, Some(path.to_owned()), connection)
    }

    pub(super) fn in_memory() -> Result<Self, Error> {
        let place = "memory".to_owned();
        let connection = Connection::open_in_memory()
            .map_err(|e| Error::database(&place, "it cannot be opened", e))?;
        Self::with(place, None, connection)
    }

    fn with(
        place: String,
        path: Option<PathBuf>,
        mut connection: Connection,
    ) -> Result<Self, Error> {
        schema::prepare(&place, &mut connection)?;
        let configure = || {
            connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
            connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)
        };
        configure().map_err(|e| Error::database(&place, "it cannot be opened", e))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let (writer, readers) = (Mutex::new(connection), Mutex::default());
        Ok(Self { place, path, writer, readers, returned: Condvar::new() })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Waits for the connection that writes. A thread that panicked with it has dropped its transaction.
    pub(super) fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a question.
    pub(super) fn read<T>(
        &self,
        question: impl FnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Some(path) = &self.path else { return question(&mut self.writer()) };
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        while readers.busy == MAX_READERS {
            readers = self.returned.wait(readers).unwrap_or_else(PoisonError::into_inner);
        }
        readers.busy += 1;
        let idle = readers.idle.pop();
        drop(readers);
        let mut reader = Reader { pool: self, connection: idle };
        let connection = match &mut reader.connection {
            Some(connection) => connection,
            missing => missing.insert(self.reader(path)?),
        };
        question(connection)
    }

    fn reader(&self, path: &Path) -> Result<Connection, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(READ_TIMEOUT)?;
            connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
            connection.set_prepared_statement_cache_capacity(STATEMENTS);
            Ok(connection)
        };
        open().map_err(|e: rusqlite::Error| Error::database(&self.place, "it cannot be opened", e))
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut readers = self.pool.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.busy -= 1;
        readers.idle.extend(self.connection.take());
        drop(readers);
        self.pool.returned.notify_one();
    }
}
