//! `skopos completion SHELL`: what makes Tab work.

use clap::Args;
use std::io::Write as _;
use std::process::ExitCode;

use skopos_term::Failure;

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}

pub(crate) fn run(mut command: clap::Command, args: &CompletionArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "skopos", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
