//! `skopos-agent`: the agent of a node, without the query engine and the listeners of a hub.
//!
//! Sites install this program on every node: it needs less memory than `skopos`, and `skopos agent` runs
//! it when it lies beside `skopos`.

#![forbid(unsafe_code)]
// These macros panic when the reader is gone; `skopos_term` prints without panics.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use skopos_node::NodeArgs;
use skopos_term::{Global, usage};

/// Watch this machine as a lean daemon.
#[derive(Debug, Parser)]
#[command(
    name = "skopos-agent",
    version,
    before_help = "Example: skopos-agent --live --connect tcp/hub1:7447"
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    node: NodeArgs,
}

fn main() -> ExitCode {
    let matches = usage::wrapped(Cli::command()).try_get_matches();
    let Cli { global, node } = match matches.and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(e) => return usage::report(&e, None),
    };
    skopos_node::role::run(&global, &node).unwrap_or_else(|failure| failure.report())
}
