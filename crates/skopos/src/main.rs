//! `skopos`: monitoring whose first reader is a program.
//!
//! One binary in roles. `cli` says what a user may type, `verbs` has a file for each verb, `agent`
//! is the role that watches a machine, `control` is how verbs talk to it, `find` turns what a user
//! typed into vertices, `out` and `failure` are the two ways in which a verb ends.

#![forbid(unsafe_code)]
// They panic when the reader is gone; `out` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod verbs;
mod state;
mod config;
mod agent;
mod calibrate;
mod control;
mod find;
mod ask;
mod format;
mod out;
mod failure;
mod reading;
mod fresh;
mod predicted;
#[cfg(feature = "history")]
mod history;
#[cfg(feature = "sql")]
mod tables;
#[cfg(feature = "sql")]
mod sql;
#[cfg(feature = "live")]
mod live;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod simulate;
#[cfg(feature = "tui")]
mod top;
#[cfg(feature = "bench")]
mod bench;

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
                out::tell(format!("hint: {hint}"));
            }
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    match verbs::run(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
