//! What is in the file.
//!
//! `PRAGMA application_id` is [`APPLICATION`], `PRAGMA user_version` the number of migrations that were
//! done. A migration is never changed once it is released: a new one is added.
//!
//! | table | a row for each | columns |
//! |---|---|---|
//! | `task` | report | `hash` SHA-256 of the document; what conditions ask for; `document`, the report |
//! | `resource` | name of a resource | `id`, `name` |
//! | `reading` | resource of a report | `value`, null if unknown; `is_whole`, false for a lower bound |

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use super::{Error, sql};

/// "sKoA" as a big-endian number: this file is an archive of tasks.
const APPLICATION: i64 = 0x734b_6f41;

/// Together a quarter of a minute: whoever makes the file needs milliseconds.
const MAX_TRIES: u32 = 1_500;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// From version n to n + 1.
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

/// Makes what is missing, under a lock, so that two who come first make it once.
pub(super) fn prepare(path: &Path, connection: &mut Connection) -> Result<(), Error> {
    let known = MIGRATIONS.len() as i64;
    // In one transaction, since another process may make the tables between two questions.
    let snapshot = connection.transaction().map_err(|e| sql(path, "it cannot be read", e))?;
    let found = look(path, &snapshot)?;
    drop(snapshot);
    if found == known {
        return settle(connection).map_err(|e| sql(path, "it cannot be opened", e));
    }
    // Write-ahead mode is a property of the file, and cannot be set within a transaction.
    let cannot = |e| sql(path, "it cannot be prepared", e);
    write_ahead(connection).map_err(cannot)?;
    settle(connection).map_err(cannot)?;
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(cannot)?;
    // Somebody else may have done it meanwhile.
    let found = look(path, &transaction)?;
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(migration).map_err(cannot)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(cannot)?;
    transaction.pragma_update(None, "user_version", known).map_err(cannot)?;
    transaction.commit().map_err(cannot)
}

/// Whether the file has all tables that this program knows, or only earlier ones.
pub(super) fn is_current(path: &Path, connection: &Connection) -> Result<bool, Error> {
    match look(path, connection)? {
        0 => Err(Error::NotAnArchive(path.to_owned())),
        found => Ok(found == MIGRATIONS.len() as i64),
    }
}

/// Changing the mode does not wait for others, as other statements do.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let mut tries = 0;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(e) if is_busy(&e) && tries < MAX_TRIES => {
                tries += 1;
                std::thread::sleep(BETWEEN_TRIES);
            }
            done => return done,
        }
    }
}

fn is_busy(e: &rusqlite::Error) -> bool {
    let code = e.sqlite_error_code();
    matches!(code, Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked))
}

fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)
}

/// The version of the file; 0 if it is new.
fn look(path: &Path, connection: &Connection) -> Result<i64, Error> {
    let read = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables = || {
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get::<_, i64>(0))
    };
    let looked = || Ok((read("application_id")?, read("user_version")?, tables()?));
    let (application, version, tables) =
        looked().map_err(|e: rusqlite::Error| match e.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => Error::NotAnArchive(path.to_owned()),
            _ => sql(path, "it cannot be read", e),
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
