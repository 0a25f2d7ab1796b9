//! `skopos bench`: measurements beside what one would use instead.

use std::process::ExitCode;

use clap::Args;

use crate::cli::Global;
use crate::failure::Failure;

/// Which measurement, and how.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// score or agent
    pub(crate) name: String,
    /// A short form in under a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Exit with 1 when a goal is not met
    #[arg(long)]
    pub(crate) check: bool,
}

/// Runs the measurement.
pub(crate) fn run(_global: &Global, _args: &BenchArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new("not built yet"))
}
