//! DuckDB, in a Python process that times its own answers: a row for each topic, which is the key.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use skopos_model::unpoisoned;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::feed::{Feed, Row};
use super::load::{Load, Slice, Store};
use super::question::Question;
use crate::child::{Process, not_started};
use crate::stats::Latencies;

/// The program in the Python process.
const SCRIPT: &str = include_str!("duckdb_child.py");

/// The path at which `scripts/setup bench` installs it, in the repository's root.
const PYTHON: &str = "bench/.venv/bin/python3";

/// A private DuckDB.
pub(super) struct DuckDb {
    input: Arc<Mutex<ChildStdin>>,
    output: Mutex<BufReader<ChildStdout>>,
    pub(super) version: String,
    _process: Process,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Measured {
    nanos: Vec<u64>,
    seconds: f64,
}

#[derive(Deserialize)]
struct Timed {
    nanos: u64,
    rows: usize,
}

#[derive(Deserialize)]
struct Values {
    values: Vec<f64>,
}

/// Starts the process.
pub(super) fn start() -> Result<(Arc<DuckDb>, Feed), String> {
    let python = if Path::new(PYTHON).exists() { PYTHON } else { "python3" };
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process =
        Process::start(command.stderr(Stdio::null())).map_err(|e| not_started("python3", &e))?;
    let input = process.inner().stdin.take().ok_or("python3 without input")?;
    let output = process.inner().stdout.take().ok_or("python3 without output")?;
    let (input, output) = (Arc::new(Mutex::new(input)), Mutex::new(BufReader::new(output)));
    let mut duckdb = DuckDb { input, output, version: String::new(), _process: process };
    let version = duckdb.ask::<Version>(&json!({}));
    duckdb.version = version.map_err(|_| "python3 has no module duckdb".to_owned())?.version;
    let fed = duckdb.input.clone();
    let feed = move |rows: &[Row]| {
        let topics: Vec<&str> = rows.iter().map(|row| row.topic.as_str()).collect();
        let times: Vec<i64> = rows.iter().map(|row| row.time).collect();
        let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
        match rows {
            [] => Ok(()),
            _ => say(&fed, &json!({ "feed": (topics, times, values) })),
        }
    };
    Ok((Arc::new(duckdb), Box::new(feed)))
}

fn say(input: &Mutex<ChildStdin>, message: &impl Serialize) -> Result<(), String> {
    let mut line = serde_json::to_vec(message).map_err(|e| e.to_string())?;
    line.push(b'\n');
    let mut input = unpoisoned(input.lock());
    input.write_all(&line).and_then(|()| input.flush()).map_err(|e| e.to_string())
}

impl DuckDb {
    fn ask<T: DeserializeOwned>(&self, message: &Value) -> Result<T, String> {
        let mut output: MutexGuard<'_, _> = unpoisoned(self.output.lock());
        say(&self.input, message)?;
        let mut line = String::new();
        output.read_line(&mut line).map_err(|e| e.to_string())?;
        let said: Value = serde_json::from_str(&line).map_err(|e| e.to_string())?;
        match said["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => serde_json::from_value(said).map_err(|e| e.to_string()),
        }
    }

    /// The time of a statement, and its number of rows.
    pub(super) fn timed(&self, sql: &str) -> Result<(Duration, usize), String> {
        let timed: Timed = self.ask(&json!({ "timed": { "sql": sql } }))?;
        Ok((Duration::from_nanos(timed.nanos), timed.rows))
    }
}

impl Store for Arc<DuckDb> {
    fn measure(&self, load: &Load<'_>) -> Result<Slice, String> {
        let statements: Vec<String> = load.questions.iter().map(Question::keyed).collect();
        let measured: Measured = self.ask(&json!({ "measure": {
            "statements": statements,
            "complexity": load.complexity(),
            "clients": load.clients,
            "seconds": load.slice.as_secs_f64(),
        } }))?;
        let mut latencies = Latencies::new();
        measured.nanos.iter().for_each(|nanos| latencies.record(*nanos));
        let per_second = latencies.len() as f64 / measured.seconds;
        Ok(Slice { latencies, per_second })
    }

    fn values(&self, question: &Question) -> Result<Vec<f64>, String> {
        Ok(self.ask::<Values>(&json!({ "values": question.keyed() }))?.values)
    }
}
