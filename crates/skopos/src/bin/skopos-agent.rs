//! `skopos-agent`: the agent of a node, without the query engine and the listeners of a hub.
//!
//! Sites install this program on every node: it needs less memory than `skopos`, and `skopos agent` runs
//! it when it lies beside `skopos`.

#![forbid(unsafe_code)]
// They panic when the reader is gone; `skopos_term` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use skopos_node::NodeArgs;
use skopos_term::Global;

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
    let Cli { global, node } = Cli::parse();
    skopos_node::role::run(&global, &node).unwrap_or_else(|failure| failure.report())
}
