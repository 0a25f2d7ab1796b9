//! `skopos`: monitoring whose first reader is a program.
//!
//! One binary in roles. `cli` holds what a user may type, `verbs` has a file for each verb. The roles
//! themselves are crates: `skopos-agent`, `skopos-node`, `skopos-hub`, `skopos-serve`, `skopos-top`.

#![forbid(unsafe_code)]
// They panic when the reader is gone; `skopos_term` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod verbs;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::Cli;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // clap prints help to stdout, errors to stderr, and knows the exit code of each.
        Err(e) => {
            let _ = e.print();
            let args: Vec<_> = std::env::args_os().collect();
            let args: Vec<_> = args.iter().map(|word| word.to_string_lossy().into()).collect();
            if let Some(hint) = cli::hint(&e, &args) {
                skopos_term::tell(format!("hint: {hint}"));
            }
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    match cli::run(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
