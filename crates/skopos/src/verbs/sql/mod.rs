//! `skopos sql`: asks statements in SQL about the live topics of this machine and its site.

mod answer;
mod pager;
mod candidates;
mod asker;
mod shell;

pub(crate) use self::answer::cells;
pub(crate) use self::asker::{EXAMPLES, Watching};

use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use skopos_model::duration;
use skopos_query::{Limits, MAX_SQL_BYTES, split};
use skopos_shm::Host;

use skopos_hub::Local;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::find::open_host;
use skopos_term::{Out, Style};

use self::answer::Format;
use self::asker::Asker;
use self::shell::shell;

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// Statement, or several separated by `;` [default: from --file, standard input, or a shell]
    pub(crate) statement: Option<String>,
    /// Read the statement from this file (`-` for standard input)
    #[arg(long, short, value_name = "FILE", conflicts_with = "statement")]
    pub(crate) file: Option<PathBuf>,
    /// Format of the answer [default: table]
    #[arg(long, short = 'F', value_enum)]
    pub(crate) format: Option<Format>,
    /// Include the history in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) history: Option<PathBuf>,
    /// Include the tasks of this archive [default: as for `skopos archive`]
    #[arg(long, value_name = "FILE")]
    pub(crate) archive: Option<PathBuf>,
    /// Timeout of a statement
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) timeout: Duration,
    /// Most rows of an answer
    #[arg(long, value_name = "N", default_value_t = Limits::default().rows)]
    pub(crate) max_rows: usize,
}

pub(crate) fn run(global: &Global, args: &SqlArgs) -> Result<ExitCode, Failure> {
    let format = args.format.unwrap_or(match global.style() {
        Style::Human => Format::Table,
        Style::Plain => Format::Plain,
        Style::Json => Format::Json,
    });
    let statement = match (&args.statement, &args.file) {
        (Some(statement), _) => Some(statement.clone()),
        (None, Some(file)) => Some(read(file)?),
        (None, None) if io::stdin().is_terminal() => None,
        (None, None) => Some(read(Path::new("-"))?),
    };
    let limits = Limits { deadline: args.timeout, rows: args.max_rows, ..Limits::default() };
    let asker = asker(global, args, limits)?;
    let mut out = Out::new(global.style());
    match statement {
        Some(text) => {
            for statement in split(&text) {
                asker.answer(&statement, format, &mut out)?;
            }
        }
        None => shell(&asker, format, &mut out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Answers one statement for another verb, in the format of the style.
pub(super) fn answer_for(global: &Global, statement: &str) -> Result<ExitCode, Failure> {
    let (statement, timeout) = (Some(statement.to_owned()), Limits::default().deadline);
    let (file, format, history, archive) = (None, None, None, None);
    let max_rows = Limits::default().rows;
    run(global, &SqlArgs { statement, file, format, history, archive, timeout, max_rows })
}

/// Asks the hub of this machine if there is one: it knows everything that this process can read, and more.
fn asker(global: &Global, args: &SqlArgs, limits: Limits) -> Result<Asker, Failure> {
    if args.history.is_some() || args.archive.is_some() {
        return Asker::here(kept(global, args)?, limits);
    }
    {
        let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
        match skopos_hub::client::Client::open(&dir, limits) {
            Ok(Some(client)) => Ok(Asker::hub(client, limits)),
            Ok(None) => Asker::here(Local::new(open_host(global)?), limits),
            Err(hub) => Asker::here(Local::new(host_without(hub, global)?), limits),
        }
    }
}

/// Opens the live segments of this machine because the hub does not answer. A warning says so, because the
/// answer may differ from the hub's.
pub(super) fn host_without(hub: Failure, global: &Global) -> Result<Host, Failure> {
    // Without local segments the missing hub is the failure.
    let Ok(host) = open_host(global) else { return Err(hub) };
    let why = hub.in_one_line();
    skopos_term::tell(format!("warning: {why}; the answer has only the topics of this machine"));
    Ok(host)
}

/// Opens the named history and archive, and the live segments if there are any.
fn kept(global: &Global, args: &SqlArgs) -> Result<Local, Failure> {
    let host = match &global.dir {
        Some(dir) => Host::open_dirs(vec![dir.clone()])?,
        None => Host::open()?,
    };
    let mut local = Local::new(host);
    if let Some(folder) = &args.history {
        if !folder.is_dir() {
            return Err(Failure::new(format!("there is no folder {}", folder.display())));
        }
        local = local.with_history(folder.clone());
    }
    if let Some(file) = &args.archive {
        if !file.exists() {
            return Err(Failure::new(format!("there is no archive {}", file.display()))
                .hint("`skopos run --archive FILE -- COMMAND` makes one"));
        }
        local = local.with_archive(file.clone());
    }
    Ok(local)
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let most = MAX_SQL_BYTES as u64 + 1;
    let read = match file == Path::new("-") {
        true => io::stdin().take(most).read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|f| f.take(most).read_to_string(&mut text)),
    };
    read.map_err(|e| Failure::new(format!("`{}` cannot be read", file.display())).because(&e))?;
    Ok(text)
}
