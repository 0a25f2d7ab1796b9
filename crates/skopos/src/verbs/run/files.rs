//! The files of a report; `docs/run-files.md` says what each holds.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use skopos_task::{COLUMNS, Outcome};

use crate::failure::Failure;

/// The whole report.
const SUMMARY: &str = "summary.json";
/// What was used over time.
const SERIES: &str = "series.csv";
/// The same in columns.
#[cfg(feature = "arrow")]
const COLUMNAR: &str = "series.arrow";
/// All of it for people.
const PAGE: &str = "report.html";
/// What was done with each file, where that was counted.
const FILES: &str = "files.json";

/// Makes the folder before the task starts, so that a wrong name costs no run. A rank of a parallel
/// job gets a folder of its own in it.
///
/// # Errors
/// It cannot be made or written to, or holds a report already.
pub(super) fn prepare(folder: &Path) -> Result<PathBuf, Failure> {
    let folder = match skopos_task::rank() {
        Some(rank) => folder.join(format!("rank-{}", rank.rank)),
        None => folder.to_owned(),
    };
    let cannot = |e: &io::Error| {
        Failure::new(format!("--report: {} cannot be written", folder.display())).because(e)
    };
    fs::create_dir_all(&folder).map_err(|e| cannot(&e))?;
    if folder.join(SUMMARY).exists() {
        return Err(Failure::new(format!("--report: {} has a report already", folder.display()))
            .hint("name another folder, or move that one away: nothing is overwritten"));
    }
    // A folder that may not be written to is found now, not in two hours.
    let probe = folder.join(".skopos");
    File::create(&probe).and_then(|_| fs::remove_file(&probe)).map_err(|e| cannot(&e))?;
    // The task may change the monitor's folder in no way, but it may be given a relative one.
    fs::canonicalize(&folder).map_err(|e| cannot(&e))
}

/// Writes them. The summary comes last, and whole: where it is, the rest is.
pub(super) fn write(folder: &Path, outcome: &Outcome) -> io::Result<()> {
    let Outcome { summary, series, files } = outcome;
    let mut file = BufWriter::new(File::create(folder.join(SERIES))?);
    writeln!(file, "{}", COLUMNS.join(","))?;
    for row in series {
        writeln!(file, "{}", row.csv())?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?;
    #[cfg(feature = "arrow")]
    super::arrow::write(&folder.join(COLUMNAR), series)?;
    fs::write(folder.join(PAGE), skopos_task::page(summary, series))?;
    if let Some(files) = files {
        let mut text = serde_json::to_string_pretty(files)?;
        text.push('\n');
        fs::write(folder.join(FILES), text)?;
    }
    let mut text = serde_json::to_string_pretty(summary)?;
    text.push('\n');
    let partial = folder.join(".summary.json.partial");
    fs::write(&partial, text)?;
    fs::rename(partial, folder.join(SUMMARY))
}
