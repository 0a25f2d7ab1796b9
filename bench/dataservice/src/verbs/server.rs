//! `skopos-dataservice server`: one server, until its last client has gone.

use std::path::PathBuf;

use skopos_dataservice::{Result, process};

use crate::verbs::options::Process;

#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Path of the socket, which must not exist.
    #[arg(long)]
    socket: PathBuf,
    #[command(flatten)]
    process: Process,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let common = arguments.process.common()?;
    process::serve(&common, &arguments.socket, &mut std::io::stdout())
}
