//! Changes.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::stream;
use skopos_model::job::JobId;
use skopos_store::jobs::catalogue::{Error, Stored};
use skopos_store::jobs::{Applied, Change, JobEntry};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Statement, Transaction};

use super::connection::Connection;
use super::text::escaped;

/// The most entries of a statement, and the bytes beyond which it gets no further one. A statement has its entries in
/// memory three times: here, on the way, and in the server. Two statements are made before the first one is sent, so they are
/// short; the server needs some ten milliseconds for one, beside which the cost of a further statement is small.
const STATEMENT_ROWS: usize = 64;
const STATEMENT_BYTES: usize = 8 << 20;

/// Statements that are on the way at a time: the server works on one while it gets the next.
const STATEMENTS: usize = 2;

/// Writes entries, each unless the known one has more parts. Each parameter is a column of all of them.
const WRITE: &str = "INSERT INTO job (site, job, generation, owner, project, name, application, queue, state, exit,
        started, ended, nodes, samples, lost, used, requested, parts, hosts, tags, words, content)
     SELECT site, job, generation, owner, project, name, application, queue, state, exit,
        started, ended, nodes, samples, lost, used::jsonb, requested::jsonb, parts::int8multirange,
        hosts::text[], tags::text[], array_to_tsvector(string_to_array(words, ' ')), content
     FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
        $15::bigint[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[])
        AS new (site, job, generation, owner, project, name, application, queue, state, exit,
        started, ended, nodes, samples, lost, used, requested, parts, hosts, tags, words, content)
     ON CONFLICT (site, job, generation) DO UPDATE SET owner = excluded.owner, project = excluded.project,
        name = excluded.name, application = excluded.application, queue = excluded.queue, state = excluded.state,
        exit = excluded.exit, started = excluded.started, ended = excluded.ended, nodes = excluded.nodes,
        samples = excluded.samples, lost = excluded.lost, used = excluded.used, requested = excluded.requested,
        parts = excluded.parts, hosts = excluded.hosts, tags = excluded.tags, words = excluded.words,
        content = excluded.content
     WHERE NOT (excluded.parts <@ job.parts AND excluded.parts <> job.parts)";

/// Removes jobs. Each parameter is a column of their keys.
const REMOVE: &str = "DELETE FROM job
     USING unnest($1::text[], $2::text[], $3::bigint[]) AS old (site, job, generation)
     WHERE job.site = old.site AND job.job = old.job AND job.generation = old.generation";

/// Returns true if the server ended a transaction because it and another one waited for each other.
pub(super) fn is_deadlock(e: &Error) -> bool {
    let Error::Database { source, .. } = e else { return false };
    let code = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    matches!(code, Some(&SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE))
}

/// The parameters of [`WRITE`].
#[derive(Default)]
struct Columns {
    site: Vec<String>,
    job: Vec<String>,
    generation: Vec<i64>,
    owner: Vec<Option<String>>,
    project: Vec<Option<String>>,
    name: Vec<String>,
    application: Vec<String>,
    queue: Vec<String>,
    state: Vec<String>,
    exit: Vec<Option<String>>,
    started: Vec<i64>,
    ended: Vec<i64>,
    nodes: Vec<i64>,
    samples: Vec<i64>,
    lost: Vec<i64>,
    used: Vec<String>,
    requested: Vec<String>,
    parts: Vec<String>,
    hosts: Vec<String>,
    tags: Vec<String>,
    words: Vec<String>,
    content: Vec<String>,
    /// Number of words for which there was no room. It is not a parameter.
    unindexed_words: u64,
}

impl Columns {
    fn push(&mut self, entry: Stored) {
        let Stored { columns, hosts, tags, words, unindexed_words, parts, document } = entry;
        self.site.push(escaped(columns.site));
        self.job.push(escaped(columns.job));
        self.generation.push(columns.generation);
        self.owner.push(columns.owner.map(escaped));
        self.project.push(columns.project.map(escaped));
        self.name.push(escaped(columns.name));
        self.application.push(escaped(columns.application));
        self.queue.push(escaped(columns.queue));
        self.state.push(columns.state);
        self.exit.push(columns.exit);
        self.started.push(columns.started);
        self.ended.push(columns.ended);
        self.nodes.push(columns.nodes);
        self.samples.push(columns.samples);
        self.lost.push(columns.lost);
        self.used.push(columns.used);
        self.requested.push(columns.requested);
        self.parts.push(parts.to_string());
        self.hosts.push(array(hosts));
        self.tags.push(array(tags));
        // Words have letters and digits alone.
        self.words.push(words);
        self.content.push(document);
        self.unindexed_words += unindexed_words;
    }

    /// Writes the entries, and returns the number of those that were written.
    async fn write(
        &self,
        transaction: &Transaction<'_>,
        statement: &Statement,
    ) -> Result<u64, tokio_postgres::Error> {
        let parameters: [&(dyn ToSql + Sync); 22] = [
            &self.site,
            &self.job,
            &self.generation,
            &self.owner,
            &self.project,
            &self.name,
            &self.application,
            &self.queue,
            &self.state,
            &self.exit,
            &self.started,
            &self.ended,
            &self.nodes,
            &self.samples,
            &self.lost,
            &self.used,
            &self.requested,
            &self.parts,
            &self.hosts,
            &self.tags,
            &self.words,
            &self.content,
        ];
        transaction.execute(statement, &parameters).await
    }
}

/// Returns the text of an array of PostgreSQL.
fn array(texts: BTreeSet<String>) -> String {
    let mut array = "{".to_owned();
    for text in texts {
        array.push_str(if array.len() > 1 { ",\"" } else { "\"" });
        for c in escaped(text).chars() {
            if matches!(c, '"' | '\\') {
                array.push('\\');
            }
            array.push(c);
        }
        array.push('"');
    }
    array.push('}');
    array
}

/// Returns the entries of a change in the order in which they are written: rounds, of which each has a job once. In a round
/// they have the order of their keys, in which every hub locks rows; of a job that the change has more than once, the later
/// entries are in later rounds.
pub(super) fn rounds<'c>(change: &Change<'c>) -> Vec<Vec<&'c JobEntry>> {
    let mut of_key: BTreeMap<(&str, &JobId), Vec<&JobEntry>> = BTreeMap::new();
    for entry in change.entries {
        of_key.entry((&entry.site, &entry.id)).or_default().push(entry);
    }
    let rounds = of_key.values().map(Vec::len).max().unwrap_or(0);
    let round = |at: usize| of_key.values().filter_map(|all| all.get(at).copied()).collect();
    (0..rounds).map(round).collect()
}

/// The entries of a round as parameters of [`WRITE`]. They are made one statement after another, while the server works on
/// those before.
struct Statements<'r> {
    place: &'r str,
    entries: std::slice::Iter<'r, &'r JobEntry>,
}

impl Iterator for Statements<'_> {
    type Item = Result<Columns, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut columns, mut bytes) = (Columns::default(), 0);
        while columns.site.len() < STATEMENT_ROWS
            && bytes < STATEMENT_BYTES
            && let Some(entry) = self.entries.next()
        {
            let stored = Stored::of(entry).map_err(|source| Error::Entry {
                place: self.place.to_owned(),
                job: entry.id.to_string(),
                site: entry.site.clone(),
                source,
            });
            match stored {
                Ok(stored) => {
                    bytes += stored.document.len();
                    columns.push(stored);
                }
                Err(e) => return Some(Err(e)),
            }
        }
        (!columns.site.is_empty()).then_some(Ok(columns))
    }
}

/// Makes a change. `rounds` are its entries in the order of [`rounds`].
pub(super) async fn apply(
    connection: &mut Connection,
    change: &Change<'_>,
    rounds: &[Vec<&JobEntry>],
) -> Result<Applied, Error> {
    let remove = connection.prepared(REMOVE).await?;
    let write = connection.prepared(WRITE).await?;
    let forget = connection.prepared("DELETE FROM segment WHERE name = ANY ($1)").await?;
    let add = "INSERT INTO segment SELECT unnest($1::text[]) ON CONFLICT DO NOTHING";
    let add = connection.prepared(add).await?;
    let place = connection.place.clone();
    let error = |e: tokio_postgres::Error| Error::database(&place, "a change cannot be made", e);
    let transaction = connection.client.transaction().await.map_err(error)?;
    let mut applied = Applied::default();
    if !change.removed.is_empty() {
        let keys: BTreeSet<_> = change.removed.iter().map(|key| (&key.site, &key.id)).collect();
        let sites: Vec<String> = keys.iter().map(|(site, _)| escaped((*site).clone())).collect();
        let jobs: Vec<String> = keys.iter().map(|(_, id)| escaped(id.job().to_owned())).collect();
        let generations: Vec<i64> = keys.iter().map(|(_, id)| id.generation().into()).collect();
        let removed = transaction.execute(&remove, &[&sites, &jobs, &generations]).await;
        applied.removed = removed.map_err(error)?;
    }
    for round in rounds {
        let (transaction, write) = (&transaction, &write);
        let statements = stream::iter(Statements { place: &place, entries: round.iter() });
        let written = statements.map(|columns| async move {
            let columns = columns?;
            let count = columns.write(transaction, write).await.map_err(error)?;
            Ok::<_, Error>((count, columns.unindexed_words))
        });
        let mut written = std::pin::pin!(written.buffered(STATEMENTS));
        while let Some(written) = written.next().await {
            let (count, unindexed_words) = written?;
            applied.written += count;
            applied.unindexed_words += unindexed_words;
        }
    }
    applied.older = change.entries.len() as u64 - applied.written;
    for (statement, names) in [(&forget, change.removed_segments), (&add, change.segments)] {
        let names: BTreeSet<&String> = names.iter().collect();
        let names: Vec<String> = names.into_iter().map(|name| escaped(name.clone())).collect();
        if !names.is_empty() {
            transaction.execute(statement, &[&names]).await.map_err(error)?;
        }
    }
    transaction.commit().await.map_err(error)?;
    Ok(applied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_few_entries_and_a_round_each_job_once() {
        const REST: usize = 22;
        const JOBS: usize = 2 * STATEMENT_ROWS + REST;
        let entry =
            |at: usize| JobEntry::new("s", JobId::new(format!("{at:05}"), 0).expect("an id"));
        let entries: Vec<JobEntry> = (0..JOBS).rev().chain(0..JOBS).map(entry).collect();
        let rounds = rounds(&Change { entries: &entries, ..Change::default() });
        assert_eq!(rounds.len(), 2);
        for round in &rounds {
            let statements = Statements { place: "a database", entries: round.iter() };
            let statements = statements.collect::<Result<Vec<_>, _>>().expect("statements");
            let lengths: Vec<usize> = statements.iter().map(|of| of.content.len()).collect();
            assert_eq!(lengths, [STATEMENT_ROWS, STATEMENT_ROWS, REST]);
            let jobs: Vec<&String> = statements.iter().flat_map(|of| &of.job).collect();
            assert!(jobs.is_sorted_by(|a, b| a < b), "{jobs:?}");
        }
    }
}
