//! `skopos archive import DIR…`: adds reports to the archive.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use skopos_model::task::Summary;

use super::place::{Place, failure};
use crate::verbs::progress::Progress;
use skopos_term::Global;
use skopos_term::{EXIT_NO, Failure};
use skopos_term::{Out, Style, tell};

/// Refusals that are shown; the others are counted.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// Files, or folders to search
    #[arg(required = true, value_name = "DIR")]
    places: Vec<PathBuf>,
    /// Name of these reports as a set, for `--where set=NAME`
    #[arg(long, value_name = "NAME", default_value = "")]
    set: String,
    #[command(flatten)]
    place: Place,
}

/// `docs/json/archive_import.schema.json`.
#[derive(Serialize)]
struct Imported<'a> {
    archive: &'a Path,
    added: u64,
    known: u64,
    refused: u64,
    refusals: Vec<RefusedJson<'a>>,
}

#[derive(Serialize)]
struct RefusedJson<'a> {
    place: &'a str,
    why: &'a str,
}

/// Reads reports of `resource_monitor` and Kickstart.
fn of_other_tools(text: &str) -> Result<Vec<Summary>, String> {
    skopos_task::import::import(text).map_err(|e| {
        let source = std::error::Error::source(&e).map(|s| format!(": {s}")).unwrap_or_default();
        format!("{e}{source}")
    })
}

/// Imports the reports. The exit code is 1 if a report was refused.
pub(super) fn run(global: &Global, args: &ImportArgs) -> Result<ExitCode, Failure> {
    let mut archive = args.place.create()?;
    let progress = Progress::new("reports read");
    let done =
        archive.import(&args.places, &args.set, &of_other_tools, &|read| progress.show(read));
    progress.clear();
    let done = done.map_err(|e| failure(&e))?;
    let mut out = Out::new(global.style());
    if out.style == Style::Json {
        let refusals = done.refusals.iter();
        out.json(&Imported {
            archive: archive.path(),
            added: done.added,
            known: done.known,
            refused: done.refused,
            refusals: refusals.map(|r| RefusedJson { place: &r.place, why: &r.why }).collect(),
        })?;
    } else {
        for refused in done.refusals.iter().take(SHOWN) {
            tell(format!("refused {}: {}", refused.place, refused.why));
        }
        if done.refused > SHOWN as u64 {
            tell(format!("and {} more; --json names them", done.refused - SHOWN as u64));
        }
        out.line(format!(
            "{} added, {} known already, {} refused, in {}",
            done.added,
            done.known,
            done.refused,
            archive.path().display()
        ))?;
    }
    out.flush()?;
    Ok(if done.refused > 0 { ExitCode::from(EXIT_NO) } else { ExitCode::SUCCESS })
}
