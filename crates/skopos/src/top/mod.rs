//! `skopos top`: the terminal UI.

use std::process::ExitCode;

use crate::cli::{Global, TopArgs};
use crate::failure::Failure;

/// Runs until the user leaves.
pub(crate) fn run(_global: &Global, _args: &TopArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new("not built yet"))
}
