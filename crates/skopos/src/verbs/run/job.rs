//! The report of a parallel job, in the folder above those of its ranks.
//!
//! Each rank that ends joins the reports that exist. A rank that finds another rank joining leaves the work to
//! it, and the other rank checks once more when it is done. So the final report is complete, and a thousand
//! ranks that end together do not join a thousand times.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use skopos_model::task::{Files, Rank, Summary};
use skopos_task::{JoinedFiles, join, page};

use super::document::{FILES, PAGE, SUMMARY, end_of_json};

/// The folders of ranks, before the number.
const RANK: &str = "rank-";

/// The most ranks that are read. The report of a rank has some tens of kB, and the largest machines do not run
/// more ranks as one job. Further ranks are listed as missing.
const MAX_RANKS: usize = 100_000;

/// The folder of a rank's report.
pub(super) fn folder_of(job: &Path, rank: &Rank) -> PathBuf {
    job.join(format!("{RANK}{}", rank.rank))
}

/// Returns true if the report in a folder is that of this job, written by an earlier rank.
pub(super) fn is_of(folder: &Path, rank: &Rank) -> bool {
    let job = read(&folder.join(SUMMARY)).and_then(|summary| summary.job);
    job.is_some_and(|job| {
        (&job.id, &job.launcher, job.ranks_total) == (&rank.job, &rank.launcher, rank.size)
    })
}

/// The report of a job, and the files of all of its ranks. They are joined once every rank has a report: those of a thousand ranks
/// would be read too often otherwise.
pub(super) type Joined = (Summary, Option<Files>);

/// Joins the reports of a job in its folder. Returns the joined report, if this process wrote it.
///
/// # Errors
/// The folder cannot be read or written.
pub(super) fn join_ranks(folder: &Path, rank: &Rank) -> io::Result<Option<Joined>> {
    let lock = File::open(folder)?;
    let (mut joined, mut last) = (Vec::new(), None);
    loop {
        // Without locks every rank joins, and the last report written is also the last one read.
        if flock(&lock, FlockOperation::NonBlockingLockExclusive)
            == Err(rustix::io::Errno::WOULDBLOCK)
        {
            return Ok(last);
        }
        let mut there = reports(folder)?;
        while there != joined {
            let of_it = |summary: &Summary| {
                summary.task.rank.as_ref().is_some_and(|other| {
                    (&other.job, &other.launcher, other.size)
                        == (&rank.job, &rank.launcher, rank.size)
                })
            };
            let ranks = there.iter().filter_map(|path| Some((path, read(path).filter(of_it)?)));
            let (paths, ranks): (Vec<&PathBuf>, Vec<Summary>) = ranks.unzip();
            last = join(ranks).map(|summary| {
                let is_whole = summary.job.as_ref().is_some_and(|job| job.missing_total == 0);
                let files = if is_whole { join_files(&paths) } else { None };
                (summary, files)
            });
            if let Some(joined) = &last {
                write(folder, rank, joined)?;
            }
            joined = there;
            there = reports(folder)?;
        }
        let _ = flock(&lock, FlockOperation::Unlock);
        // Ranks that ended in the meantime have left their reports to this process.
        if reports(folder)? == joined {
            return Ok(last);
        }
    }
}

/// The existing reports of ranks, in a fixed order.
fn reports(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let report = entry.path().join(SUMMARY);
        let is_rank = entry.file_name().to_str().is_some_and(|name| name.starts_with(RANK));
        if is_rank && found.len() < MAX_RANKS && report.exists() {
            found.push(report);
        }
    }
    found.sort();
    Ok(found)
}

/// A report without its processes, which the report of the rank lists.
fn read(path: &Path) -> Option<Summary> {
    let mut summary: Summary = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    summary.processes_left_out += summary.processes.len() as u64;
    summary.processes.clear();
    Some(summary)
}

/// Joins the files of ranks, by the paths of their reports.
fn join_files(reports: &[&PathBuf]) -> Option<Files> {
    let (mut joined, mut without) = (JoinedFiles::default(), 0);
    for report in reports {
        let bytes = fs::read(report.with_file_name(FILES)).ok();
        match bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
            Some(files) => joined.add(files),
            None => without += 1,
        }
    }
    joined.finish(without)
}

/// Renames each complete file, the summary last.
fn write(folder: &Path, rank: &Rank, (summary, files): &Joined) -> io::Result<()> {
    let aside = |name: &str| folder.join(format!(".{name}.{RANK}{}", rank.rank));
    let create = |name: &str| File::create(aside(name)).map(io::BufWriter::new);
    let write = || {
        fs::write(aside(PAGE), page(summary, &[]))?;
        if let Some(files) = files {
            end_of_json(create(FILES)?, files)?;
            fs::rename(aside(FILES), folder.join(FILES))?;
        }
        end_of_json(create(SUMMARY)?, summary)?;
        fs::rename(aside(PAGE), folder.join(PAGE))?;
        fs::rename(aside(SUMMARY), folder.join(SUMMARY))
    };
    let written = write();
    if written.is_err() {
        for name in [FILES, PAGE, SUMMARY] {
            let _ = fs::remove_file(aside(name));
        }
    }
    written
}
