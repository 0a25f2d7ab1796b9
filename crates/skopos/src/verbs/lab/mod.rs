//! `skopos lab up|down|run|status|example`: a small network on this machine, to learn and to test with.

mod place;
mod claim;
mod shown;
mod agents;
mod up;
mod down;
mod exec;
mod status;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use skopos_net::lab::EXAMPLE;
use skopos_term::{Failure, Global, Out};

#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Debug, Subcommand)]
enum LabVerb {
    /// Build a lab, and remove it at Ctrl-C
    #[command(before_help = "Example: skopos lab up --example --agents")]
    Up(up::UpArgs),
    /// Remove a lab, also one whose process was killed
    #[command(before_help = "Example: skopos lab down demo")]
    Down(down::DownArgs),
    /// Run a command in a host or a switch of a lab
    #[command(before_help = "Example: skopos lab run a -- ping -c 3 10.77.0.2")]
    Run(exec::RunArgs),
    /// List the labs of this machine, with their nodes
    #[command(before_help = "Example: skopos lab status")]
    Status,
    /// Print the file of the lab that comes with Skopos
    #[command(before_help = "Example: skopos lab example > lab.toml")]
    Example,
}

pub(crate) fn run(global: &Global, args: &LabArgs) -> Result<ExitCode, Failure> {
    match &args.verb {
        LabVerb::Up(args) => up::run(global, args),
        LabVerb::Down(args) => down::run(global, args),
        LabVerb::Run(args) => exec::run(args),
        LabVerb::Status => status::run(global),
        LabVerb::Example => {
            let mut out = Out::new(global.style());
            out.line(EXAMPLE.trim_end())?;
            out.flush()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
