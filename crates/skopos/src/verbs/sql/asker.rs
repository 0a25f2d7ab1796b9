//! Who answers a statement, and how the answer is shown.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_query::{Answer, Engine, Error, Limits, Registry, Source};

use skopos_hub::client::{Changes, Client};
use skopos_hub::{Change, Local, Pulse, Standing, insight_info, tables};

use super::answer::{self, Format, show};
use skopos_term::Failure;
use skopos_term::state;
use skopos_term::{Out, tell};

/// Three questions that have answers on every machine, for whoever begins.
pub(crate) const EXAMPLES: [&str; 3] = [
    "SELECT topic, value, unit, age FROM latest WHERE topic LIKE '%/load/%'",
    "SELECT node, instance, available_bytes / total_bytes AS free FROM fs ORDER BY free",
    "SELECT time_bucket('10s', time) AS at, avg(value) FROM samples WHERE family = 'mem' \
     AND metric = 'available_bytes' GROUP BY at ORDER BY at DESC LIMIT 6",
];

/// Asks, and shows the answer.
pub(crate) struct Asker {
    whom: Whom,
    limits: Limits,
    /// Where the archive of tasks is, or would be.
    archive: Option<PathBuf>,
}

/// A question that stands, whoever answers it.
pub(crate) enum Watching {
    /// This process.
    Here { standing: Box<Standing>, runtime: tokio::runtime::Runtime, _pulse: Pulse },
    /// The hub of this machine.
    Hub(Changes),
}

impl Watching {
    /// What is published on this machine.
    pub(crate) fn here(
        hosts: [skopos_shm::Host; 2],
        sql: &str,
        every: Option<Duration>,
        deadline: Duration,
    ) -> Result<Self, Failure> {
        let [read, listened] = hosts;
        let pulse = Pulse::start(listened);
        let pulse = pulse.map_err(|e| Failure::new("no thread can be started").because(&e))?;
        let (engine, runtime) = engine(Local::new(read))?;
        let news = vec![pulse.follow()];
        let standing = Standing::new(Arc::new(engine), sql.to_owned(), every, deadline, news);
        let standing = runtime.block_on(standing).map_err(|e| failed(&e))?;
        Ok(Self::Here { standing: Box::new(standing), runtime, _pulse: pulse })
    }

    /// What changed, the first time the whole answer; `None` if nothing did within `patience`.
    pub(crate) fn next(&mut self, patience: Option<Duration>) -> Result<Option<Change>, Failure> {
        match self {
            Self::Here { standing, runtime, .. } => runtime.block_on(async {
                let change = match patience {
                    Some(patience) => tokio::time::timeout(patience, standing.next()).await,
                    None => Ok(standing.next().await),
                };
                change.ok().transpose().map_err(|e| failed(&e))
            }),
            Self::Hub(changes) => changes.next(patience),
        }
    }
}

/// Who answers.
enum Whom {
    /// This process, of what is published on this machine.
    Here { engine: Box<Engine>, runtime: tokio::runtime::Runtime },
    /// The hub of this machine.
    Hub(Client),
}

impl Asker {
    /// Of what is published on this machine.
    pub(crate) fn here(local: Local, limits: Limits) -> Result<Self, Failure> {
        let archive = local.archive_file().map(Path::to_path_buf);
        let (engine, runtime) = engine(local)?;
        Ok(Self { whom: Whom::Here { engine: Box::new(engine), runtime }, limits, archive })
    }

    /// Of what the hub knows.
    pub(crate) fn hub(client: Client, limits: Limits) -> Self {
        Self { whom: Whom::Hub(client), limits, archive: state::archive() }
    }

    /// Answers one statement to standard output.
    pub(crate) fn answer(&self, sql: &str, format: Format, out: &mut Out) -> Result<(), Failure> {
        let begun = Instant::now();
        let answer = self.ask(sql)?;
        if let Some(note) = self.note(sql) {
            tell(note);
        }
        show(&answer, format, begun.elapsed(), out)
    }

    /// Why tables of tasks are empty, if a statement seems to be about one and they are.
    fn note(&self, sql: &str) -> Option<String> {
        let mut words = sql.split(|c: char| !c.is_alphanumeric() && c != '_');
        let is_asked = words.any(|w| ["tasks", "jobs"].iter().any(|t| t.eq_ignore_ascii_case(w)));
        let file = self.archive.as_ref().filter(|file| is_asked && !file.exists())?;
        let file = file.display();
        Some(format!("note: no task was kept in {file} yet: `skopos run --archive` does"))
    }

    fn ask(&self, sql: &str) -> Result<Answer, Failure> {
        match &self.whom {
            Whom::Here { engine, runtime } => {
                runtime.block_on(engine.query(sql, &self.limits)).map_err(|e| failed(&e))
            }
            Whom::Hub(client) => client.ask(sql),
        }
    }

    /// Names of tables, topics and columns, for completion; none if they cannot be had.
    pub(crate) fn names(&self) -> Vec<String> {
        const NAMES: &str = "SELECT topic FROM topics UNION SELECT table_name FROM \
             information_schema.tables UNION SELECT column_name FROM information_schema.columns";
        let Ok(answer) = self.ask(NAMES) else { return Vec::new() };
        answer::all_cells(&answer, "").unwrap_or_default().into_iter().flatten().collect()
    }
}

fn engine(local: Local) -> Result<(Engine, tokio::runtime::Runtime), Failure> {
    let archive = local.archive_file().map(Path::to_path_buf);
    let source: Arc<dyn Source> = Arc::new(local);
    let mut registry = Registry::new(source.clone());
    let registered = tables::register(&mut registry, &source, archive, Box::new(insight_info));
    let engine = registered.and_then(|()| Engine::new(registry));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    let runtime = runtime.map_err(|e| Failure::new("no threads can be started").because(&e))?;
    Ok((engine.map_err(|e| failed(&e))?, runtime))
}

fn failed(error: &Error) -> Failure {
    let failure = Failure::new(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
