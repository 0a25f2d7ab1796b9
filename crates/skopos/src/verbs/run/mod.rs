//! `skopos run -- COMMAND`: one task, measured and limited.
//!
//! Standard output belongs to the task. Messages of the monitor go to standard error, and only to a terminal
//! unless an option asks for them.

mod arrow;
mod auto;
mod delivery;
mod document;
mod files;
mod job;
mod limits;
mod refused;
mod text;

use clap::Args;
use skopos_model::{duration, nearest_name};
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use skopos_model::task::{Crossing, ExitType, Files, MechanismUse, Rank, Summary};
use skopos_store::archive::Archive;
use skopos_task::{AttachError, Choice, MECHANISMS, Order, RunError, choose};

use self::delivery::Delivery;
use crate::verbs::archive;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style, tell};

/// The exit code of shells for a command that does not exist.
const NOT_FOUND: u8 = 127;
/// The exit code of shells for a command that cannot be started.
const NOT_EXECUTABLE: u8 = 126;
/// The exit code of shells for a command that SIGKILL ended.
const KILLED: i32 = 137;
/// Added to the number of the signal that ended a command.
const SIGNALLED: u8 = 128;

/// `docs/json/run-explain.schema.json`.
#[derive(Serialize)]
struct Explained<'a> {
    level: u8,
    mechanisms: &'a [MechanismUse],
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Level of detail: 1 samples now and then, 2 sees the start and end of every process, 3 counts
    /// accesses to each file and peer too
    #[arg(long, value_name = "LEVEL", default_value = "auto", value_parser = level)]
    pub(crate) level: Level,
    /// Limits of the task: memory=4GiB,wall=2h,cpu=1h,processes=100 … (4GB is 4,000,000,000,
    /// 4GiB and 4G are 4,294,967,296 bytes). `auto` limits memory to the estimate of
    /// `skopos estimate`, and runs the task once more with the maximum if that was too little
    #[arg(long = "limit", value_name = "NAME=VALUE,…")]
    pub(crate) limits: Vec<String>,
    /// Time between SIGTERM and SIGKILL for a task that exceeds a limit
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        value_parser = duration::parse,
        allow_hyphen_values = true
    )]
    pub(crate) kill_after: Duration,
    /// Write the report to this folder: summary.json, series.csv, series.arrow, report.html, and files.json
    /// at level 3
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Time between two polls, and between two rows of the series
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1s",
        value_parser = duration::parse,
        allow_hyphen_values = true
    )]
    pub(crate) series: Duration,
    /// Count the files below this folder, and their size
    #[arg(long, value_name = "PATH")]
    pub(crate) watch: Vec<PathBuf>,
    /// Name of the class of similar tasks [default: the program's name]
    #[arg(long, value_name = "CLASS")]
    pub(crate) name: Option<String>,
    /// Add the report to this archive [without FILE: the one of `skopos archive`]; `--limit auto`
    /// reads it from there too
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) archive: Option<Option<PathBuf>>,
    /// Print a summary to stderr at the end, even if that is not a terminal. With `--json` the last line
    /// of stderr is the whole report, because standard output belongs to the command
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) summary: bool,
    /// Have services of the task that record their calls write traces to this folder; a hub keeps them with the job
    #[arg(long, value_name = "DIR")]
    pub(crate) trace: Option<PathBuf>,
    /// Print neither warnings nor a summary, even on a terminal (`--json` still prints the report)
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Measure only by these mechanisms, as `--explain` names them
    #[arg(
        long = "mechanism",
        value_name = "NAME,…",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub(crate) mechanisms: Option<Vec<String>>,
    /// Explain which mechanisms this machine allows, and do not run the command
    #[arg(long)]
    pub(crate) explain: bool,
    /// Measure this running process and its descendants until it ends; Ctrl-C detaches, and the process
    /// continues
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) attach: Option<i32>,
    /// Command and its arguments, after `--`
    #[arg(last = true, required_unless_present_any = ["explain", "attach"], value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Parses the level of detail; `None` is the best level with negligible overhead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level(pub(crate) Option<u8>);

fn level(text: &str) -> Result<Level, String> {
    match text {
        "auto" => Ok(Level(None)),
        "1" => Ok(Level(Some(1))),
        "2" => Ok(Level(Some(2))),
        "3" => Ok(Level(Some(3))),
        _ => Err("a level is 1, 2, 3 or auto".to_owned()),
    }
}

pub(crate) fn run(global: &Global, args: &RunArgs) -> Result<ExitCode, Failure> {
    let mut order = order(args)?;
    if order.only.is_some() {
        are_mechanisms(&order)?;
    }
    if args.explain {
        return explain(global, &order);
    }
    skopos_task::prepare_monitor();
    if !skopos_task::has_room() {
        return unwatched(&order, TOO_LITTLE_SPACE);
    }
    let auto = auto::plan(&args.limits, args.archive.clone().flatten(), &mut order)?;
    let mut archive = args.archive.clone().map(archive::create).transpose()?;
    // The environment is that of the monitor, and does not describe a task that it did not start.
    let rank = skopos_task::rank().filter(|_| args.attach.is_none());
    let prepared = args.report.as_deref().map(|folder| files::prepare(folder, rank.as_ref()));
    let place = prepared.transpose()?;
    let warn = &mut |near: &Crossing| {
        if !args.quiet {
            tell(format!("skopos: {}", text::near(near)));
        }
    };
    let delivery = delivery_of(global, args, &order, rank.as_ref());
    let mut outcome = match skopos_task::run(&order, warn) {
        Ok(outcome) => outcome,
        Err(failed) => return not_run(&order, &failed),
    };
    if let Some(auto) = auto
        && let Some(second) = auto.again(&order, &outcome)
    {
        keep(&mut archive, &outcome.summary, outcome.files.as_ref());
        auto::keep_first(place.as_deref(), &outcome);
        match skopos_task::run(&second, warn) {
            Ok(again) => outcome = auto::second(again, &outcome),
            Err(failed) => return not_run(&second, &failed),
        }
    }
    let ranked = place.as_deref().and_then(Path::parent).zip(rank.as_ref());
    if ranked.is_none() {
        keep(&mut archive, &outcome.summary, outcome.files.as_ref());
    }
    let summary = &outcome.summary;
    // The task has ended: its exit code is returned even if the report fails.
    if let Some(place) = &place
        && let Err(e) = files::write_or_error(place, &outcome)
    {
        tell(format!("skopos: the report could not be written to {}: {e}", place.display()));
    }
    if let Some((folder, rank)) = ranked {
        join_ranks(folder, rank, &mut archive);
    }
    tell_without_traces(args);
    if let Some(delivery) = delivery {
        delivery.end(&outcome, traces_of(args).as_deref());
    }
    let is_wanted = args.summary || std::io::stderr().is_terminal() && !args.quiet;
    match global.style() {
        Style::Json => say(&serde_json::to_string(summary).unwrap_or_default()),
        _ if is_wanted => say(&text::summary(summary, place.as_deref())),
        // A task that a limit ended and a task that a signal killed have the same exit code.
        _ if !args.quiet && !summary.ended.limits.is_empty() => {
            let limits = summary.ended.limits.join(", ");
            say(&format!("skopos: a limit ended the task: {limits}"));
        }
        _ => {}
    }
    Ok(end_like(summary))
}

/// Tells the hub of this machine, if there is one, that the task begins.
fn delivery_of(
    global: &Global,
    args: &RunArgs,
    order: &Order,
    rank: Option<&Rank>,
) -> Option<Delivery> {
    if args.attach.is_some() {
        return None;
    }
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    Delivery::begin(dir, (args.name.as_deref(), &args.command), &order.limits, rank)
}

/// Writes the report of the job to which a rank belongs. Once all ranks have reports, the archive stores the
/// job's report, which contains theirs, and their files.
fn join_ranks(folder: &Path, rank: &Rank, archive: &mut Option<Archive>) {
    match job::join_ranks(folder, rank) {
        Ok(Some((summary, files)))
            if summary.job.as_ref().is_some_and(|job| job.missing_total == 0) =>
        {
            keep(archive, &summary, files.as_ref());
        }
        Ok(_) => {}
        Err(e) => {
            let place = folder.display();
            tell(format!("skopos: the report of the job could not be written to {place}: {e}"));
        }
    }
}

/// Stores the report in the archive, if one is given. A failure is printed and does not change the exit code.
fn keep(archive: &mut Option<Archive>, summary: &Summary, files: Option<&Files>) {
    let Some(archive) = archive else { return };
    let place = archive.path().to_owned();
    let failed = match archive.add(summary, files) {
        // The task may have removed the file; a report added to it is then lost with it.
        Ok(_) if place.exists() => return,
        Ok(_) => "it does not exist any more".to_owned(),
        Err(e) => {
            let first: Option<&dyn Error> = Some(&e);
            let causes = std::iter::successors(first, |e| (*e).source());
            // The first cause names the file, which this line does already.
            let causes = causes.skip(1).map(ToString::to_string).collect::<Vec<_>>();
            if causes.is_empty() { e.to_string() } else { causes.join(": ") }
        }
    };
    tell(format!("skopos: the report could not be added to {}: {failed}", place.display()));
}

/// Writes to standard error, which may be closed.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Refuses unknown mechanisms: without any mechanism a task would seem to use no resources.
fn are_mechanisms(order: &Order) -> Result<(), Failure> {
    let named = order.only.iter().flatten();
    let Some(wrong) = named.into_iter().find(|name| !MECHANISMS.contains(&name.as_str())) else {
        return Ok(());
    };
    let failure = Failure::new(format!("--mechanism: there is no `{wrong}`"));
    Err(match nearest_name(wrong, MECHANISMS) {
        Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
        None => failure.hint(format!("there are {}", MECHANISMS.join(", "))),
    })
}

/// Refuses options that were probably not meant.
fn check(args: &RunArgs) -> Result<(), Failure> {
    if args.series.is_zero() {
        return Err(Failure::new("--series: an interval of 0 is not possible")
            .hint("name one, such as `--series 1s`"));
    }
    let is_class = |name: &String| !name.trim().is_empty() && !name.contains(char::is_control);
    if let Some(name) = args.name.as_ref().filter(|name| !is_class(name)) {
        return Err(Failure::new(format!("--name: {name:?} is not a class"))
            .hint("a class is a word for similar tasks, such as `align`"));
    }
    Ok(())
}

/// Returns the folder of the traces of this task: each rank of a parallel job has its own.
fn traces_of(args: &RunArgs) -> Option<PathBuf> {
    let folder = args.trace.clone()?;
    Some(match skopos_task::rank() {
        Some(rank) => folder.join(format!("rank-{}", rank.rank)),
        None => folder,
    })
}

/// Prints a note if no service of the task has written a trace.
fn tell_without_traces(args: &RunArgs) {
    let Some(folder) = traces_of(args).filter(|_| !args.quiet) else { return };
    if let Err(skopos_rpc::Error::Input { .. }) = skopos_rpc::folder::Folder::open(&folder) {
        tell(format!(
            "skopos: no service of the task wrote a trace to {}; a service that names a folder \
             itself writes there",
            folder.display()
        ));
    }
}

/// Makes the folder of traces, and returns the variable that names it. A folder with traces of another task is refused:
/// they would be kept with this job.
fn environment(traces: Option<&Path>) -> Result<Vec<(OsString, OsString)>, Failure> {
    let Some(folder) = traces else { return Ok(Vec::new()) };
    if skopos_rpc::folder::Folder::open(folder).is_ok() {
        return Err(Failure::new(format!("--trace: {} has traces already", folder.display()))
            .hint("name a new folder for each task"));
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let absolute = made.and_then(|()| std::path::absolute(folder)).map_err(|e| {
        Failure::new(format!("--trace: {}: the folder cannot be made", folder.display()))
            .because(&e)
    })?;
    Ok(vec![(skopos_rpc::TRACE_VARIABLE.into(), absolute.into())])
}

fn order(args: &RunArgs) -> Result<Order, Failure> {
    check(args)?;
    if args.attach.is_some() && !args.command.is_empty() {
        return Err(Failure::new(
            "--attach measures a running process, and a command is given too",
        )
        .hint("leave out either `--attach PID` or `-- COMMAND`"));
    }
    Ok(Order {
        command: args.command.clone(),
        attach: args.attach,
        class: args.name.clone(),
        level: args.level.0,
        limits: limits::typed(&args.limits)?,
        kill_after: args.kill_after,
        interval: args.series,
        watch: args.watch.clone(),
        only: args.mechanisms.clone(),
        environment: environment(traces_of(args).as_deref())?,
    })
}

fn explain(global: &Global, order: &Order) -> Result<ExitCode, Failure> {
    let Choice { level, uses } = choose(order);
    let mut out = Out::new(global.style());
    let shown = match out.style {
        Style::Json => out.json(&Explained { level, mechanisms: &uses }),
        style => {
            let yes = |used| if used { "used" } else { "not used" };
            let rows = uses.iter().map(|u| vec![u.name.clone(), yes(u.used).into(), u.why.clone()]);
            let rows: Vec<_> = rows.collect();
            match style {
                Style::Plain => rows.iter().try_for_each(|row| out.line(row.join("\t"))),
                _ => out.line(format!("level {level}")).and_then(|()| out.table(&rows, &[])),
            }
        }
    };
    shown.and_then(|()| out.flush())?;
    Ok(ExitCode::SUCCESS)
}

/// Converts the reason why a running process cannot be measured to a failure with a hint.
fn not_attached(unfit: &AttachError) -> Failure {
    let failure = Failure::new(format!("--attach: {unfit}"));
    match unfit {
        AttachError::Missing(_) | AttachError::Ended(_) => {
            failure.hint("`ps -e` lists running processes")
        }
        AttachError::Thread { process, .. } => {
            failure.hint(format!("name it: `--attach {process}`"))
        }
        AttachError::Own(_) => failure.hint("name the process to measure"),
        AttachError::Init => {
            failure.hint("name the first process of the service or the task itself")
        }
        AttachError::Kernel { .. } => failure.hint("a task is a process that runs a program"),
        AttachError::NoHandle { .. } => failure.hint("that needs Linux 5.3, and a free descriptor"),
    }
}

/// Reasons why a process cannot be a monitor, with what would be enough.
const TOO_FEW_FILES: (&str, &str) = (
    "this process may open too few files (`ulimit -n`) for a monitor",
    "a limit of 8 is enough for some of its mechanisms",
);
const TOO_LITTLE_SPACE: (&str, &str) = (
    "this process may use too little address space (`ulimit -v`) for a monitor",
    "limit the task alone: `skopos run -- sh -c 'ulimit -v …; exec …'`",
);

/// Runs the task without a monitor where there is no room for one, unless a limit was asked for.
fn unwatched(order: &Order, (why, hint): (&str, &str)) -> Result<ExitCode, Failure> {
    if !order.limits.is_empty() || order.attach.is_some() {
        return Err(Failure::new(why).hint(hint));
    }
    tell(format!("skopos: {why}: the command runs, and nothing is measured"));
    not_run(order, &skopos_task::exec_unmonitored(&order.command))
}

/// Converts the error to the exit code of a shell.
fn not_run(order: &Order, failed: &RunError) -> Result<ExitCode, Failure> {
    let (code, e) = match failed {
        RunError::NotFound(e) => (NOT_FOUND, e),
        RunError::NotExecutable(e) => (NOT_EXECUTABLE, e),
        RunError::Empty => return Err(Failure::new("there is no command to run")),
        RunError::NoDescriptors => return unwatched(order, TOO_FEW_FILES),
        RunError::Start(e) => {
            let name = order.command.first().map(|c| c.to_string_lossy()).unwrap_or_default();
            return Err(Failure::new(format!("`{name}` cannot be run")).because(e));
        }
        RunError::Attach(unfit) => return Err(not_attached(unfit)),
    };
    say(&refused::told(&order.command, e));
    Ok(ExitCode::from(code))
}

/// Ends like the task: with its exit code, or by its signal.
fn end_like(summary: &Summary) -> ExitCode {
    let ended = &summary.ended;
    if let Some(signal) = ended.signal {
        if ended.exit_type == ExitType::Signal {
            skopos_task::die_of(signal);
        }
        // A limit ended the task, or its signal cannot be repeated: the exit code of a shell.
        let signal = u8::try_from(signal).unwrap_or(0);
        return ExitCode::from(SIGNALLED.saturating_add(signal));
    }
    // The exit status is unknown, but this process ended the task.
    let unknown = if ended.exit_type == ExitType::Limit { KILLED } else { 0 };
    let code = ended.status.unwrap_or(unknown);
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}
