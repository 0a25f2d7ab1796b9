//! Nodes of one machine: real agents, each with a name and a runtime directory of its own, and two
//! hubs that follow them. One hub is in this process and is asked through the Rust interface; the other
//! is `skopos hub` and is asked through its listeners.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use skopos_query::{Engine, Limits};
use tokio::runtime::{Builder, Runtime};

use super::ours::values_of;
use super::question::{Question, node};
use crate::child::{Process, free_address, wait_for};
use skopos_agent::config::Config;
use skopos_hub::client::ask;
use skopos_hub::messages::socket_path;
use skopos_serve::{ListenArgs, Served};
use skopos_term::Failure;

use crate::programs;
use skopos_access::Caller;
use skopos_node::LiveArgs;

/// The longest time until both hubs know all nodes.
const START: Duration = Duration::from_secs(60);

/// The processes end by themselves after this time, if the benchmark is killed.
const LIFE: &str = "30m";

/// The nodes and their hubs. All end when this is dropped.
pub(super) struct Cluster {
    program: PathBuf,
    dir: PathBuf,
    site: String,
    /// The addresses at which the hubs listen for agents.
    hubs: [String; 2],
    agents: Vec<Process>,
    near: Served,
    far: Process,
    pub(super) runtime: Runtime,
    pub(super) listeners: Listeners,
}

/// The listeners of the other hub.
#[derive(Clone, Debug)]
pub(super) struct Listeners {
    /// Its runtime directory, with the UNIX socket.
    pub(super) dir: PathBuf,
    /// The HTTP address, such as `127.0.0.1:7470`.
    pub(super) http: String,
    /// The Flight SQL address, such as `127.0.0.1:7471`.
    pub(super) flight: String,
}

impl Cluster {
    /// Starts the hubs, with all of their files in `dir`.
    pub(super) fn start(dir: &Path) -> Result<Self, Failure> {
        let broken = |e: std::io::Error| Failure::new("cannot start a hub").because(&e);
        let program = programs::skopos()?;
        let site = format!("bench-{}", std::process::id());
        let hubs = [endpoint().map_err(broken)?, endpoint().map_err(broken)?];
        let plane = LiveArgs::at(&site, &hubs[0]);
        let near = Served::start(
            &dir.join("near"),
            (&plane, true),
            &ListenArgs::disabled(),
            &Config::default(),
        )?;
        let (http, flight) = (free_address().map_err(broken)?, free_address().map_err(broken)?);
        let listeners = Listeners { dir: dir.join("far"), http, flight };
        let config = dir.join("hub.toml");
        std::fs::write(&config, "").map_err(broken)?;
        let mut command = Command::new(&program);
        command.args(["hub", "--site", &site, "--listen", &hubs[1], "--insecure"]);
        command.args(["--http", &listeners.http, "--flight", &listeners.flight]);
        command.arg("--config").arg(&config).arg("--dir").arg(&listeners.dir);
        let far = quiet(&mut command, &dir.join("hub.log")).map_err(broken)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(broken)?;
        let (dir, agents) = (dir.to_path_buf(), Vec::new());
        Ok(Self { program, dir, site, hubs, agents, near, far, runtime, listeners })
    }

    /// The engine of the hub in this process.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.near.engine()
    }

    /// Starts agents up to this number, and waits until both hubs know their facts.
    pub(super) fn grow(&mut self, nodes: usize) -> Result<(), Failure> {
        let first = self.agents.len();
        for index in first..nodes {
            let agent = self.agent(index).map_err(|e| {
                Failure::new(format!("the agent {} cannot be started", node(index))).because(&e)
            })?;
            self.agents.push(agent);
        }
        for index in first..nodes {
            let sql = Question::of_node(index).union();
            let (near, far) = (self.near.engine().clone(), self.listeners.dir.clone());
            let is_known = || {
                let (sql, limits) = (sql.as_str(), Limits::default());
                let own = self.runtime.block_on(near.query(&Caller::Owner, sql, &limits)).ok()?;
                let other =
                    ask(&UnixStream::connect(socket_path(&far)).ok()?, sql, &limits).ok()?;
                let is_whole = |values: Vec<f64>| values.len() == Question::of_node(0).topics.len();
                let both = [&own, &other].map(|answer| values_of(answer).map(is_whole));
                (both == [Ok(true), Ok(true)]).then_some(())
            };
            wait_for(&mut self.agents[index], START, is_known).map_err(|why| {
                let (hub, agent) = (self.dir.join("hub.log"), self.log(index));
                let said = [hub, agent].map(|log| std::fs::read_to_string(log).unwrap_or_default());
                let failure =
                    Failure::new(format!("{} does not reach the hubs: {why}", node(index)));
                failure.hint(said.concat().trim())
            })?;
        }
        match self.far.runs() {
            true => Ok(()),
            false => Err(Failure::new("the hub ended by itself")),
        }
    }

    fn agent(&self, index: usize) -> std::io::Result<Process> {
        let dir = self.dir.join(node(index));
        std::fs::create_dir(&dir)?;
        let mut command = Command::new(&self.program);
        command.args(["agent", "--for", LIFE, "--live", "--insecure"]);
        command.args(["--site", &self.site, "--node", &node(index)]);
        for hub in &self.hubs {
            command.args(["--connect", hub]);
        }
        command.arg("--config").arg(self.dir.join("hub.toml")).arg("--dir").arg(&dir);
        quiet(&mut command, &self.log(index))
    }

    fn log(&self, index: usize) -> PathBuf {
        self.dir.join(format!("{}.log", node(index)))
    }
}

/// Starts a role of `skopos` without the configuration of the user.
fn quiet(command: &mut Command, log: &Path) -> std::io::Result<Process> {
    command.env_remove(skopos_shm::DIR_VARIABLE).stdin(Stdio::null()).stdout(Stdio::null());
    Process::start(command.stderr(File::create(log)?))
}

fn endpoint() -> std::io::Result<String> {
    Ok(format!("tcp/{}", free_address()?))
}
