//! SQL on this machine's live values: what the engine reads, and how an answer is shown.

mod local;
mod answer;
mod shell;

pub(crate) use answer::Format;
pub(crate) use local::Local;
pub(crate) use shell::shell;

use std::sync::Arc;
use std::time::Instant;

use skopos_query::{Engine, Error, Limits};

use self::answer::show;
use crate::failure::Failure;
use crate::out::Out;

/// Three questions that have answers on every machine, for whoever begins.
pub(crate) const EXAMPLES: [&str; 3] = [
    "SELECT topic, value, unit, age FROM latest WHERE topic LIKE '%/load/%'",
    "SELECT node, instance, available_bytes / total_bytes AS free FROM fs ORDER BY free",
    "SELECT time_bucket('10s', time) AS at, avg(value) FROM samples WHERE family = 'mem' \
     AND metric = 'available_bytes' GROUP BY at ORDER BY at DESC LIMIT 6",
];

/// Asks, and shows the answer.
pub(crate) struct Asker {
    engine: Engine,
    runtime: tokio::runtime::Runtime,
    limits: Limits,
}

impl Asker {
    pub(crate) fn new(local: Local, limits: Limits) -> Result<Self, Failure> {
        let engine = Engine::new(Arc::new(local), std::collections::BTreeMap::new());
        let engine = engine.map_err(|e| failed(&e))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
        let runtime = runtime.map_err(|e| Failure::new("no threads can be started").because(&e))?;
        Ok(Self { engine, runtime, limits })
    }

    /// Answers one statement to standard output.
    pub(crate) fn answer(&self, sql: &str, format: Format, out: &mut Out) -> Result<(), Failure> {
        let begun = Instant::now();
        let answer = self.runtime.block_on(self.engine.query(sql, &self.limits));
        let answer = answer.map_err(|e| failed(&e))?;
        show(&answer, format, begun.elapsed(), out)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}

fn failed(error: &Error) -> Failure {
    let failure = Failure::new(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
