//! `skopos run -- COMMAND`: one task, measured and limited.
//!
//! Standard output is the task's. What the monitor has to say goes to standard error, and only to a
//! person: to a terminal, or where it is asked for.

#[cfg(feature = "arrow")]
mod arrow;
mod auto;
mod files;
mod job;
mod limits;
mod refused;
mod text;

use std::error::Error;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use skopos_model::task::{Crossing, ExitType, MechanismUse, Rank, Summary};
use skopos_store::archive::Archive;
use skopos_task::{AttachError, Choice, MECHANISMS, Order, Outcome, RunError, choose};

use crate::cli::{Global, RunArgs};
use crate::failure::Failure;
use crate::out::{Out, Style, tell};
use crate::verbs::archive;

/// What shells return for a command that does not exist.
const NOT_FOUND: u8 = 127;
/// And for one that cannot be started.
const NOT_EXECUTABLE: u8 = 126;
/// What shells return for a command that SIGKILL ended.
const KILLED: i32 = 137;
/// Added to the number of the signal that ended a command.
const SIGNALLED: u8 = 128;

/// `docs/json/run-explain.schema.json`.
#[derive(Serialize)]
struct Explained<'a> {
    level: u8,
    mechanisms: &'a [MechanismUse],
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
    let auto = auto::plan(args, &mut order)?;
    let mut archive = args.archive.clone().map(archive::create).transpose()?;
    // The environment is the monitor's, and says nothing of a task that it did not start.
    let rank = skopos_task::rank().filter(|_| args.attach.is_none());
    let prepared = args.report.as_deref().map(|folder| files::prepare(folder, rank.as_ref()));
    let place = prepared.transpose()?;
    let warn = &mut |near: &Crossing| {
        if !args.quiet {
            tell(format!("skopos: {}", text::near(near)));
        }
    };
    let mut outcome = match skopos_task::run(&order, warn) {
        Ok(outcome) => outcome,
        Err(failed) => return not_run(&order, &failed),
    };
    if let Some(auto) = auto
        && let Some(second) = auto.again(&order, &outcome)
    {
        keep(&mut archive, &outcome.summary);
        auto::keep_first(place.as_deref(), &outcome);
        match skopos_task::run(&second, warn) {
            Ok(again) => outcome = auto::second(again, &outcome),
            Err(failed) => return not_run(&second, &failed),
        }
    }
    let ranked = place.as_deref().and_then(Path::parent).zip(rank.as_ref());
    if ranked.is_none() {
        keep(&mut archive, &outcome.summary);
    }
    let summary = &outcome.summary;
    // The task has ended: whatever happens to the report, its exit code is passed on.
    if let Some(place) = &place
        && let Err(e) = written(place, &outcome)
    {
        tell(format!("skopos: the report could not be written to {}: {e}", place.display()));
    }
    if let Some((folder, rank)) = ranked {
        join_ranks(folder, rank, &mut archive);
    }
    let is_wanted = args.summary || std::io::stderr().is_terminal() && !args.quiet;
    match global.style() {
        Style::Json => say(&serde_json::to_string(summary).unwrap_or_default()),
        _ if is_wanted => say(&text::summary(summary, place.as_deref())),
        _ => {}
    }
    Ok(end_like(summary))
}

/// Writes the report. A mistake in writing it is no reason to lose the task's exit code.
fn written(place: &Path, outcome: &Outcome) -> std::io::Result<()> {
    let writing = std::panic::AssertUnwindSafe(|| files::write(place, outcome));
    let failed = |_| Err(std::io::Error::other("the monitor failed inside"));
    std::panic::catch_unwind(writing).unwrap_or_else(failed)
}

/// The report of the job to which a rank belongs; once all its ranks have one the archive gets it, and
/// theirs are in it.
fn join_ranks(folder: &Path, rank: &Rank, archive: &mut Option<Archive>) {
    match job::join_ranks(folder, rank) {
        Ok(Some(summary)) if summary.job.as_ref().is_some_and(|job| job.missing_total == 0) => {
            keep(archive, &summary);
        }
        Ok(_) => {}
        Err(e) => {
            let place = folder.display();
            tell(format!("skopos: the report of the job could not be written to {place}: {e}"));
        }
    }
}

/// Into the archive, if there is one. A failure is told and is not the task's.
fn keep(archive: &mut Option<Archive>, summary: &Summary) {
    let Some(archive) = archive else { return };
    let place = archive.path().to_owned();
    let failed = match archive.add(summary) {
        // The task may have taken the file away; what is added to it then goes with it.
        Ok(_) if place.exists() => return,
        Ok(_) => "it is not there any more".to_owned(),
        Err(e) => {
            let first: Option<&dyn Error> = Some(&e);
            let causes = std::iter::successors(first, |e| (*e).source());
            // The first says where, as this line does.
            let causes = causes.skip(1).map(ToString::to_string).collect::<Vec<_>>();
            if causes.is_empty() { e.to_string() } else { causes.join(": ") }
        }
    };
    tell(format!("skopos: the report could not be added to {}: {failed}", place.display()));
}

/// To standard error; nobody may be left to read it.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Those that are named are there: measured by nothing, a task would seem to use nothing.
fn are_mechanisms(order: &Order) -> Result<(), Failure> {
    let named = order.only.iter().flatten();
    let Some(wrong) = named.into_iter().find(|name| !MECHANISMS.contains(&name.as_str())) else {
        return Ok(());
    };
    let failure = Failure::new(format!("--mechanism: there is no `{wrong}`"));
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(name, wrong);
    let nearest = MECHANISMS.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    Err(match nearest.filter(|name| likeness(name) > 0.5) {
        Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
        None => failure.hint(format!("there are {}", MECHANISMS.join(", "))),
    })
}

/// What was typed is what was meant.
fn check(args: &RunArgs) -> Result<(), Failure> {
    if args.series.is_zero() {
        return Err(Failure::new("--series: an interval of 0 would be as often as possible")
            .hint("name one, such as `--series 1s`"));
    }
    let is_class = |name: &String| !name.trim().is_empty() && !name.contains(char::is_control);
    if let Some(name) = args.name.as_ref().filter(|name| !is_class(name)) {
        return Err(Failure::new(format!("--name: {name:?} names no class"))
            .hint("a class is a word for tasks that are alike, such as `align`"));
    }
    Ok(())
}

fn order(args: &RunArgs) -> Result<Order, Failure> {
    check(args)?;
    if args.attach.is_some() && !args.command.is_empty() {
        return Err(Failure::new(
            "--attach measures a process that runs, and there is a command too",
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

/// Why a process that runs is no task, and what would be one.
fn not_attached(unfit: &AttachError) -> Failure {
    let failure = Failure::new(format!("--attach: {unfit}"));
    match unfit {
        AttachError::Missing(_) | AttachError::Ended(_) => {
            failure.hint("`ps -e` lists those that run")
        }
        AttachError::Thread { process, .. } => {
            failure.hint(format!("name it: `--attach {process}`"))
        }
        AttachError::Own(_) => failure.hint("name the process that is to be measured"),
        AttachError::Init => {
            failure.hint("name the first process of the service or the task itself")
        }
        AttachError::Kernel { .. } => failure.hint("a task is a process that runs a program"),
        AttachError::NoHandle { .. } => failure.hint("that needs Linux 5.3, and a free descriptor"),
    }
}

/// Too few descriptors for a monitor, and maybe not for the task: that runs, unless it was to be limited.
fn unwatched(order: &Order) -> Result<ExitCode, Failure> {
    let why = "this process may open too few files (`ulimit -n`) for a monitor";
    if !order.limits.is_empty() || order.attach.is_some() {
        return Err(Failure::new(why).hint("a limit of 8 is enough for some of its mechanisms"));
    }
    tell(format!("skopos: {why}: the command runs, and nothing is measured"));
    not_run(order, &skopos_task::exec_unmonitored(&order.command))
}

/// As a shell tells it.
fn not_run(order: &Order, failed: &RunError) -> Result<ExitCode, Failure> {
    let (code, e) = match failed {
        RunError::NotFound(e) => (NOT_FOUND, e),
        RunError::NotExecutable(e) => (NOT_EXECUTABLE, e),
        RunError::Empty => return Err(Failure::new("there is no command to run")),
        RunError::NoDescriptors => return unwatched(order),
        RunError::Start(e) => {
            let name = order.command.first().map(|c| c.to_string_lossy()).unwrap_or_default();
            return Err(Failure::new(format!("`{name}` cannot be run")).because(e));
        }
        RunError::Attach(unfit) => return Err(not_attached(unfit)),
    };
    say(&refused::told(&order.command, e));
    Ok(ExitCode::from(code))
}

/// The task's own end is passed on: its code, or its signal.
fn end_like(summary: &Summary) -> ExitCode {
    let ended = &summary.ended;
    if let Some(signal) = ended.signal {
        if ended.exit_type == ExitType::Signal {
            skopos_task::die_of(signal);
        }
        // It was ended for a limit, or this signal cannot be passed on: as a shell tells it.
        let signal = u8::try_from(signal).unwrap_or(0);
        return ExitCode::from(SIGNALLED.saturating_add(signal));
    }
    // Nobody told how it ended, but that it was ended here is known.
    let unknown = if ended.exit_type == ExitType::Limit { KILLED } else { 0 };
    let code = ended.status.unwrap_or(unknown);
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX))
}

/// For text: the folder as the user named it.
fn shown(place: &Path) -> String {
    place.display().to_string()
}
