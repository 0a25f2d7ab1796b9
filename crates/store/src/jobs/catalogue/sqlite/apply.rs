//! Changes.

use std::collections::BTreeSet;

use rusqlite::{
    Connection, OptionalExtension as _, Transaction, TransactionBehavior, named_params, params,
};

use super::super::super::entry::JobEntry;
use super::super::contract::{Applied, Change, JobKey};
use super::super::error::Error;
use super::super::numbers::Numbers;
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
        for entry in &stored {
            match write(&transaction, entry)? {
                true => applied.written += 1,
                false => applied.older += 1,
            }
            applied.unindexed_words += entry.unindexed_words;
        }
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

/// Writes an entry; returns false if the known one has more parts.
fn write(transaction: &Transaction<'_>, stored: &Stored) -> rusqlite::Result<bool> {
    let columns = &stored.columns;
    let known: Option<(i64, String)> = transaction
        .prepare_cached(
            "SELECT number, parts FROM job WHERE site = ?1 AND job = ?2 AND generation = ?3",
        )?
        .query_row(params![columns.site, columns.job, columns.generation], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let parts = |known: &(i64, String)| Numbers::parse(&known.1).unwrap_or_default();
    if known.as_ref().is_some_and(|known| stored.parts.are_fewer_than(&parts(known))) {
        return Ok(false);
    }
    let number: i64 = transaction
        .prepare_cached(
            "INSERT INTO job (number, site, job, generation, owner, project, name, application,
                queue, state, exit, started, ended, nodes, samples, lost, used, requested, parts)
             VALUES (:number, :site, :job, :generation, :owner, :project, :name, :application,
                :queue, :state, :exit, :started, :ended, :nodes, :samples, :lost, :used,
                :requested, :parts)
             ON CONFLICT (number) DO UPDATE SET owner = :owner, project = :project, name = :name,
                application = :application, queue = :queue, state = :state, exit = :exit,
                started = :started, ended = :ended, nodes = :nodes, samples = :samples,
                lost = :lost, used = :used, requested = :requested, parts = :parts
             RETURNING number",
        )?
        .query_row(
            named_params! {
                ":number": known.as_ref().map(|(number, _)| number), ":site": columns.site,
                ":job": columns.job, ":generation": columns.generation, ":owner": columns.owner,
                ":project": columns.project, ":name": columns.name,
                ":application": columns.application, ":queue": columns.queue,
                ":state": columns.state, ":exit": columns.exit, ":started": columns.started,
                ":ended": columns.ended, ":nodes": columns.nodes, ":samples": columns.samples,
                ":lost": columns.lost, ":used": columns.used, ":requested": columns.requested,
                ":parts": stored.parts.to_string(),
            },
            |row| row.get(0),
        )?;
    transaction
        .prepare_cached("INSERT OR REPLACE INTO document (number, content) VALUES (?1, ?2)")?
        .execute(params![number, stored.document])?;
    if known.is_some() {
        transaction.prepare_cached("DELETE FROM word WHERE rowid = ?1")?.execute([number])?;
    }
    transaction
        .prepare_cached("INSERT INTO word (rowid, words) VALUES (?1, ?2)")?
        .execute(params![number, stored.words])?;
    let is_new = known.is_none();
    names(transaction, Names::HOSTS, number, &stored.hosts, is_new)?;
    names(transaction, Names::TAGS, number, &stored.tags, is_new)?;
    Ok(true)
}

/// The statements of a table of names.
struct Names {
    select: &'static str,
    delete: &'static str,
    insert: &'static str,
}

impl Names {
    const HOSTS: Self = Self {
        select: "SELECT name FROM host WHERE job = ?1",
        delete: "DELETE FROM host WHERE job = ?1 AND name = ?2",
        insert: "INSERT INTO host (job, name) VALUES (?1, ?2)",
    };
    const TAGS: Self = Self {
        select: "SELECT name FROM tag WHERE job = ?1",
        delete: "DELETE FROM tag WHERE job = ?1 AND name = ?2",
        insert: "INSERT INTO tag (job, name) VALUES (?1, ?2)",
    };
}

/// Makes the names of an entry those that it has now. Most entries keep all of theirs.
fn names(
    transaction: &Transaction<'_>,
    table: Names,
    number: i64,
    names: &BTreeSet<String>,
    is_new: bool,
) -> rusqlite::Result<()> {
    let known: BTreeSet<String> = match is_new {
        true => BTreeSet::new(),
        false => {
            let mut select = transaction.prepare_cached(table.select)?;
            let known = select.query_map([number], |row| row.get(0))?;
            known.collect::<rusqlite::Result<_>>()?
        }
    };
    for gone in known.difference(names) {
        transaction.prepare_cached(table.delete)?.execute(params![number, gone])?;
    }
    let mut insert = transaction.prepare_cached(table.insert)?;
    names.difference(&known).try_for_each(|new| insert.execute(params![number, new]).map(drop))
}
