//! `skopos sql`: questions in SQL about what is live on this machine.

mod answer;
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
    /// The statement, or several with `;` between them [default: from --file, standard input, or a shell]
    pub(crate) statement: Option<String>,
    /// Read the statement from this file (`-` for standard input)
    #[arg(long, short, value_name = "FILE", conflicts_with = "statement")]
    pub(crate) file: Option<PathBuf>,
    /// What the answer is printed as [default: table]
    #[arg(long, short = 'F', value_enum)]
    pub(crate) format: Option<Format>,
    /// Ask what is in this folder of history, beside what is live
    #[arg(long, value_name = "DIR")]
    pub(crate) history: Option<PathBuf>,
    /// Ask about the tasks in this archive [default: as for `skopos archive`]
    #[arg(long, value_name = "FILE")]
    pub(crate) archive: Option<PathBuf>,
    /// How long it may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub(crate) timeout: Duration,
    /// How many rows the answer may have
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
    let limits = Limits { deadline: args.timeout, rows: args.max_rows };
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

/// The hub of this machine, if there is one, knows all that this process could find out, and more.
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

/// The machine's live segments, where the hub was to be asked and cannot be. Whoever asked is told: the
/// answer is another one than the hub's.
pub(super) fn host_without(hub: Failure, global: &Global) -> Result<Host, Failure> {
    // Without anything here to ask, the hub is what is missing.
    let Ok(host) = open_host(global) else { return Err(hub) };
    let why = hub.in_one_line();
    skopos_term::tell(format!("warning: {why}; the answer is only of what this machine publishes"));
    Ok(host)
}

/// What was named, beside what is live, which need not be.
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
