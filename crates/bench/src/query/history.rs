//! Queries over history: a hundred million samples in sealed parts, read by our engine and by DuckDB.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::Timestamp;
use skopos_query::{Described, Engine, Limits, Node, Registry, Row as Seen, Source, Wanted};
use skopos_store::history::{self, Folder, Found};
use tokio::runtime::{Builder, Runtime};

use super::duckdb::DuckDb;
use super::names::DUCKDB;
use crate::fill_history::{Shape, fill};
use crate::plan::Plan;
use crate::report::{Better, Figure, Goal, Report, Row};
use crate::stats::median;
use skopos_term::Failure;

/// A hundred million samples: six hours of sixteen nodes with 300 topics each.
const WHOLE: Shape = Shape { samples: 100_000_000, nodes: 16, topics: 300 };
/// Two hours of them, for a short run.
const SHORT: Shape = Shape { samples: 34_560_000, ..WHOLE };

/// The beginning of the history: 2026-11-01 in UTC, in seconds since 1970.
const BEGIN: i64 = 1_793_491_200;
const SECOND: i64 = 1_000_000_000;
const HOUR: u64 = 3600;

/// The statement over the whole history: a number for each node and minute.
const MINUTES: &str = "SELECT node, time_bucket('1m', time) AS minute, avg(value) AS mean FROM samples \
     GROUP BY node, minute";

/// The same statement for DuckDB without an extension; times are in UTC.
const MINUTES_DUCKDB: &str = "SELECT node, epoch_ns(time) // 60000000000 AS minute, avg(value) FROM PARTS GROUP BY node, minute";

/// The statement for a topic over an hour.
fn an_hour(topic: &str, hour: u64, table: &str, time: &str) -> String {
    let from = BEGIN + (hour * HOUR) as i64;
    let [from, to] = [from, from + HOUR as i64].map(|s| Timestamp::from_nanos(s * SECOND));
    format!(
        "SELECT {time}, value FROM {table} WHERE topic = '{topic}' AND time >= '{from}' AND \
         time < '{to}'"
    )
}

/// A source of the folder alone, without live values.
#[derive(Debug)]
struct Sealed(Folder);

impl Source for Sealed {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(i64::MAX)
    }

    fn latest(&self, _: &Wanted, _: &mut dyn FnMut(&Seen<'_>)) {}

    fn samples(&self, _: &Wanted, _: RangeInclusive<Timestamp>, _: &mut dyn FnMut(&Seen<'_>)) {}

    fn history(&self, times: &RangeInclusive<Timestamp>) -> Result<Found, history::Error> {
        self.0.find(times)
    }

    fn has_history(&self) -> bool {
        true
    }

    fn topics(&self, _: &Wanted, _: &mut dyn FnMut(&Described<'_>)) {}

    fn nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

/// Our engine and DuckDB.
struct Both<'a> {
    rounds: usize,
    engine: Engine,
    runtime: Runtime,
    duckdb: Result<&'a DuckDb, String>,
}

/// Writes the parts in `dir`, measures, and adds the rows.
pub(super) fn measure(
    plan: &Plan,
    dir: &Path,
    duckdb: Result<&DuckDb, String>,
    report: &mut Report,
) -> Result<(), Failure> {
    let shape = if plan.is_short { SHORT } else { WHOLE };
    plan.say("writing history …");
    let [minutes, hour] = rows(plan.rounds, shape, dir, duckdb)?;
    // The goal holds for a hundred million samples, so a short run does not have it.
    let goal = Some(Goal::AtMost(2000.0)).filter(|_| !plan.is_short);
    report.add([goal.into_iter().fold(minutes, Row::goal), hour.goal(Goal::AtMost(20.0))]);
    let files = std::fs::read_dir(dir)?.flatten().filter_map(|entry| entry.metadata().ok());
    let megabytes = files.map(|file| file.len()).sum::<u64>() as f64 / 1e6;
    report.note(format!(
        "history: {} nodes with {} topics each, a sample a second, {megabytes:.0} MB of Parquet; DuckDB \
         reads the same files; from the text of the statement to all rows of its answer, with the files \
         in the page cache; the first question of each is not counted",
        shape.nodes, shape.topics
    ));
    Ok(())
}

/// The rows of both statements.
fn rows(
    rounds: usize,
    shape: Shape,
    dir: &Path,
    duckdb: Result<&DuckDb, String>,
) -> Result<[Row; 2], Failure> {
    // A topic has a sample a second.
    let rows = shape.samples / (shape.nodes * shape.topics);
    let end = Timestamp::from_nanos((BEGIN + rows as i64 - 1) * SECOND);
    let samples = fill(dir, shape, end)?;
    let engine = Engine::new(Registry::new(Arc::new(Sealed(Folder::new(dir)))));
    let engine = engine.map_err(|e| Failure::new("the query engine cannot start").because(&e))?;
    let runtime = Builder::new_multi_thread().enable_time().build()?;
    let both = Both { rounds, engine, runtime, duckdb };
    let parts = format!("read_parquet('{}')", dir.join("part-*.parquet").display());
    let millions = samples as f64 / 1e6;
    let case = format!("history, {millions:.0} million samples");
    let theirs = MINUTES_DUCKDB.replace("PARTS", &parts);
    let groups = shape.nodes * rows.div_ceil(60);
    let minutes = both.row(&case, "a mean for each node and minute", |_| {
        (MINUTES.to_owned(), theirs.clone(), groups)
    });
    let hour = both.row(&case, "a topic for an hour", |turn| {
        let turn = turn as u64;
        let (node, at) = (turn % shape.nodes, turn * 7 % shape.topics);
        let (topic, hour) = (format!("n{node:04}/bench/metric_{at:03}"), turn % (rows / HOUR));
        let own = an_hour(&topic, hour, "samples", "time");
        (own, an_hour(&topic, hour, &parts, "epoch_ns(time)"), HOUR)
    });
    Ok([minutes, hour])
}

impl Both<'_> {
    /// Measures both in turns. `question` returns for each turn our statement, DuckDB's, and the number
    /// of rows.
    fn row(
        &self,
        case: &str,
        metric: &str,
        question: impl Fn(usize) -> (String, String, u64),
    ) -> Row {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut failed: [Option<String>; 2] = [None, self.duckdb.as_ref().err().cloned()];
        for turn in 0..=self.rounds {
            let (own, other, rows) = question(turn);
            let results = [self.ours(&own, rows), self.theirs(&other, rows)];
            for ((took, into), failed) in
                results.into_iter().zip([&mut ours, &mut theirs]).zip(&mut failed)
            {
                match took {
                    // The first turn opens files.
                    Ok(took) if turn > 0 => into.push(took.as_secs_f64() * 1e3),
                    Ok(_) => {}
                    Err(why) => *failed = failed.take().or(Some(why)),
                }
            }
        }
        let figure = |failed: Option<String>, values: &[f64]| match failed {
            Some(why) => Figure::Unknown(why),
            None => Figure::Known(median(values)),
        };
        let [own, other] = failed;
        Row::of(case, metric, "ms", figure(own, &ours), Better::Lower)
            .peer(DUCKDB, figure(other, &theirs))
            .rounds("skopos", &ours)
            .rounds(DUCKDB, &theirs)
    }

    fn ours(&self, sql: &str, rows: u64) -> Result<Duration, String> {
        let begun = Instant::now();
        let answer =
            self.runtime.block_on(self.engine.query(&Caller::Owner, sql, &Limits::default()));
        let answer = answer.map_err(|e| e.to_string())?;
        checked(begun.elapsed(), answer.rows() as u64, rows)
    }

    fn theirs(&self, sql: &str, rows: u64) -> Result<Duration, String> {
        let (took, found) = self.duckdb.clone()?.timed(sql)?;
        checked(took, found as u64, rows)
    }
}

fn checked(took: Duration, found: u64, rows: u64) -> Result<Duration, String> {
    if found == rows { Ok(took) } else { Err(format!("{found} rows instead of {rows}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_about_the_past_has_all_of_its_rows() {
        let dir = tempfile::tempdir().expect("a directory");
        let shape = Shape { samples: 2 * 8 * 2 * HOUR, nodes: 2, topics: 8 };
        let missing = Err("not installed".to_owned());
        for row in rows(2, shape, dir.path(), missing).expect("history") {
            let row = serde_json::to_value(row).expect("rows are plain");
            assert!(row["value"].is_f64(), "{row}");
            assert_eq!(row["rounds"]["skopos"].as_array().map(Vec::len), Some(2), "{row}");
            assert_eq!(row["peers"][DUCKDB], "unknown: not installed");
        }
    }
}
