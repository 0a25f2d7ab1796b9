//! The tables of the file, and their migrations.
//!
//! `PRAGMA application_id` is [`APPLICATION`]; `PRAGMA user_version` is the number of applied migrations.
//! A released migration never changes: a new one follows it.
//!
//! | table | one row for each | columns |
//! |---|---|---|
//! | `task` | report | `hash`, SHA-256 of the document; the columns of conditions; `document`, the report |
//! | `resource` | name of a resource | `id`, `name` |
//! | `reading` | resource of a report | `value`, null if unknown; `is_whole`, false for a lower bound |

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use super::error::{Error, sql_error};

/// "sKoA" as a big-endian number. It marks the file as an archive of tasks.
const APPLICATION: i64 = 0x734b_6f41;

/// The most attempts to change the mode: a quarter of a minute in all. The process that creates the
/// file needs milliseconds.
const MAX_ATTEMPTS: u32 = 1_500;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(10);

/// The statements that migrate from version n to n + 1.
const MIGRATIONS: &[&str] = &["CREATE TABLE task (
        id INTEGER PRIMARY KEY,
        hash BLOB NOT NULL UNIQUE,
        class TEXT NOT NULL,
        host TEXT NOT NULL,
        monitor TEXT NOT NULL,
        collection TEXT NOT NULL,
        start_seconds REAL NOT NULL,
        end_seconds REAL NOT NULL,
        exit_type TEXT NOT NULL,
        status INTEGER,
        document TEXT NOT NULL
    ) STRICT;
    CREATE INDEX task_by_class ON task (class, host);
    CREATE TABLE resource (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE reading (
        task INTEGER NOT NULL REFERENCES task (id),
        resource INTEGER NOT NULL REFERENCES resource (id),
        value REAL,
        is_whole INTEGER NOT NULL,
        PRIMARY KEY (task, resource)
    ) STRICT, WITHOUT ROWID;"];

/// Applies the missing migrations under a lock, so that of two processes only one applies them.
pub(super) fn prepare(path: &Path, connection: &mut Connection) -> Result<(), Error> {
    let known = MIGRATIONS.len() as i64;
    // In one transaction, because another process may create the tables between two queries.
    let snapshot = connection.transaction().map_err(|e| sql_error(path, "it cannot be read", e))?;
    let found = version(path, &snapshot)?;
    drop(snapshot);
    if found == known {
        return configure(connection).map_err(|e| sql_error(path, "it cannot be opened", e));
    }
    // Write-ahead mode is a property of the file, and cannot be set within a transaction.
    let cannot = |e| sql_error(path, "it cannot be prepared", e);
    write_ahead(connection).map_err(cannot)?;
    configure(connection).map_err(cannot)?;
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(cannot)?;
    // Another process may have applied them meanwhile.
    let found = version(path, &transaction)?;
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(migration).map_err(cannot)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(cannot)?;
    transaction.pragma_update(None, "user_version", known).map_err(cannot)?;
    transaction.commit().map_err(cannot)
}

/// Returns true if every migration that this program knows is applied.
pub(super) fn is_current(path: &Path, connection: &Connection) -> Result<bool, Error> {
    match version(path, connection)? {
        0 => Err(Error::NotAnArchive(path.to_owned())),
        found => Ok(found == MIGRATIONS.len() as i64),
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
    let code = e.sqlite_error_code();
    matches!(code, Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked))
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)
}

/// Returns the version of the file; 0 if it is new.
fn version(path: &Path, connection: &Connection) -> Result<i64, Error> {
    let read = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables = || {
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get::<_, i64>(0))
    };
    let read_all = || Ok((read("application_id")?, read("user_version")?, tables()?));
    let (application, version, tables) =
        read_all().map_err(|e: rusqlite::Error| match e.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => Error::NotAnArchive(path.to_owned()),
            _ => sql_error(path, "it cannot be read", e),
        })?;
    match (application, version) {
        (APPLICATION, found) if found > MIGRATIONS.len() as i64 => {
            Err(Error::Newer { path: path.to_owned(), found, known: MIGRATIONS.len() as i64 })
        }
        (APPLICATION, found) => Ok(found),
        (0, 0) if tables == 0 => Ok(0),
        _ => Err(Error::NotAnArchive(path.to_owned())),
    }
}
