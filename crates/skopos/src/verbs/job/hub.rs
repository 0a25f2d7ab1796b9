//! Asks the hub of this machine about jobs.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value as Json};
use skopos_hub::client::Client;
use skopos_hub::pieces::JsonRows;
use skopos_model::nearest_name;
use skopos_query::{Answer, Limits};
use skopos_term::format::printable;
use skopos_term::{Failure, Global};

/// Time for a statement. The measurements of a long job are read from its segments.
const DEADLINE: Duration = Duration::from_secs(300);

/// The most measurements of a job that are exported: a day of a job on a hundred nodes with a hundred metrics, each ten
/// seconds, has 86 million; they are better asked in SQL.
const MAX_ROWS: usize = 20_000_000;

/// The latest jobs among which a mistyped id is looked for.
const MAX_LISTED: usize = 10_000;

/// The ids that a hint names.
const MAX_NAMED: usize = 5;

/// A row of an answer.
pub(crate) type Row = Map<String, Json>;

/// The hub.
pub(crate) struct Hub {
    client: Client,
    pub(super) dir: PathBuf,
}

/// A run of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Id {
    pub(super) job: String,
    pub(super) generation: u32,
}

impl Hub {
    /// Connects to the hub of this machine.
    pub(crate) fn open(global: &Global) -> Result<Self, Failure> {
        let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
        let limits = Limits { deadline: DEADLINE, rows: MAX_ROWS, ..Limits::default() };
        let client = Client::open(&dir, limits)?.ok_or_else(|| {
            Failure::new("jobs are kept and read by a hub, and no hub runs on this machine")
                .hint("start one with `skopos up` or `skopos hub`")
        })?;
        Ok(Self { client, dir })
    }

    /// Asks a statement.
    pub(super) fn ask(&self, sql: &str) -> Result<Answer, Failure> {
        self.client.ask(sql)
    }

    /// Returns the rows of an answer, each by the names of the columns.
    pub(crate) fn rows(&self, sql: &str) -> Result<Vec<Row>, Failure> {
        let answer = self.ask(sql)?;
        let encoded = || {
            let mut rows = JsonRows::new(&answer, Duration::ZERO)?;
            let mut bytes = Vec::new();
            for batch in &answer.batches {
                bytes.extend(rows.piece(batch)?);
            }
            bytes.extend(rows.end()?);
            Ok::<_, skopos_query::arrow::error::ArrowError>(bytes)
        };
        let not_valid = |e: &dyn std::error::Error| {
            Failure::new("the answer of the hub is not valid").because(e)
        };
        let bytes = encoded().map_err(|e| not_valid(&e))?;
        let mut document: Json = serde_json::from_slice(&bytes).map_err(|e| not_valid(&e))?;
        let rows = document.get_mut("rows").map(Json::take);
        serde_json::from_value(rows.unwrap_or_default()).map_err(|e| not_valid(&e))
    }

    /// Finds the job that the user means: by its id, its id and run (`ID.g1`), or the beginning of its id.
    pub(super) fn find(&self, typed: &str) -> Result<Id, Failure> {
        let ids = |condition: &str| {
            let sql = format!(
                "SELECT job, generation FROM jobs WHERE {condition} \
                 ORDER BY started_at DESC NULLS LAST, job, generation LIMIT {MAX_LISTED}"
            );
            let rows = self.rows(&sql)?;
            Ok::<Vec<Id>, Failure>(rows.iter().filter_map(Id::of).collect())
        };
        let mut runs = ids(&format!("job = {}", quoted(typed)))?;
        if let [only] = &*runs {
            return Ok(only.clone());
        }
        if !runs.is_empty() {
            runs.sort_by_key(|run| run.generation);
            return Err(Failure::new(format!("the job `{typed}` has {} runs", runs.len()))
                .hint(format!("name one of them: {}", named(&runs))));
        }
        if let Some((job, generation)) = typed.rsplit_once(".g")
            && let Ok(generation) = generation.parse::<u32>()
        {
            let run = ids(&format!("job = {} AND generation = {generation}", quoted(job)))?;
            if let [only] = &*run {
                return Ok(only.clone());
            }
        }
        if !typed.is_empty() {
            let begun = ids(&format!("starts_with(job, {})", quoted(typed)))?;
            if let [only] = &*begun {
                return Ok(only.clone());
            }
            if !begun.is_empty() {
                let count = begun.len();
                return Err(Failure::new(format!("the ids of {count} jobs begin with `{typed}`"))
                    .hint(format!("name one of them: {}", named(&begun))));
            }
        }
        let failure = Failure::no(format!("there is no job `{typed}`"));
        let near = nearest(typed, ids("true")?.into_iter().map(|id| id.job).collect());
        Err(match near.is_empty() {
            true => failure.hint("`skopos jobs` lists the jobs"),
            false => failure.hint(format!("the nearest ids are {}", printable(&near.join(", ")))),
        })
    }
}

impl Id {
    fn of(row: &Row) -> Option<Self> {
        let job = row.get("job")?.as_str()?.to_owned();
        Some(Self { job, generation: u32::try_from(row.get("generation")?.as_u64()?).ok()? })
    }

    /// Returns the condition of SQL that this run alone fulfils.
    pub(super) fn condition(&self) -> String {
        format!("job = {} AND generation = {}", quoted(&self.job), self.generation)
    }
}

/// Formats as a user types it.
impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.job)?;
        if self.generation > 0 { write!(f, ".g{}", self.generation) } else { Ok(()) }
    }
}

/// Returns a text as a literal of SQL. A quote within it is doubled, so it cannot end the literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn named(ids: &[Id]) -> String {
    // Of several runs each is named, the first one too.
    let of = |id: &Id| match ids.iter().filter(|other| other.job == id.job).count() {
        1 => id.to_string(),
        _ => format!("{}.g{}", id.job, id.generation),
    };
    let names: Vec<String> = ids.iter().take(MAX_NAMED).map(of).collect();
    let more = if ids.len() > MAX_NAMED { ", …" } else { "" };
    format!("{}{more}", printable(&names.join(", ")))
}

/// Returns the ids that are most similar to a typed one, the most similar first.
fn nearest(typed: &str, mut ids: Vec<String>) -> Vec<String> {
    let mut near = Vec::new();
    while near.len() < MAX_NAMED {
        let Some(next) = nearest_name(typed, ids.iter().cloned()) else { break };
        ids.retain(|id| *id != next);
        near.push(next);
    }
    near
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_texts_of_sql() {
        let id = Id { job: "a'/../b' OR '1'='1".to_owned(), generation: 2 };
        assert_eq!(id.condition(), "job = 'a''/../b'' OR ''1''=''1' AND generation = 2");
        assert_eq!(id.to_string(), "a'/../b' OR '1'='1.g2");
    }

    #[test]
    fn hints_name_runs_and_near_ids() {
        let id = |job: &str, generation| Id { job: job.to_owned(), generation };
        assert_eq!(named(&[id("7", 0), id("7", 1), id("8", 0)]), "7.g0, 7.g1, 8");
        assert_eq!(named(&[id("7\u{202e}", 0)]), "7\\u{202e}", "a user chose it");
        let ids = ["4711", "4712", "x", "4711"].map(str::to_owned).to_vec();
        assert_eq!(nearest("4713", ids), ["4711", "4712"]);
    }
}
