//! The same records in what one would use instead: rows of SQLite and of PostgreSQL. Both sync each transaction, and refuse
//! a record that they have.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, params};

use super::slate::{Content, Row, SCHEMA};
use crate::child::{Process, not_started};
use crate::query::postgres::Postgres;

/// A row for each record. The key is the producer's, by which a record is stored once; jobs are found by an index.
const SQLITE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    CREATE TABLE record (producer TEXT, epoch INTEGER, sequence INTEGER, job TEXT, node TEXT, time INTEGER, kind TEXT,
        schema TEXT, vals BLOB, document TEXT, PRIMARY KEY (producer, epoch, sequence)) WITHOUT ROWID;
    CREATE INDEX record_job ON record (job, time);";

const POSTGRES: &str = "CREATE TABLE record (producer text, epoch bigint, sequence bigint, job text, node text, \
    time bigint, kind text, schema text, vals float8[], document text, PRIMARY KEY (producer, epoch, sequence)); \
    CREATE INDEX record_job ON record (job, time);";

/// Stores the rows in SQLite, a transaction for each batch. Returns records a second.
pub(super) fn sqlite(dir: &Path, rows: &[Row], batch: usize) -> rusqlite::Result<f64> {
    let mut connection = Connection::open(dir.join("records.sqlite"))?;
    connection.execute_batch(SQLITE)?;
    let begun = Instant::now();
    for rows in rows.chunks(batch) {
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT OR IGNORE INTO record VALUES ('s0', 1, ?1, ?2, 'n01', ?3, ?4, ?5, ?6, ?7)",
            )?;
            for Row { sequence, job, time, content } in rows {
                match content {
                    Content::Document(kind, text) => insert.execute(params![
                        sequence,
                        job,
                        time,
                        kind.name(),
                        None::<&str>,
                        None::<Vec<u8>>,
                        text
                    ])?,
                    Content::Sample(values) => {
                        let bytes: Vec<u8> =
                            values.iter().flat_map(|value| value.to_le_bytes()).collect();
                        insert.execute(params![
                            sequence,
                            job,
                            time,
                            "sample",
                            SCHEMA,
                            bytes,
                            None::<&str>
                        ])?
                    }
                };
            }
        }
        transaction.commit()?;
    }
    Ok(rows.len() as f64 / begun.elapsed().as_secs_f64())
}

/// Copies the rows into PostgreSQL by as many connections as there are `streams`, a transaction for each batch. Returns
/// records a second. The texts are made before the clock starts.
pub(super) fn postgres(
    server: &Postgres,
    rows: &[Row],
    (streams, batch): (usize, usize),
) -> Result<f64, String> {
    server.run(POSTGRES)?;
    let share = rows.len().div_ceil(streams);
    let texts: Vec<String> =
        rows.chunks(share).enumerate().map(|(at, rows)| copies(at, rows, batch)).collect();
    let begun = Instant::now();
    let mut running = Vec::new();
    for text in texts {
        let mut process =
            Process::start(&mut server.reader()).map_err(|e| not_started("psql", &e))?;
        let mut input = process.inner().stdin.take().ok_or("psql without input")?;
        let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
        running.push((process, writing));
    }
    for (mut process, writing) in running {
        writing.join().map_err(|_| "a thread panicked")?.map_err(|e| e.to_string())?;
        let status = process.inner().wait().map_err(|e| e.to_string())?;
        if !status.success() {
            return Err(format!("psql ended with {status}"));
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let stored = server.run("SELECT count(*) FROM record")?;
    server.run("DROP TABLE record")?;
    match stored.trim().parse::<usize>() {
        Ok(count) if count == rows.len() => Ok(count as f64 / seconds),
        _ => Err(format!("PostgreSQL has {} of {} records", stored.trim(), rows.len())),
    }
}

/// Writes the input of a psql: a COPY for each batch.
fn copies(stream: usize, rows: &[Row], batch: usize) -> String {
    let mut text = String::new();
    for rows in rows.chunks(batch) {
        text.push_str("COPY record FROM STDIN;\n");
        for Row { sequence, job, time, content } in rows {
            let _ = write!(text, "s{stream}\t1\t{sequence}\t{job}\tn01\t{time}\t");
            match content {
                Content::Document(kind, document) => {
                    // COPY takes a backslash as an escape.
                    let document = document.replace('\\', "\\\\");
                    let _ = writeln!(text, "{}\t\\N\t\\N\t{document}", kind.name());
                }
                Content::Sample(values) => {
                    let values: Vec<String> = values.iter().map(f64::to_string).collect();
                    let _ = writeln!(text, "sample\t{SCHEMA}\t{{{}}}\t\\N", values.join(","));
                }
            }
        }
        text.push_str("\\.\n");
    }
    text
}
