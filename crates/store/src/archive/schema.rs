//! The tables of the file, and their migrations.
//!
//! | table | one row for each | columns |
//! |---|---|---|
//! | `task` | report | `hash`, SHA-256 of the document; the columns of conditions; `document`, the report |
//! | `resource` | name of a resource | `id`, `name` |
//! | `reading` | resource of a report | `value`, null if unknown; `is_whole`, false for a lower bound |
//! | `files` | report whose files were counted | `document`, a [`TaskFiles`](skopos_model::task::TaskFiles) |

use std::path::Path;

use rusqlite::Connection;

use super::error::{Error, sql_error};
use crate::sqlite::{Format, Unusable};

/// "sKoA" marks the file as an archive of tasks. A loss of power may remove the last batches, each completely: they can
/// be imported again.
const FORMAT: Format =
    Format { application: 0x734b_6f41, migrations: MIGRATIONS, synchronous: "NORMAL" };

const MIGRATIONS: &[&str] = &[
    "CREATE TABLE task (
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
    ) STRICT, WITHOUT ROWID;",
    "CREATE TABLE files (
        task INTEGER PRIMARY KEY REFERENCES task (id),
        document TEXT NOT NULL
    ) STRICT;",
];

/// Sets up a connection that writes, and applies the missing migrations.
pub(super) fn prepare(path: &Path, connection: &mut Connection) -> Result<(), Error> {
    FORMAT.prepare(connection).map_err(|e| error(path, e))
}

/// Returns true if every migration that this program knows is applied.
pub(super) fn is_current(path: &Path, connection: &Connection) -> Result<bool, Error> {
    FORMAT.is_current(connection).map_err(|e| error(path, e))
}

fn error(path: &Path, e: Unusable) -> Error {
    match e {
        Unusable::Other => Error::NotAnArchive(path.to_owned()),
        Unusable::Newer { found, known } => Error::Newer { path: path.to_owned(), found, known },
        Unusable::Sql { doing, source } => sql_error(path, doing, source),
    }
}
