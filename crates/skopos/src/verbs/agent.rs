//! `skopos agent`: the agent of a node. It runs `skopos-agent` if that program is installed.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use skopos_node::NodeArgs;
use skopos_term::{Failure, Global};

/// The program of a node.
const PROGRAM: &str = "skopos-agent";

/// Replaces this process by `skopos-agent` if that lies beside this program, else runs the agent here.
pub(crate) fn run(global: &Global, args: &NodeArgs) -> Result<ExitCode, Failure> {
    if let Some(program) = beside() {
        let mut command = Command::new(&program);
        command.args(without_verb(std::env::args_os().skip(1)));
        let (name, value) = skopos_wire::RUNTIME;
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
        let error = command.exec();
        let failure = Failure::new(format!("{} cannot be started", program.display()));
        return Err(failure.because(&error).hint("install it again with `skopos`"));
    }
    skopos_node::role::run(global, args)
}

fn beside() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(PROGRAM);
    path.is_file().then_some(path)
}

/// Removes the verb from the command line. Only global options stand before it, and only `--dir` of these has
/// a value.
fn without_verb(typed: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut rest, mut is_value, mut is_found) = (Vec::new(), false, false);
    for word in typed {
        if !is_found && !is_value && word == "agent" {
            is_found = true;
            continue;
        }
        is_value = word == "--dir";
        rest.push(word);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_verb_is_removed() {
        for (typed, expected) in [
            ("agent", ""),
            ("agent --node agent", "--node agent"),
            ("--json agent --for 1s", "--json --for 1s"),
            ("--dir agent agent --live", "--dir agent --live"),
            ("--dir=agent agent", "--dir=agent"),
        ] {
            let words = typed.split_whitespace().map(OsString::from);
            let expected: Vec<OsString> = expected.split_whitespace().map(OsString::from).collect();
            assert_eq!(without_verb(words), expected, "{typed}");
        }
    }
}
