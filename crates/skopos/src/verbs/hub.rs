//! `skopos hub`: one view of many nodes, asked in SQL.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use skopos_query::Engine;
use skopos_shm::Host;
use skopos_wire::{Follower, Plane};

use crate::agent::Signals;
use crate::cli::Global;
use crate::failure::Failure;
use crate::hub::{Door, HubSource, socket_path};
use crate::live::LiveArgs;
use crate::out::Out;
use crate::sql::Local;

#[derive(Debug, Args)]
pub(crate) struct HubArgs {
    #[command(flatten)]
    live: LiveArgs,
}

pub(crate) fn run(global: &Global, args: &HubArgs) -> Result<ExitCode, Failure> {
    let signals = Signals::catch()?;
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    let runtime = runtime.map_err(|e| Failure::new("no threads can be started").because(&e))?;
    let plane = Plane::open(&args.live.config())
        .map_err(|e| Failure::new("the hub cannot join").because(&e))?;
    let follower =
        Follower::start(&plane).map_err(|e| Failure::new("the hub cannot join").because(&e))?;
    std::fs::create_dir_all(&dir)
        .map_err(|e| Failure::new(format!("{} cannot be made", dir.display())).because(&e))?;
    let host = Host::open_dirs(vec![dir.clone()])?;
    let source = HubSource::new(Local::new(host), follower.site().clone());
    let engine = Engine::new(Arc::new(source), BTreeMap::new())
        .map_err(|e| Failure::new("the query engine cannot start").because(&e))?;
    let _door = Door::open(&dir, Arc::new(engine), runtime.handle().clone())?;
    let mut out = Out::new(global.style());
    out.line(format!(
        "skopos hub: site `{}`, asked at {}",
        args.live.site(),
        socket_path(&dir).display()
    ))?;
    out.flush()?;
    signals.wait()?;
    Ok(ExitCode::SUCCESS)
}
