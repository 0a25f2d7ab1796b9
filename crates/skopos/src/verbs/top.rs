//! `skopos top`: the terminal UI of this machine.

use std::process::ExitCode;

use clap::Args;
use skopos_term::{Failure, Global};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Show only topics that contain this text
    pub(crate) filter: Option<String>,
}

pub(crate) fn run(global: &Global, args: &TopArgs) -> Result<ExitCode, Failure> {
    skopos_top::run(global, args.filter.as_deref())
}
