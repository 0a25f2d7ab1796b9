//! The files of a report; `docs/reference/report-files.md` describes them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use skopos_model::task::Rank;
use skopos_task::{COLUMNS, Outcome};

use super::document::{FILES, PAGE, SUMMARY, end, end_of_json};
use super::job;
use skopos_term::Failure;

/// The use of resources over time.
const SERIES: &str = "series.csv";
/// The same series in columns.
const COLUMNAR: &str = "series.arrow";

/// Creates the folder before the task starts, so that a wrong name is reported before the run. Each rank of
/// a parallel job has a folder of its own inside.
///
/// # Errors
/// The folder cannot be created or written to, or contains a report already.
pub(super) fn prepare(job: &Path, rank: Option<&Rank>) -> Result<PathBuf, Failure> {
    let folder = rank.map_or_else(|| job.to_owned(), |rank| job::folder_of(job, rank));
    let cannot = |e: &io::Error| {
        let failure =
            Failure::new(format!("--report: {} cannot be written", folder.display())).because(e);
        let is_below_a_file = folder.ancestors().any(Path::is_file);
        failure.hint(match is_below_a_file {
            true => "a report is several files: name a folder for them",
            false => "name a folder that you may write to, or that can be created",
        })
    };
    fs::create_dir_all(&folder).map_err(|e| cannot(&e))?;
    let is_others = |rank| job.join(SUMMARY).exists() && !job::is_of(job, rank);
    let taken = match rank {
        _ if folder.join(SUMMARY).exists() => Some(&*folder),
        // The existing report is that of a single task, or of another job.
        Some(rank) if is_others(rank) => Some(job),
        _ => None,
    };
    if let Some(taken) = taken {
        return Err(Failure::new(format!("--report: {} has a report already", taken.display()))
            .hint("name another folder, or move that one away: nothing is overwritten"));
    }
    // A folder without permission to write is detected now, not in two hours.
    let probe = folder.join(".skopos");
    File::create(&probe).and_then(|_| fs::remove_file(&probe)).map_err(|e| cannot(&e))?;
    // The path becomes absolute, so that a later change of directory does not affect it.
    fs::canonicalize(&folder).map_err(|e| cannot(&e))
}

/// Writes the report. A panic while writing must not replace the task's exit code.
pub(super) fn write_or_error(place: &Path, outcome: &Outcome) -> io::Result<()> {
    let writing = std::panic::AssertUnwindSafe(|| write(place, outcome));
    let failed = |_| Err(io::Error::other("the monitor has an internal error"));
    std::panic::catch_unwind(writing).unwrap_or_else(failed)
}

/// Writes the files. Each gets a temporary name, and all are renamed once they are complete, the summary
/// last. A summary therefore implies a complete report, and a full disk leaves no partial one.
fn write(folder: &Path, outcome: &Outcome) -> io::Result<()> {
    let mut names = Vec::new();
    let done = write_aside(folder, outcome, &mut names)
        .and_then(|()| names.iter().try_for_each(|n| fs::rename(aside(folder, n), folder.join(n))));
    if done.is_err() {
        for name in names {
            // A file that was renamed already, or never begun, does not exist under this name.
            let _ = fs::remove_file(aside(folder, name));
        }
    }
    done
}

/// The temporary path of a file that is not complete.
fn aside(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}.partial"))
}

/// Writes each file under its temporary name; `names` receives the files that were begun.
fn write_aside(folder: &Path, outcome: &Outcome, names: &mut Vec<&'static str>) -> io::Result<()> {
    let Outcome { summary, series, files, .. } = outcome;
    let mut begin = |name| {
        names.push(name);
        File::create(aside(folder, name)).map(BufWriter::new)
    };
    let mut file = begin(SERIES)?;
    writeln!(file, "{}", COLUMNS.join(","))?;
    for row in series {
        writeln!(file, "{}", row.csv())?;
    }
    end(file)?;
    {
        let mut file = begin(COLUMNAR)?;
        super::arrow::write(&mut file, series)?;
        end(file)?;
    }
    let mut file = begin(PAGE)?;
    file.write_all(skopos_task::page(summary, series).as_bytes())?;
    end(file)?;
    if let Some(files) = files {
        end_of_json(begin(FILES)?, files)?;
    }
    end_of_json(begin(SUMMARY)?, summary)
}
