//! `skopos lab run`: runs a command in a node of a lab.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use clap::Args;
use skopos_net::lab::{namespace_of, nodes};
use skopos_term::Failure;

use super::place::{chosen, need_root};
use super::shown::{dir_of, state_of};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The lab, if there are several
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// The host or switch
    node: String,
    /// The command; `skopos` in it talks to the agent of the node
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Replaces this process by the command, whose exit status becomes that of the verb.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    need_root("to run a command in a lab")?;
    let (lab, node) = (chosen(args.lab.as_deref())?, &args.node);
    let nodes = nodes(&lab);
    if !nodes.contains(node) {
        return Err(Failure::new(format!("the lab `{lab}` has no `{node}`"))
            .hint(format!("it has {}", nodes.join(", "))));
    }
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespace_of(&lab, node)]).args(&args.command);
    command.env("SKOPOS_LAB", &lab).env("SKOPOS_STATE", state_of(&lab, node));
    command.env("SKOPOS_DIR", dir_of(&lab, node));
    if let Some(path) = with_own_folder() {
        command.env("PATH", path);
    }
    let error = command.exec();
    Err(Failure::new("cannot run `ip`").because(&error).hint("install it (Debian: iproute2)"))
}

/// Returns `PATH` with the folder of this program at its end, so that `skopos` is found in any case.
fn with_own_folder() -> Option<OsString> {
    let own = env::current_exe().ok()?.parent()?.to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths(env::split_paths(&path).chain([own])).ok()
}
