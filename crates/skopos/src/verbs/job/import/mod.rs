//! `skopos job import ARCHIVE`: the tasks of an archive become jobs of the hub.

mod records;
mod handed_over;
mod connections;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use skopos_hub::client::{reach, store_batch};
use skopos_store::archive::{Archive, ArchivedTask, Conditions, DamagedTask};
use skopos_store::jobs::spool::{Sent, SpooledBatch};
use skopos_term::format::printable;
use skopos_term::{EXIT_NO, Failure, Global, Out, Style, tell};

use self::connections::{Counts, Import, Queue, Refusal};
use self::handed_over::{HandedOver, Tasks};
use self::records::{Records, records_of, time_of};
use super::hub::Hub;
use crate::verbs::archive::{self, Selection};
use crate::verbs::progress::Progress;

/// Time that the hub may take for one request, which is longer than its own timeout for a disk.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Time without any answer after which an import ends. A hub that was restarted reads its logs meanwhile, and one whose logs
/// are full seals jobs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Refusals that are shown; the others are counted.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Archive [default: the one of `skopos archive`]
    #[arg(value_name = "ARCHIVE")]
    archive: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
}

/// `docs/json/job_import.schema.json`.
#[derive(Serialize)]
struct Imported<'a> {
    archive: &'a Path,
    imported: u64,
    known: u64,
    refused: u64,
    refusals: &'a [Refusal],
}

/// Imports the tasks. The exit code is 1 if one was refused.
pub(crate) fn run(global: &Global, args: &ImportArgs) -> Result<ExitCode, Failure> {
    let conditions = args.selection.conditions()?;
    let archive = archive::read(args.archive.clone())?;
    let hub = Hub::open(global)?;
    let handed_over = match tasks_of(&archive, &conditions) {
        Some(tasks) => HandedOver::ask(&hub, &tasks)?,
        None => HandedOver::default(),
    };
    let progress = Progress::new("tasks read");
    let dir = &hub.dir;
    let counts = Import::new(PATIENCE).run(
        || connection(dir),
        |queue| read(&archive, &conditions, &handed_over, &progress, queue),
    );
    progress.clear();
    let counts = counts?;
    let mut out = Out::new(global.style());
    show(&archive, &counts, &mut out)?;
    out.flush()?;
    Ok(if counts.refused > 0 { ExitCode::from(EXIT_NO) } else { ExitCode::SUCCESS })
}

/// Returns the classes of the tasks and the range of times in which these ended; `None` if there are no tasks. If damage of the
/// archive hides them, these are all times and classes.
fn tasks_of(archive: &Archive, conditions: &Conditions) -> Option<Tasks> {
    let Ok(classes) = archive.classes(conditions) else {
        return Some(Tasks { ended: 0..=i64::MAX, classes: Vec::new() });
    };
    let from = classes.iter().map(|class| class.from_seconds).reduce(f64::min)?;
    let to = classes.iter().map(|class| class.to_seconds).reduce(f64::max)?;
    let ended = time_of(from).as_nanos()..=time_of(to).as_nanos();
    Some(Tasks { ended, classes: classes.into_iter().map(|class| class.name).collect() })
}

/// Returns a function that sends batches on one connection, which is opened again after a failure.
fn connection(dir: &Path) -> impl FnMut(&SpooledBatch) -> Sent {
    let mut kept = None;
    move |batch| {
        let stream = match kept.take() {
            Some(stream) => stream,
            None => match reach(dir, TIMEOUT) {
                Ok(Some(stream)) => stream,
                Ok(None) => return Sent::Later("no hub runs".to_owned()),
                Err(failure) => return Sent::Later(failure.in_one_line()),
            },
        };
        let sent = store_batch(&stream, batch);
        if !matches!(sent, Sent::Later(_)) {
            kept = Some(stream);
        }
        sent
    }
}

/// Reads the tasks of an archive, and hands them over.
fn read(
    archive: &Archive,
    conditions: &Conditions,
    handed_over: &HandedOver,
    progress: &Progress,
    queue: &Queue<'_>,
) -> Result<(), Failure> {
    let mut count = 0;
    let tasks = archive.for_each_task(conditions, |task| {
        count += 1;
        progress.show(count);
        hand_over(task, handed_over, queue)
    });
    tasks.map_err(|e| archive::failure(&e))
}

/// Hands over a task. Returns false if the import has ended.
fn hand_over(
    task: Result<ArchivedTask, DamagedTask>,
    handed_over: &HandedOver,
    queue: &Queue<'_>,
) -> bool {
    let records = match &task {
        Err(DamagedTask { number, why }) => Err((*number, why.clone())),
        Ok(task) if handed_over.has(&task.summary) => {
            queue.add_known();
            return true;
        }
        Ok(task) => records_of(task).map(|of| (task.number, of)).map_err(|why| (task.number, why)),
    };
    match records {
        Err((number, why)) => {
            queue.refuse(number, why);
            true
        }
        Ok((number, Records { batch, without_files })) => {
            if let Some(why) = without_files {
                queue.refuse(number, format!("its files: {why}"));
            }
            queue.push(number, batch)
        }
    }
}

fn show(archive: &Archive, counts: &Counts, out: &mut Out) -> Result<(), Failure> {
    let Counts { imported, known, refused, refusals } = counts;
    if out.style == Style::Json {
        let (imported, known, refused) = (*imported, *known, *refused);
        return Ok(out.json(&Imported {
            archive: archive.path(),
            imported,
            known,
            refused,
            refusals,
        })?);
    }
    for Refusal { task, why } in refusals.iter().take(SHOWN) {
        tell(format!("refused task {task}: {}", printable(why)));
    }
    if *refused > SHOWN as u64 {
        tell(format!("and {} more; --json names them", refused - SHOWN as u64));
    }
    out.line(match out.style {
        Style::Plain => format!("{imported}\t{known}\t{refused}"),
        _ => format!(
            "{imported} imported, {known} there already, {refused} refused, of {}",
            archive.path().display()
        ),
    })?;
    Ok(())
}
