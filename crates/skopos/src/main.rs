//! `skopos`: monitoring whose first reader is a program.
//!
//! One binary in roles. `cli` holds the command line, `complete` the candidates of the shell's completion,
//! and `verbs` a file for each verb. The roles themselves are crates: `skopos-agent`, `skopos-node`, `skopos-hub`, `skopos-serve`, `skopos-top`.

#![forbid(unsafe_code)]
// These macros panic when the reader is gone; `skopos_term` prints without panics.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod allocator;
mod cli;
mod complete;
mod verbs;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use clap_complete::CompleteEnv;
use skopos_term::usage;

use crate::cli::Cli;

/// A hub runs for months, and one large query must not decide how much memory it has.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // A shell that completes a line sets the variable; the process then ends here.
    CompleteEnv::with_factory(|| complete::with_candidates(Cli::command()))
        .var(complete::VARIABLE)
        .complete();
    let matches = usage::wrapped(Cli::command()).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(e) => {
            let args: Vec<_> = std::env::args_os().collect();
            let args: Vec<_> = args.iter().map(|word| word.to_string_lossy().into()).collect();
            return usage::report(&e, cli::hint(&e, &args));
        }
    };
    match cli::run(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
