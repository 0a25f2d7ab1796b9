//! `skopos job export ID --format parquet|csv|html`.

mod table;
mod parquet;
mod html;

use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum;
use skopos_term::{Failure, Global};

use super::hub::Hub;
use super::one::OneJob;

/// A job is readable by its reader alone.
const FILE_MODE: u32 = 0o600;

/// The format of an exported job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Measurements: `node`, `time`, `schema`, `metric`, `value`; the rest of the job as JSON in the file's metadata
    Parquet,
    /// Measurements: a line for each value
    Csv,
    /// A page with metadata, findings, resources and plots, which loads nothing
    Html,
}

pub(crate) fn run(
    global: &Global,
    id: &str,
    format: Format,
    file: Option<&Path>,
) -> Result<ExitCode, Failure> {
    if format == Format::Parquet && file.is_none() && io::stdout().is_terminal() {
        return Err(Failure::new("Parquet is not for terminals").hint("name a file with `--out`"));
    }
    let hub = Hub::open(global)?;
    let id = hub.find(id)?;
    let job = OneJob::ask(&hub, &id)?;
    let mut bytes = Vec::new();
    match format {
        Format::Html => bytes = html::page(&job).into_bytes(),
        Format::Csv => table::Samples::ask(&hub, &id)?.csv(&mut bytes)?,
        Format::Parquet => {
            parquet::write(&table::Samples::ask(&hub, &id)?, &job, &mut bytes)?;
        }
    }
    let Some(path) = file else {
        io::stdout().write_all(&bytes)?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(FILE_MODE);
    let written = options.open(path).and_then(|file| {
        let mut file = BufWriter::new(file);
        file.write_all(&bytes)?;
        file.flush()
    });
    written
        .map_err(|e| Failure::new(format!("{} cannot be written", path.display())).because(&e))?;
    Ok(ExitCode::SUCCESS)
}
