//! The tables of the file, and their migrations.
//!
//! | table | one row for each | columns |
//! |---|---|---|
//! | `job` | entry | `number`, given in the order of arrival; the columns of a row; `parts`, the numbers of its parts; a fingerprint of its words |
//! | `document` | entry | `content`, the entry as JSON: apart, so that a scan of `job` does not read it |
//! | `host` | node of an entry | |
//! | `tag` | tag of an entry | |
//! | `word` | entry | the index of its words; the words themselves are not kept |
//! | `segment` | segment | `name` |
//!
//! Indexes by a text and the start have the end, too, so that a range of time is found in the index alone.

use rusqlite::Connection;

use super::super::error::Error;
use crate::sqlite::{Format, Unusable};

/// "sKoJ" marks the file as a catalogue of jobs. A change that was acknowledged survives a loss of power: the intake
/// then forgets the records.
const FORMAT: Format =
    Format { application: 0x734b_6f4a, migrations: MIGRATIONS, synchronous: "FULL" };

const MIGRATIONS: &[&str] = &[TABLES, MERGES, ORPHANS, FINGERPRINTS];

/// A fingerprint of the words of an entry, which are not kept: an entry that comes again with the same words does not write them
/// to the index again. An entry of an earlier version gets its fingerprint when it comes again.
const FINGERPRINTS: &str = "ALTER TABLE job ADD COLUMN word_fingerprint INTEGER";

/// Jobs without a start have a state of their own. No text of a document has these bytes: it would write the quotes as `\"`.
const ORPHANS: &str = "UPDATE job SET state = 'orphan' WHERE number IN
        (SELECT number FROM document WHERE content LIKE '%\"start\":null,%')";

/// The full-text index merges eight lists at a time instead of four: a word is written again less often, and a question
/// looks into a few more lists.
const MERGES: &str = "INSERT INTO word (word, rank) VALUES ('automerge', 8)";

const TABLES: &str = "CREATE TABLE job (
        number INTEGER PRIMARY KEY,
        site TEXT NOT NULL,
        job TEXT NOT NULL,
        generation INTEGER NOT NULL,
        owner TEXT,
        project TEXT,
        name TEXT NOT NULL,
        application TEXT NOT NULL,
        queue TEXT NOT NULL,
        state TEXT NOT NULL,
        exit TEXT,
        started INTEGER NOT NULL,
        ended INTEGER NOT NULL,
        nodes INTEGER NOT NULL,
        samples INTEGER NOT NULL,
        lost INTEGER NOT NULL,
        used TEXT NOT NULL,
        requested TEXT NOT NULL,
        parts TEXT NOT NULL,
        UNIQUE (site, job, generation)
    ) STRICT;
    CREATE INDEX job_by_owner ON job (owner, started, ended);
    CREATE INDEX job_by_project ON job (project, started, ended);
    CREATE INDEX job_by_application ON job (application, started, ended);
    CREATE INDEX job_by_state ON job (state, started, ended);
    CREATE INDEX job_by_start ON job (started, ended);
    CREATE INDEX job_by_id ON job (job);
    CREATE TABLE document (number INTEGER PRIMARY KEY, content TEXT NOT NULL) STRICT;
    CREATE TABLE host (job INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (job, name))
        STRICT, WITHOUT ROWID;
    CREATE INDEX host_by_name ON host (name, job);
    CREATE TABLE tag (job INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (job, name))
        STRICT, WITHOUT ROWID;
    CREATE INDEX tag_by_name ON tag (name, job);
    CREATE VIRTUAL TABLE word USING fts5
        (words, content='', contentless_delete=1, detail=none, tokenize='ascii');
    CREATE TABLE segment (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;";

/// Sets up a connection that writes, and applies the missing migrations.
pub(super) fn prepare(place: &str, connection: &mut Connection) -> Result<(), Error> {
    FORMAT.prepare(connection).map_err(|e| match e {
        Unusable::Other => Error::NotACatalogue(place.to_owned()),
        Unusable::Newer { found, known } => Error::Newer { place: place.to_owned(), found, known },
        Unusable::Sql { doing, source } => Error::database(place, doing, source),
    })
}
