//! `skopos-dataservice server`: one server, until its last client has gone.

use std::path::PathBuf;

use crate::tracer::Start;
use crate::verbs::options::Process;
use crate::{Result, process};

#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Path of the socket, which must not exist.
    #[arg(long)]
    socket: PathBuf,
    #[command(flatten)]
    process: Process,
}

pub(crate) fn run(arguments: &Arguments, start: Option<Start>) -> Result<()> {
    let common = arguments.process.common(start)?;
    process::serve(&common, &arguments.socket, &mut std::io::stdout())
}
