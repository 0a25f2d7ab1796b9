//! SQLite files of this crate: opening, write-ahead mode, and migrations.
//!
//! `PRAGMA application_id` says whose file it is; `PRAGMA user_version` is the number of applied migrations. A released
//! migration never changes: a new one follows it.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

/// Time that a writer waits for other writers. A batch takes well below a second; ten of them may wait.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time that a reader waits for a lock. It hardly ever has to: only while another process removes the write-ahead log.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The most attempts to change the mode: a quarter of a minute in all. The process that creates the file needs
/// milliseconds.
const MAX_ATTEMPTS: u32 = 1_500;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(10);

/// The kind of a file.
#[derive(Debug)]
pub(crate) struct Format {
    /// Four letters as a big-endian number, which mark the file.
    pub(crate) application: i64,
    /// The statements that migrate from version n to n + 1.
    pub(crate) migrations: &'static [&'static str],
    /// `NORMAL`: a loss of power may remove the last transactions. `FULL`: it does not.
    pub(crate) synchronous: &'static str,
}

/// The reason why a file cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The file has another format.
    Other,
    /// A later version of Skopos wrote the file.
    Newer {
        /// Version of its format.
        found: i64,
        /// Latest version that this program knows.
        known: i64,
    },
    /// SQLite returned an error.
    Sql {
        /// The action that failed.
        doing: &'static str,
        /// SQLite's error.
        source: rusqlite::Error,
    },
}

impl Format {
    fn known(&self) -> i64 {
        self.migrations.len() as i64
    }

    /// Sets up a connection that writes. Applies the missing migrations under a lock, so that of two processes only one
    /// applies them.
    pub(crate) fn prepare(&self, connection: &mut Connection) -> Result<(), Unusable> {
        let sql = |doing| move |source| Unusable::Sql { doing, source };
        connection.busy_timeout(WRITE_TIMEOUT).map_err(sql("it cannot be opened"))?;
        // In one transaction, because another process may create the tables between two queries.
        let snapshot = connection.transaction().map_err(sql("it cannot be read"))?;
        let found = self.version(&snapshot)?;
        drop(snapshot);
        if found == self.known() {
            return self.configure(connection).map_err(sql("it cannot be opened"));
        }
        // Write-ahead mode is a property of the file, and cannot be set within a transaction.
        let cannot = sql("it cannot be prepared");
        write_ahead(connection).map_err(cannot)?;
        self.configure(connection).map_err(cannot)?;
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(cannot)?;
        // Another process may have applied them meanwhile.
        let found = self.version(&transaction)?;
        for migration in self.migrations.iter().skip(usize::try_from(found).unwrap_or(0)) {
            transaction.execute_batch(migration).map_err(cannot)?;
        }
        transaction.pragma_update(None, "application_id", self.application).map_err(cannot)?;
        transaction.pragma_update(None, "user_version", self.known()).map_err(cannot)?;
        transaction.commit().map_err(cannot)
    }

    /// Returns true if every migration that this program knows is applied.
    pub(crate) fn is_current(&self, connection: &Connection) -> Result<bool, Unusable> {
        match self.version(connection)? {
            0 => Err(Unusable::Other),
            found => Ok(found == self.known()),
        }
    }

    fn configure(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.pragma_update(None, "synchronous", self.synchronous)?;
        connection.pragma_update(None, "foreign_keys", true)
    }

    /// Returns the version of the file; 0 if it is new.
    fn version(&self, connection: &Connection) -> Result<i64, Unusable> {
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let read = || {
            let tables = number("SELECT count(*) FROM sqlite_master")?;
            Ok((number("PRAGMA application_id")?, number("PRAGMA user_version")?, tables))
        };
        let (application, version, tables) =
            read().map_err(|source: rusqlite::Error| match source.sqlite_error_code() {
                Some(ErrorCode::NotADatabase) => Unusable::Other,
                _ => Unusable::Sql { doing: "it cannot be read", source },
            })?;
        match (application, version) {
            (ours, found) if ours == self.application && found > self.known() => {
                Err(Unusable::Newer { found, known: self.known() })
            }
            (ours, found) if ours == self.application => Ok(found),
            (0, 0) if tables == 0 => Ok(0),
            _ => Err(Unusable::Other),
        }
    }
}

/// Sets write-ahead mode. Unlike other statements this one does not wait for locks.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let mut attempts = 0;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(e) if is_busy(&e) && attempts < MAX_ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(ATTEMPT_PAUSE);
            }
            result => return result,
        }
    }
}

fn is_busy(e: &rusqlite::Error) -> bool {
    matches!(e.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
