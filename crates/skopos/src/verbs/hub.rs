//! `skopos hub`: one view of many nodes, asked in SQL.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use skopos_agent::config::Config;
use skopos_agent::{Signals, is_for_hub};
use skopos_node::LiveArgs;
use skopos_serve::{ListenArgs, Served};
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, tell};

/// The time after which an endpoint of `--connect` should have answered.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct HubArgs {
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    listeners: ListenArgs,
    /// Read this configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(global: &Global, args: &HubArgs) -> Result<ExitCode, Failure> {
    crate::allocator::return_memory();
    let signals = Signals::catch()?;
    let config = Config::load(args.config.as_deref())?;
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    let hub = Served::start(&dir, (&args.live, true), &args.listeners, &config)?;
    let mut out = Out::new(global.style());
    let listeners = hub.addresses().join(", ");
    out.line(format!("skopos hub: site `{}`, asked at {listeners}", hub.site()))?;
    out.flush()?;
    for warning in hub.warnings() {
        let _ = warning.report();
    }
    let to_agents = config.insight.iter().filter(|insight| !is_for_hub(insight));
    let to_agents: Vec<&str> = to_agents.map(|insight| insight.name.as_str()).collect();
    if !to_agents.is_empty() {
        let names = to_agents.join("`, `");
        tell(format!(
            "warning: these insights belong to agents: `{names}`; `where = \"hub\"` gives an insight to the hub"
        ));
    }
    if !args.live.connect().is_empty() {
        if signals.wait_for(PATIENCE)? {
            return Ok(ExitCode::SUCCESS);
        }
        if hub.is_alone() {
            let at = args.live.connect().join(", ");
            tell(format!("warning: {at} does not answer, and no node has joined; still trying"));
        }
    }
    signals.wait()?;
    Ok(ExitCode::SUCCESS)
}
