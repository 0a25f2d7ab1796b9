//! `skopos archive export`: prints the reports.

use std::process::ExitCode;

use clap::Args;

use super::place::{Place, Selection, failure};
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::Out;

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    place: Place,
}

/// Prints the reports as JSON, in every style.
pub(super) fn run(global: &Global, args: &ExportArgs) -> Result<ExitCode, Failure> {
    let conditions = args.selection.conditions()?;
    let archive = args.place.open()?;
    let mut out = Out::new(global.style());
    let mut failed = None;
    let write = |text: &str| match out.line(text) {
        Ok(()) => true,
        Err(e) => {
            failed = Some(e);
            false
        }
    };
    archive.export(&conditions, write).map_err(|e| failure(&e))?;
    match failed {
        Some(e) => Err(e.into()),
        None => {
            out.flush()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
