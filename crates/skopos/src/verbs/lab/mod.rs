//! `skopos lab up|down|run|status|example`: a small network on this machine, to learn and to test with.

mod claim;
mod shown;
mod agents;
mod up;
mod down;
mod exec;
mod status;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use skopos_net::lab::{EXAMPLE, labs};
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

/// Fails unless this process is root.
fn need_root(doing: &str) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::new(format!("{doing} needs root"))
        .hint("a lab makes network namespaces and mounts disks: try again with `sudo`"))
}

/// Returns the name of the lab that the user named, or else of the only one.
fn chosen(named: Option<&str>) -> Result<String, Failure> {
    let labs = labs();
    match (named, &labs[..]) {
        (Some(name), _) if labs.iter().any(|lab| lab == name) => Ok(name.to_owned()),
        (None, [only]) => Ok(only.clone()),
        (_, []) => Err(Failure::no("no lab is up").hint("skopos lab up --example")),
        (Some(name), _) => Err(Failure::no(format!("there is no lab `{name}`"))
            .hint(format!("there is {}", labs.join(", ")))),
        (None, _) => {
            Err(Failure::new("several labs are up").hint(format!("name one: {}", labs.join(", "))))
        }
    }
}

/// Converts an error of a lab.
fn failed(e: &skopos_net::Error) -> Failure {
    let failure = Failure::new(e.to_string());
    match std::error::Error::source(e) {
        Some(cause) => failure.because(cause),
        None => failure,
    }
}
