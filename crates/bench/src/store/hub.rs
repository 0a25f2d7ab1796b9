//! A hub of its own process, to which producers send records by Flight.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use skopos_term::Failure;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use crate::child::{Process, free_address, wait_for};
use crate::programs;

/// The longest time until the hub listens.
const START: Duration = Duration::from_secs(60);

/// Settings of a hub.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup<'s> {
    /// The name of its site; the usual one if it is empty.
    pub(super) site: &'s str,
    /// Its configuration.
    pub(super) config: &'s str,
}

/// The hub. It ends when this is dropped.
pub(super) struct Hub {
    _process: Process,
    flight: String,
}

impl Hub {
    /// Starts a hub with all of its files in `dir`.
    pub(super) fn start(dir: &Path, runtime: &Runtime, setup: Setup<'_>) -> Result<Self, Failure> {
        let broken = |e: std::io::Error| Failure::new("cannot start a hub").because(&e);
        let flight = free_address().map_err(broken)?;
        let config = dir.join("skopos.toml");
        std::fs::write(&config, setup.config).map_err(broken)?;
        let state = dir.join("state");
        let mut command = Command::new(programs::skopos()?);
        command.args(["hub", "--http", "none", "--flight", &flight, "--config"]).arg(&config);
        if !setup.site.is_empty() {
            command.args(["--site", setup.site]);
        }
        command.arg("--dir").arg(dir.join("run")).env("SKOPOS_STATE", &state);
        command.env_remove(skopos_shm::DIR_VARIABLE).stdin(Stdio::null()).stdout(Stdio::null());
        let log = dir.join("hub.log");
        command.stderr(File::create(&log).map_err(broken)?);
        let mut process = Process::start(&mut command).map_err(broken)?;
        let ready = || runtime.block_on(connect(&flight)).ok();
        wait_for(&mut process, START, ready).map_err(|why| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            Failure::new(format!("the hub does not listen: {why}")).hint(said.trim().to_owned())
        })?;
        Ok(Self { _process: process, flight })
    }

    /// Returns the URL of its Flight listener.
    pub(super) fn url(&self) -> String {
        format!("grpc://{}", self.flight)
    }

    /// Connects a client.
    pub(super) async fn connect(&self) -> Result<FlightServiceClient<Channel>, Failure> {
        let failed =
            |e: tonic::transport::Error| Failure::new("cannot connect to the hub").because(&e);
        connect(&self.flight).await.map_err(failed)
    }
}

async fn connect(address: &str) -> Result<FlightServiceClient<Channel>, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    Ok(FlightServiceClient::new(endpoint.connect().await?))
}
