//! `skopos-agent`: the agent of a node, without the query engine and the listeners of a hub.
//!
//! Sites install this program on every node: it needs less memory than `skopos`, and `skopos agent` runs
//! it when it lies beside `skopos`.

#![forbid(unsafe_code)]
// These macros panic when the reader is gone; `skopos_term` prints without panics.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

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

/// Replaces this process by one with the setting of the live plane's threads, which is read from the environment. Returns
/// if that is set already, or cannot be done: the agent works without it.
fn start_again() {
    let (name, value) = skopos_wire::RUNTIME;
    let mut words = std::env::args_os();
    if std::env::var_os(name).is_none()
        && let (Some(own), Ok(program)) = (words.next(), std::env::current_exe())
    {
        let _ = Command::new(program).arg0(own).args(words).env(name, value).exec();
    }
}

fn main() -> ExitCode {
    let matches = usage::wrapped(Cli::command()).try_get_matches();
    let Cli { global, node } = match matches.and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(e) => return usage::report(&e, None),
    };
    if node.live {
        start_again();
    }
    skopos_node::role::run(&global, &node).unwrap_or_else(|failure| failure.report())
}
