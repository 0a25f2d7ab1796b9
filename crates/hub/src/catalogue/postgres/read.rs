//! Questions.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::io::Write;
use std::pin::pin;

use futures_util::TryStreamExt as _;
use skopos_model::job::JobId;
use skopos_store::jobs::catalogue::{
    Columns, Error, Key, MAX_PAGE_BYTES, MAX_SEGMENTS, Statement, Value,
};
use skopos_store::jobs::{Cursor, Filter, JobEntry, JobRow, Page, PageRequest, Sort, Visibility};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use super::connection::Connection;
use super::dialect::Postgres;
use super::text::{escaped, unescaped};

const DOING: &str = "it cannot be read";

/// A JSON text in its binary form.
struct Json(String);

impl<'a> FromSql<'a> for Json {
    fn from_sql(_: &Type, bytes: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        match bytes {
            [1, text @ ..] => Ok(Self(std::str::from_utf8(text)?.to_owned())),
            _ => Err("this version of the binary form is not known".into()),
        }
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }
}

type Parameters = Vec<Box<dyn ToSql + Sync + Send>>;

fn parameters(statement: &Statement) -> Parameters {
    let parameter = |value: &Value| -> Box<dyn ToSql + Sync + Send> {
        match value {
            Value::Text(text) => Box::new(escaped(text.clone())),
            Value::Integer(number) => Box::new(*number),
            Value::Real(number) => Box::new(*number),
        }
    };
    statement.values.iter().map(parameter).collect()
}

/// Runs a statement, and takes its rows until `each` returns false.
async fn for_each_row(
    connection: &mut Connection,
    statement: &Statement,
    mut each: impl FnMut(&Row) -> Result<bool, Error>,
) -> Result<(), Error> {
    let prepared = connection.prepared(&statement.sql).await?;
    let error = |e| Error::database(&connection.place, DOING, e);
    let values = parameters(statement);
    let values = values.iter().map(|value| &**value as &(dyn ToSql + Sync));
    let rows = connection.client.query_raw(&prepared, values).await.map_err(error)?;
    let mut rows = pin!(rows);
    while let Some(row) = rows.try_next().await.map_err(error)? {
        if !each(&row)? {
            break;
        }
    }
    Ok(())
}

async fn page<T>(
    connection: &mut Connection,
    statement: &Statement,
    request: &PageRequest,
    item: impl Fn(&Row) -> Result<(T, usize), Error>,
) -> Result<Page<T>, Error> {
    let place = connection.place.clone();
    let error = |e| Error::database(&place, DOING, e);
    let is_time = matches!(request.order.sort, Sort::Started | Sort::Ended);
    let mut jobs = Vec::new();
    let mut bytes = 0;
    for_each_row(connection, statement, |row| {
        let key = match is_time {
            true => row.try_get(0).map(Key::Time),
            false => row.try_get(0).map(Key::Amount),
        };
        let number = row.try_get(1).map_err(error)?;
        let cursor = Cursor { key: key.map_err(error)?, number };
        let (item, size) = item(row)?;
        bytes += size;
        jobs.push(Ok((cursor, item, size)));
        // The page is full with the job that is one too many.
        Ok(bytes <= MAX_PAGE_BYTES)
    })
    .await?;
    request.page(jobs)
}

pub(super) async fn rows(
    connection: &mut Connection,
    filter: &Filter,
    request: &PageRequest,
) -> Result<Page<JobRow>, Error> {
    let statement = Statement::rows(filter, request, &Postgres)?;
    let place = connection.place.clone();
    page(connection, &statement, request, |row| {
        let damaged = |(what, value)| Error::Damaged { place: place.clone(), what, value };
        let columns = columns(row).map_err(|e| Error::database(&place, DOING, e))?;
        let size = columns.used.len() + columns.requested.len();
        Ok((columns.row().map_err(damaged)?, size))
    })
    .await
}

pub(super) async fn entries(
    connection: &mut Connection,
    filter: &Filter,
    request: &PageRequest,
) -> Result<Page<JobEntry>, Error> {
    let statement = Statement::entries(filter, request, &Postgres)?;
    let place = connection.place.clone();
    page(connection, &statement, request, |row| {
        let content: &str = row.try_get(2).map_err(|e| Error::database(&place, DOING, e))?;
        let entry = serde_json::from_str(content).map_err(|_| Error::Damaged {
            place: place.clone(),
            what: "entry",
            value: content.chars().take(80).collect(),
        })?;
        Ok((entry, content.len()))
    })
    .await
}

fn columns(row: &Row) -> Result<Columns, tokio_postgres::Error> {
    let text = |at: usize| row.try_get(at).map(unescaped);
    let option = |at: usize| row.try_get(at).map(|text: Option<String>| text.map(unescaped));
    Ok(Columns {
        site: text(2)?,
        job: text(3)?,
        generation: row.try_get(4)?,
        owner: option(5)?,
        project: option(6)?,
        name: text(7)?,
        application: text(8)?,
        queue: text(9)?,
        state: text(10)?,
        exit: option(11)?,
        started: row.try_get(12)?,
        ended: row.try_get(13)?,
        nodes: row.try_get(14)?,
        samples: row.try_get(15)?,
        lost: row.try_get(16)?,
        used: row.try_get(17).map(|Json(text)| text)?,
        requested: row.try_get(18).map(|Json(text)| text)?,
    })
}

pub(super) async fn count(connection: &mut Connection, filter: &Filter) -> Result<u64, Error> {
    let statement = Statement::count(filter, &Postgres)?;
    let place = connection.place.clone();
    let mut count = 0_i64;
    for_each_row(connection, &statement, |row| {
        count = row.try_get(0).map_err(|e| Error::database(&place, DOING, e))?;
        Ok(true)
    })
    .await?;
    Ok(count.unsigned_abs())
}

/// The owners and projects of some jobs of a site, each with the place of its job in the parameters.
const OWNERS: &str = "SELECT wanted.place, job.owner, job.project
     FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS wanted (job, generation, place)
     JOIN job ON job.site = $1 AND job.job = wanted.job AND job.generation = wanted.generation";

/// Looks all jobs up in one statement.
pub(super) async fn visible(
    connection: &mut Connection,
    (visibility, site): (&Visibility, &str),
    ids: &[JobId],
) -> Result<BTreeSet<JobId>, Error> {
    let prepared = connection.prepared(OWNERS).await?;
    let error = |e| Error::database(&connection.place, DOING, e);
    let jobs: Vec<String> = ids.iter().map(|id| escaped(id.job().to_owned())).collect();
    let generations: Vec<i64> = ids.iter().map(|id| id.generation().into()).collect();
    let site = escaped(site.to_owned());
    let rows = connection.client.query(&prepared, &[&site, &jobs, &generations]).await;
    let mut visible = BTreeSet::new();
    for row in rows.map_err(error)? {
        let option = |at: usize| row.try_get(at).map(|text: Option<String>| text.map(unescaped));
        let (owner, project) = (option(1).map_err(error)?, option(2).map_err(error)?);
        // Counted from one.
        let at: i64 = row.try_get(0).map_err(error)?;
        let id = usize::try_from(at - 1).ok().and_then(|at| ids.get(at));
        if let Some(id) = id.filter(|_| visibility.shows(owner.as_deref(), project.as_deref())) {
            visible.insert(id.clone());
        }
    }
    Ok(visible)
}

pub(super) async fn segments(
    connection: &mut Connection,
    after: &str,
) -> Result<Vec<String>, Error> {
    let sql = "SELECT name FROM segment WHERE name > $1 ORDER BY name LIMIT $2".to_owned();
    let values = vec![Value::Text(after.to_owned()), Value::Integer(MAX_SEGMENTS as i64)];
    let place = connection.place.clone();
    let mut names = Vec::new();
    for_each_row(connection, &Statement { sql, values }, |row| {
        let name = row.try_get(0).map_err(|e| Error::database(&place, DOING, e))?;
        names.push(unescaped(name));
        Ok(true)
    })
    .await?;
    Ok(names)
}

/// Writes everything, as it is at one time.
pub(super) async fn dump(connection: &mut Connection, out: &mut dyn Write) -> Result<(), Error> {
    let place = connection.place.clone();
    let error = |e: tokio_postgres::Error| Error::database(&place, DOING, e);
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    connection.client.batch_execute(begin).await.map_err(error)?;
    for (kind, sql) in [
        ("segment", "SELECT name FROM segment ORDER BY name"),
        ("job", "SELECT content FROM job ORDER BY site, job, generation"),
    ] {
        let statement = Statement { sql: sql.to_owned(), values: Vec::new() };
        for_each_row(connection, &statement, |row| {
            let text: String = row.try_get(0).map_err(error)?;
            let text = if kind == "segment" { unescaped(text) } else { text };
            writeln!(out, "{kind} {text}").map_err(Error::Dump)?;
            Ok(true)
        })
        .await?;
    }
    connection.client.batch_execute("COMMIT").await.map_err(error)
}
