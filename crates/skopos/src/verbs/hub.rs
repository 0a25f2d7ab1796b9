//! `skopos hub`: one view of many nodes, asked in SQL.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::agent::Signals;
use crate::cli::Global;
use crate::config::Config;
use crate::failure::Failure;
use crate::hub::{DoorArgs, Hub};
use crate::live::LiveArgs;
use crate::out::Out;

#[derive(Debug, Args)]
pub(crate) struct HubArgs {
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    doors: DoorArgs,
    /// Read this file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(global: &Global, args: &HubArgs) -> Result<ExitCode, Failure> {
    let signals = Signals::catch()?;
    let config = Config::load(args.config.as_deref())?;
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    let hub = Hub::start(&dir, Some(&args.live), &args.doors, &config)?;
    let mut out = Out::new(global.style());
    let doors = hub.doors().join(", ");
    out.line(format!("skopos hub: site `{}`, asked at {doors}", args.live.site()))?;
    out.flush()?;
    for warning in hub.warnings() {
        let _ = warning.report();
    }
    signals.wait()?;
    Ok(ExitCode::SUCCESS)
}
