//! Questions.

use std::collections::BTreeSet;
use std::io::Write;

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, Row, Rows, ToSql, params, params_from_iter};
use skopos_model::job::JobId;

use super::super::super::entry::JobEntry;
use super::super::contract::MAX_SEGMENTS;
use super::super::error::Error;
use super::super::filter::{Filter, Visibility};
use super::super::page::{Cursor, Key, Page, PageRequest, Sort};
use super::super::row::{Columns, JobRow};
use super::super::statement::{Statement, Value};
use super::dialect::Sqlite;

const DOING: &str = "it cannot be read";

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Text(text) => text.to_sql(),
            Self::Integer(number) => number.to_sql(),
            Self::Real(number) => number.to_sql(),
        }
    }
}

pub(super) fn rows(
    place: &str,
    connection: &mut Connection,
    filter: &Filter,
    request: &PageRequest,
) -> Result<Page<JobRow>, Error> {
    let statement = Statement::rows(filter, request, &Sqlite)?;
    page(place, connection, &statement, request, |row| {
        let damaged = |(what, value)| Error::Damaged { place: place.to_owned(), what, value };
        let columns = columns(row).map_err(|e| Error::database(place, DOING, e))?;
        let size = columns.used.len() + columns.requested.len();
        Ok((columns.row().map_err(damaged)?, size))
    })
}

pub(super) fn entries(
    place: &str,
    connection: &mut Connection,
    filter: &Filter,
    request: &PageRequest,
) -> Result<Page<JobEntry>, Error> {
    let statement = Statement::entries(filter, request, &Sqlite)?;
    page(place, connection, &statement, request, |row| {
        let content: String = row.get(2).map_err(|e| Error::database(place, DOING, e))?;
        let entry = serde_json::from_str(&content).map_err(|_| Error::Damaged {
            place: place.to_owned(),
            what: "entry",
            value: content.chars().take(80).collect(),
        })?;
        Ok((entry, content.len()))
    })
}

fn page<T>(
    place: &str,
    connection: &Connection,
    statement: &Statement,
    request: &PageRequest,
    item: impl Fn(&Row<'_>) -> Result<(T, usize), Error>,
) -> Result<Page<T>, Error> {
    let error = |e| Error::database(place, DOING, e);
    let mut prepared = connection.prepare_cached(&statement.sql).map_err(error)?;
    let mut rows: Rows<'_> = prepared.query(params_from_iter(&statement.values)).map_err(error)?;
    let is_time = matches!(request.order.sort, Sort::Started | Sort::Ended);
    let next = || {
        let row = rows.next().map_err(error).transpose()?;
        Some(row.and_then(|row| {
            let key = match is_time {
                true => row.get(0).map(Key::Time),
                false => row.get(0).map(Key::Amount),
            };
            let cursor = Cursor { key: key.map_err(error)?, number: row.get(1).map_err(error)? };
            let (item, size) = item(row)?;
            Ok((cursor, item, size))
        }))
    };
    request.page(std::iter::from_fn(next))
}

fn columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    Ok(Columns {
        site: row.get(2)?,
        job: row.get(3)?,
        generation: row.get(4)?,
        owner: row.get(5)?,
        project: row.get(6)?,
        name: row.get(7)?,
        application: row.get(8)?,
        queue: row.get(9)?,
        state: row.get(10)?,
        exit: row.get(11)?,
        started: row.get(12)?,
        ended: row.get(13)?,
        nodes: row.get(14)?,
        samples: row.get(15)?,
        lost: row.get(16)?,
        used: row.get(17)?,
        requested: row.get(18)?,
    })
}

pub(super) fn count(
    place: &str,
    connection: &mut Connection,
    filter: &Filter,
) -> Result<u64, Error> {
    let statement = Statement::count(filter, &Sqlite)?;
    let count = || {
        let mut prepared = connection.prepare_cached(&statement.sql)?;
        prepared.query_row(params_from_iter(&statement.values), |row| row.get(0))
    };
    count().map_err(|e| Error::database(place, DOING, e))
}

/// Looks each job up by its key: some microseconds, most of them for the text of its id.
pub(super) fn visible(
    place: &str,
    connection: &mut Connection,
    (visibility, site): (&Visibility, &str),
    ids: &[JobId],
) -> Result<BTreeSet<JobId>, Error> {
    let look_up = || {
        let sql = "SELECT owner, project FROM job WHERE site = ?1 AND job = ?2 AND generation = ?3";
        let mut prepared = connection.prepare_cached(sql)?;
        let mut visible = BTreeSet::new();
        for id in ids {
            let mut rows = prepared.query(params![site, id.job(), id.generation()])?;
            let Some(row) = rows.next()? else { continue };
            let (owner, project): (Option<String>, Option<String>) = (row.get(0)?, row.get(1)?);
            if visibility.shows(owner.as_deref(), project.as_deref()) {
                visible.insert(id.clone());
            }
        }
        Ok(visible)
    };
    look_up().map_err(|e: rusqlite::Error| Error::database(place, DOING, e))
}

pub(super) fn segments(
    place: &str,
    connection: &mut Connection,
    after: &str,
) -> Result<Vec<String>, Error> {
    let names = || {
        let sql = "SELECT name FROM segment WHERE name > ?1 ORDER BY name LIMIT ?2";
        let mut prepared = connection.prepare_cached(sql)?;
        let names = prepared.query_map((after, MAX_SEGMENTS as i64), |row| row.get(0))?;
        names.collect::<rusqlite::Result<Vec<_>>>()
    };
    names().map_err(|e| Error::database(place, DOING, e))
}

/// Writes everything, as it is at one time.
pub(super) fn dump(
    place: &str,
    connection: &mut Connection,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let error = |e: rusqlite::Error| Error::database(place, DOING, e);
    let transaction = connection.transaction().map_err(error)?;
    for (kind, sql) in [
        ("segment", "SELECT name FROM segment ORDER BY name"),
        (
            "job",
            "SELECT content FROM job JOIN document USING (number) ORDER BY site, job, generation",
        ),
    ] {
        let mut statement = transaction.prepare_cached(sql).map_err(error)?;
        let mut rows = statement.query([]).map_err(error)?;
        while let Some(row) = rows.next().map_err(error)? {
            let text: String = row.get(0).map_err(error)?;
            writeln!(out, "{kind} {text}").map_err(Error::Dump)?;
        }
    }
    Ok(())
}
