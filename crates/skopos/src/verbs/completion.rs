//! `skopos completion SHELL`: the script with which a shell completes this program's command line.

use clap::Args;
use std::io::Write as _;
use std::process::ExitCode;

use clap_complete::env::Shells;
use skopos_term::Failure;

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Prints the script, which asks this program for candidates through the environment variable `variable`.
pub(crate) fn run(variable: &str, args: &CompletionArgs) -> Result<ExitCode, Failure> {
    let name = args.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells
        .completer(&name)
        .ok_or_else(|| Failure::new(format!("there is no completion for {name}")))?;
    let mut script = Vec::new();
    shell.write_registration(variable, "skopos", "skopos", "skopos", &mut script)?;
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
