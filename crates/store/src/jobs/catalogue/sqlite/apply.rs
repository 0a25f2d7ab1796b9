//! Changes.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher as _};

use rusqlite::{
    CachedStatement, Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior,
    params,
};

use super::super::super::entry::JobEntry;
use super::super::contract::{Applied, Change, JobKey};
use super::super::error::Error;
use super::super::numbers::Numbers;
use super::super::row::Columns;
use super::super::stored::Stored;

/// Makes a change.
pub(super) fn apply(
    place: &str,
    connection: &mut Connection,
    change: &Change<'_>,
) -> Result<Applied, Error> {
    // Outside of the transaction, which other programs wait for.
    let stored = change.entries.iter().map(|entry| stored(place, entry));
    let stored = stored.collect::<Result<Vec<_>, _>>()?;
    let mut make = || {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut applied = Applied::default();
        for key in change.removed {
            applied.removed += u64::from(remove(&transaction, key)?);
        }
        let mut writer = Writer::new(&transaction)?;
        for entry in &stored {
            match writer.write(entry)? {
                true => applied.written += 1,
                false => applied.older += 1,
            }
            applied.unindexed_words += entry.unindexed_words;
        }
        drop(writer);
        for (sql, names) in [
            ("DELETE FROM segment WHERE name = ?1", change.removed_segments),
            ("INSERT OR IGNORE INTO segment (name) VALUES (?1)", change.segments),
        ] {
            let mut statement = transaction.prepare_cached(sql)?;
            names.iter().try_for_each(|name| statement.execute([name]).map(drop))?;
        }
        transaction.commit()?;
        Ok(applied)
    };
    make().map_err(|e: rusqlite::Error| Error::database(place, "a change cannot be made", e))
}

fn stored(place: &str, entry: &JobEntry) -> Result<Stored, Error> {
    Stored::of(entry).map_err(|source| Error::Entry {
        place: place.to_owned(),
        job: entry.id.to_string(),
        site: entry.site.clone(),
        source,
    })
}

fn remove(transaction: &Transaction<'_>, key: &JobKey) -> rusqlite::Result<bool> {
    let number: Option<i64> = transaction
        .prepare_cached(
            "DELETE FROM job WHERE site = ?1 AND job = ?2 AND generation = ?3 RETURNING number",
        )?
        .query_row(params![key.site, key.id.job(), key.id.generation()], |row| row.get(0))
        .optional()?;
    let Some(number) = number else { return Ok(false) };
    for sql in [
        "DELETE FROM document WHERE number = ?1",
        "DELETE FROM host WHERE job = ?1",
        "DELETE FROM tag WHERE job = ?1",
        "DELETE FROM word WHERE rowid = ?1",
    ] {
        transaction.prepare_cached(sql)?.execute([number])?;
    }
    Ok(true)
}

const FIND: &str =
    "SELECT number, parts, word_fingerprint, owner, project, application, state, started, ended
     FROM job WHERE site = ?1 AND job = ?2 AND generation = ?3";

const INSERT: &str =
    "INSERT INTO job (name, queue, exit, nodes, samples, lost, used, requested, parts,
        word_fingerprint, owner, project, application, state, started, ended, site, job, generation)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";

const UPDATE: &str = "UPDATE job SET name = ?1, queue = ?2, exit = ?3, nodes = ?4, samples = ?5, lost = ?6, used = ?7,
        requested = ?8, parts = ?9, word_fingerprint = ?10, owner = ?11, project = ?12, application = ?13,
        state = ?14, started = ?15, ended = ?16 WHERE number = ?17";

/// The same without the columns of indexes, which SQLite would write again although they are equal.
const UPDATE_BESIDE_INDEXES: &str =
    "UPDATE job SET name = ?1, queue = ?2, exit = ?3, nodes = ?4, samples = ?5, lost = ?6,
        used = ?7, requested = ?8, parts = ?9, word_fingerprint = ?10 WHERE number = ?11";

/// The statements that write entries, which are prepared once for a change.
struct Writer<'t> {
    find: CachedStatement<'t>,
    insert: CachedStatement<'t>,
    update: CachedStatement<'t>,
    update_beside_indexes: CachedStatement<'t>,
    document: CachedStatement<'t>,
    forget_words: CachedStatement<'t>,
    words: CachedStatement<'t>,
    hosts: Names<'t>,
    tags: Names<'t>,
}

/// The known columns of an entry that decide what is written.
struct Known {
    number: i64,
    parts: String,
    word_fingerprint: Option<i64>,
    owner: Option<String>,
    project: Option<String>,
    application: String,
    state: String,
    started: i64,
    ended: i64,
}

impl Known {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            number: row.get(0)?,
            parts: row.get(1)?,
            word_fingerprint: row.get(2)?,
            owner: row.get(3)?,
            project: row.get(4)?,
            application: row.get(5)?,
            state: row.get(6)?,
            started: row.get(7)?,
            ended: row.get(8)?,
        })
    }

    /// Returns true if an entry has the same values in the columns of all indexes.
    fn is_indexed_as(&self, of: &Columns) -> bool {
        self.owner == of.owner
            && self.project == of.project
            && self.application == of.application
            && self.state == of.state
            && (self.started, self.ended) == (of.started, of.ended)
    }
}

impl<'t> Writer<'t> {
    fn new(transaction: &'t Transaction<'_>) -> rusqlite::Result<Self> {
        let prepared = |sql: &str| transaction.prepare_cached(sql);
        Ok(Self {
            find: prepared(FIND)?,
            insert: prepared(INSERT)?,
            update: prepared(UPDATE)?,
            update_beside_indexes: prepared(UPDATE_BESIDE_INDEXES)?,
            document: prepared(
                "INSERT OR REPLACE INTO document (number, content) VALUES (?1, ?2)",
            )?,
            forget_words: prepared("DELETE FROM word WHERE rowid = ?1")?,
            words: prepared("INSERT INTO word (rowid, words) VALUES (?1, ?2)")?,
            hosts: Names {
                select: prepared("SELECT name FROM host WHERE job = ?1")?,
                delete: prepared("DELETE FROM host WHERE job = ?1 AND name = ?2")?,
                insert: prepared("INSERT INTO host (job, name) VALUES (?1, ?2)")?,
            },
            tags: Names {
                select: prepared("SELECT name FROM tag WHERE job = ?1")?,
                delete: prepared("DELETE FROM tag WHERE job = ?1 AND name = ?2")?,
                insert: prepared("INSERT INTO tag (job, name) VALUES (?1, ?2)")?,
            },
        })
    }

    /// Writes an entry; returns false if the known one has more parts.
    fn write(&mut self, stored: &Stored) -> rusqlite::Result<bool> {
        let of = &stored.columns;
        let key = params![of.site, of.job, of.generation];
        let known = self.find.query_row(key, Known::of).optional()?;
        let parts = |known: &Known| Numbers::parse(&known.parts).unwrap_or_default();
        if known.as_ref().is_some_and(|known| stored.parts.are_fewer_than(&parts(known))) {
            return Ok(false);
        }
        let fingerprint = fingerprint(&stored.words);
        let number = match &known {
            None => self.insert(stored, fingerprint)?,
            Some(known) => self.update(known, stored, fingerprint)?,
        };
        self.document.execute(params![number, stored.document])?;
        let has_words =
            known.as_ref().is_some_and(|known| known.word_fingerprint == Some(fingerprint));
        if !has_words {
            if known.is_some() {
                self.forget_words.execute([number])?;
            }
            self.words.execute(params![number, stored.words])?;
        }
        self.hosts.write(number, &stored.hosts, known.is_none())?;
        self.tags.write(number, &stored.tags, known.is_none())?;
        Ok(true)
    }

    /// Adds a row, and returns its number.
    fn insert(&mut self, stored: &Stored, fingerprint: i64) -> rusqlite::Result<i64> {
        let of = &stored.columns;
        self.insert.insert(params![
            of.name,
            of.queue,
            of.exit,
            of.nodes,
            of.samples,
            of.lost,
            of.used,
            of.requested,
            stored.parts.to_string(),
            fingerprint,
            of.owner,
            of.project,
            of.application,
            of.state,
            of.started,
            of.ended,
            of.site,
            of.job,
            of.generation,
        ])
    }

    /// Changes a row, and returns its number.
    fn update(
        &mut self,
        known: &Known,
        stored: &Stored,
        fingerprint: i64,
    ) -> rusqlite::Result<i64> {
        let (of, parts) = (&stored.columns, stored.parts.to_string());
        if known.is_indexed_as(of) {
            let values = params![
                of.name,
                of.queue,
                of.exit,
                of.nodes,
                of.samples,
                of.lost,
                of.used,
                of.requested,
                parts,
                fingerprint,
                known.number,
            ];
            return self.update_beside_indexes.execute(values).map(|_| known.number);
        }
        let values = params![
            of.name,
            of.queue,
            of.exit,
            of.nodes,
            of.samples,
            of.lost,
            of.used,
            of.requested,
            parts,
            fingerprint,
            of.owner,
            of.project,
            of.application,
            of.state,
            of.started,
            of.ended,
            known.number,
        ];
        self.update.execute(values).map(|_| known.number)
    }
}

/// Returns the fingerprint of the words of an entry. Another version of the standard library may compute another one; then the
/// words are written again.
fn fingerprint(words: &str) -> i64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(words.as_bytes());
    hasher.finish().cast_signed()
}

/// The statements of a table of names.
struct Names<'t> {
    select: CachedStatement<'t>,
    delete: CachedStatement<'t>,
    insert: CachedStatement<'t>,
}

impl Names<'_> {
    /// Makes the names of an entry those that it has now. Most entries keep all of theirs.
    fn write(
        &mut self,
        number: i64,
        names: &BTreeSet<String>,
        is_new: bool,
    ) -> rusqlite::Result<()> {
        let known: BTreeSet<String> = match is_new {
            true => BTreeSet::new(),
            false => {
                let known = self.select.query_map([number], |row| row.get(0))?;
                known.collect::<rusqlite::Result<_>>()?
            }
        };
        for gone in known.difference(names) {
            self.delete.execute(params![number, gone])?;
        }
        for new in names.difference(&known) {
            self.insert.execute(params![number, new])?;
        }
        Ok(())
    }
}
