//! The programs that are started as loads and as faults.

use std::process::{Command, Stdio};

use crate::child::{Process, not_started};

pub(super) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The port at which `iperf3` of host `b` listens for the load that comes and goes.
pub(super) const PEER_PORT: u16 = 5202;

/// Returns a command of stress-ng.
pub(super) fn stress(words: &[&str]) -> Command {
    let mut command = Command::new("stress-ng");
    command.args(["--quiet", "--timeout", "300"]).args(words);
    command
}

/// Starts a program that says nothing and ends when it is dropped.
///
/// # Errors
/// It is not installed.
pub(super) fn start(command: &mut Command) -> Outcome<Process> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(command).map_err(|e| not_started(&program, &e).into())
}
