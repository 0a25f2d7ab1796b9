//! Asks a statement of the hub of this machine, or of an engine in this process, and prints the answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::Topic;
use skopos_query::{Answer, Engine, Error, Limits, Registry, Source};

use skopos_hub::client::{Changes, Client};
use skopos_hub::jobs::JobsPlace;
use skopos_hub::tables::Stores;
use skopos_hub::{Change, Local, Pulse, Question, RulesPlace, Standing, Standings, tables};

use super::answer::{self, Format, show};
use super::candidates::Names;
use super::pager::Pager;
use skopos_term::Failure;
use skopos_term::state;
use skopos_term::{Out, tell};

/// Three statements that have answers on every machine, for newcomers.
pub(crate) const EXAMPLES: [&str; 3] = [
    "SELECT topic, value, unit, age FROM latest WHERE topic LIKE '%/load/%'",
    "SELECT node, instance, available_bytes / total_bytes AS free FROM fs ORDER BY free",
    "SELECT time_bucket('10s', time) AS at, avg(value) FROM samples WHERE family = 'mem' \
     AND metric = 'available_bytes' GROUP BY at ORDER BY at DESC LIMIT 6",
];

/// A client that asks statements and prints the answers.
pub(crate) struct Asker {
    engine: EngineOrHub,
    limits: Limits,
    /// The path of the archive of tasks, which may not exist.
    archive: Option<PathBuf>,
}

/// A standing question.
pub(crate) enum Watching {
    /// This process answers.
    Here { standing: Box<Standing>, runtime: tokio::runtime::Runtime, _pulse: Pulse },
    /// The hub of this machine answers.
    Hub(Changes),
}

impl Watching {
    /// Starts a standing question about the topics of this machine.
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
        let question = Question { caller: Caller::Owner, sql: sql.to_owned(), every, deadline };
        let standings = Standings::new(&engine);
        let standing = runtime.block_on(standings.ask(question, news)).map_err(|e| failed(&e))?;
        Ok(Self::Here { standing: Box::new(standing), runtime, _pulse: pulse })
    }

    /// Returns the next change, at first the whole answer; `None` without a change within `patience`.
    pub(crate) fn next(
        &mut self,
        patience: Option<Duration>,
    ) -> Result<Option<Arc<Change>>, Failure> {
        match self {
            Self::Here { standing, runtime, .. } => runtime.block_on(async {
                let change = match patience {
                    Some(patience) => tokio::time::timeout(patience, standing.next()).await,
                    None => Ok(standing.next().await),
                };
                change.ok().transpose().map_err(|e| failed(&e))
            }),
            Self::Hub(changes) => Ok(changes.next(patience)?.map(Arc::new)),
        }
    }
}

/// The engine that answers.
enum EngineOrHub {
    /// An engine in this process, with the topics of this machine.
    Here { engine: Box<Engine>, runtime: tokio::runtime::Runtime },
    /// The hub of this machine answers.
    Hub(Client),
}

impl Asker {
    /// A client of an engine in this process, with the topics of this machine.
    pub(crate) fn here(local: Local, limits: Limits) -> Result<Self, Failure> {
        let archive = local.archive_file().map(Path::to_path_buf);
        let (engine, runtime) = engine(local)?;
        Ok(Self {
            engine: EngineOrHub::Here { engine: Box::new(engine), runtime },
            limits,
            archive,
        })
    }

    /// A client of the hub.
    pub(crate) fn hub(client: Client, limits: Limits) -> Self {
        Self { engine: EngineOrHub::Hub(client), limits, archive: state::archive() }
    }

    /// Answers one statement to standard output.
    pub(crate) fn answer(&self, sql: &str, format: Format, out: &mut Out) -> Result<(), Failure> {
        self.answer_on(sql, format, None, out)
    }

    /// Answers one statement; an answer of more lines than `screen` goes through a pager.
    pub(crate) fn answer_on(
        &self,
        sql: &str,
        format: Format,
        screen: Option<usize>,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let answer = self.ask(sql)?;
        let took = begun.elapsed();
        if let Some(note) = self.note(sql) {
            tell(note);
        }
        let is_long = screen.is_some_and(|screen| answer::lines(&answer, format) > screen);
        match is_long.then(|| Pager::start(out)).flatten() {
            Some(pager) => pager.show(|out| show(&answer, format, took, out)),
            None => show(&answer, format, took, out),
        }
    }

    /// Explains empty tables of tasks, if the statement names such a table and the archive does not exist.
    fn note(&self, sql: &str) -> Option<String> {
        let mut words = sql.split(|c: char| !c.is_alphanumeric() && c != '_');
        let is_asked =
            words.any(|w| ["tasks", "parallel_jobs"].iter().any(|t| t.eq_ignore_ascii_case(w)));
        let file = self.archive.as_ref().filter(|file| is_asked && !file.exists())?;
        let file = file.display();
        Some(format!("note: {file} does not exist yet: `skopos run --archive` keeps tasks there"))
    }

    fn ask(&self, sql: &str) -> Result<Answer, Failure> {
        match &self.engine {
            EngineOrHub::Here { engine, runtime } => runtime
                .block_on(engine.query(&Caller::Owner, sql, &self.limits))
                .map_err(|e| failed(&e)),
            EngineOrHub::Hub(client) => client.ask(sql),
        }
    }

    /// Returns the names that completion offers. A statement that fails yields no names.
    pub(crate) fn names(&self) -> Names {
        let rows = |sql| {
            let answer = self.ask(sql).ok();
            answer.and_then(|answer| answer::all_cells(&answer, "").ok()).unwrap_or_default()
        };
        let columns = "SELECT table_name, column_name FROM information_schema.columns \
             WHERE table_schema = 'live'";
        let pair = |row: Vec<String>| {
            row.try_into().ok().map(|[table, column]: [String; 2]| (table, column))
        };
        Names {
            topics: rows("SELECT topic FROM topics").into_iter().flatten().collect(),
            columns: rows(columns).into_iter().filter_map(pair).collect(),
        }
    }
}

fn engine(local: Local) -> Result<(Engine, tokio::runtime::Runtime), Failure> {
    let archive = local.archive_file().map(Path::to_path_buf);
    let traces = local.traces_folder().map(Path::to_path_buf);
    let local = Arc::new(local);
    let source: Arc<dyn Source> = local.clone();
    let mut registry = Registry::new(source.clone());
    let jobs = Arc::new(JobsPlace::without_hub(state::jobs()));
    let stores = Stores { archive, traces, jobs, rules: RulesPlace::default() };
    let registered = tables::register(
        &mut registry,
        &source,
        stores,
        Box::new(move |topic: &Topic| local.insight_info(topic)),
    );
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
