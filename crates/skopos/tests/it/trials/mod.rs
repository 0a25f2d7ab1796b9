//! Trials: the whole product in surroundings that break monitors. Each is the story of a user.
//!
//! `scripts/test trials` runs them, with the trial of `skopos-shm`: a program that forks while it publishes.

mod clock;
mod container;
mod privileges;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::compiled;

/// Compiles a C program of this folder and returns its path.
fn program(name: &str, flags: &[&str]) -> PathBuf {
    compiled(&Path::new("tests/it/trials").join(format!("{name}.c")), flags)
}

/// Returns `command` as the arguments of another program, with the same environment and streams.
fn wrapped(wrapper: &[&str], command: &Command) -> Command {
    let mut all = Command::new(wrapper[0]);
    all.args(&wrapper[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => all.env(name, value),
            None => all.env_remove(name),
        };
    }
    all
}
