//! Cases of the paper: processes, their configuration and their load.

pub mod table;
pub mod folder;
pub mod findings;
pub mod measure;
pub mod figures;

use std::path::PathBuf;

use serde::Serialize;

use crate::children::{Launcher, Process};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::latencies::Latencies;
use crate::load::{Report, Size};
use crate::process::Work;

use folder::Folder;

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name on the command line.
    pub name: &'static str,
    /// The case in one sentence.
    pub summary: &'static str,
    /// The work of each client.
    pub work: Work,
    /// The size of that work.
    pub size: Size,
    /// Configuration of all processes.
    pub config: Config,
}

/// The outcome of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the case.
    pub case: String,
    /// Configuration of all processes.
    pub config: Config,
    /// Events, documents, or writes and reads of all clients.
    pub events: u64,
    /// Calls of all clients; those of servers are not among them.
    pub calls: u64,
    /// Seconds until the last client was done.
    pub seconds: f64,
    /// Events in each second.
    pub events_per_second: f64,
    /// The sum of the latencies of all calls of clients: the paper's cumulative execution time.
    pub cumulative_seconds: f64,
    /// Half of the calls were faster.
    pub p50_us: f64,
    /// Ninety-nine in a hundred calls were faster.
    pub p99_us: f64,
    /// Folder of the traces, if there are any.
    pub trace: Option<PathBuf>,
}

impl Case {
    /// Runs the case: starts its servers and clients, lets all clients begin at once, and waits until all have ended.
    ///
    /// # Errors
    /// A process cannot be started, or fails.
    pub fn run(&self, launcher: &Launcher) -> Result<Outcome> {
        let launcher = Launcher { config: self.config.clone(), ..launcher.clone() };
        let folder = Folder::new()?;
        let (mut servers, paths) = servers(&launcher, &folder)?;
        let clients: Result<Vec<Process>> = (0..self.config.clients)
            .map(|number| launcher.client(number, self.work, &self.size, &paths))
            .collect();
        let mut clients = clients?;
        for client in &mut clients {
            client.tell("go")?;
        }
        let reports: Result<Vec<Report>> = clients.iter().map(report).collect();
        for process in clients.iter_mut().chain(&mut servers) {
            process.wait()?;
        }
        Ok(self.outcome(&reports?, launcher.trace.clone()))
    }

    fn outcome(&self, reports: &[Report], trace: Option<PathBuf>) -> Outcome {
        let mut latencies = Latencies::default();
        reports.iter().for_each(|report| latencies.merge(&report.latencies));
        let events = reports.iter().map(|report| report.events).sum();
        let seconds = reports.iter().map(|report| report.seconds).fold(0.0, f64::max);
        Outcome {
            case: self.name.to_owned(),
            config: self.config.clone(),
            events,
            calls: latencies.count(),
            seconds,
            events_per_second: if seconds > 0.0 { events as f64 / seconds } else { 0.0 },
            cumulative_seconds: latencies.cumulative_seconds(),
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            trace,
        }
    }
}

/// Starts the servers of a configuration with sockets in `folder`.
///
/// # Errors
/// A process cannot be started.
pub fn servers(launcher: &Launcher, folder: &Folder) -> Result<(Vec<Process>, Vec<PathBuf>)> {
    let paths: Vec<PathBuf> =
        (0..launcher.config.providers).map(|n| folder.path().join(format!("{n}.sock"))).collect();
    let servers: Result<Vec<Process>> =
        (0..).zip(&paths).map(|(number, path)| launcher.server(number, path)).collect();
    Ok((servers?, paths))
}

/// Reads the report of a client.
///
/// # Errors
/// The client ends without a report.
pub fn report(client: &Process) -> Result<Report> {
    serde_json::from_str(&client.line()?)
        .map_err(|source| Error::Json { doing: "read the report of a client", source })
}
