//! `skopos completion SHELL`: what makes Tab work.

use std::io::Write as _;
use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::cli::{Cli, CompletionArgs};
use crate::failure::Failure;

pub(crate) fn run(args: &CompletionArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "skopos", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
