//! The agents of a lab: one in each host and each switch, with telemetry of the network.
//!
//! Hosts are sources and sinks of all TCP and UDP between addresses of the lab, and each collects what arrives at it.
//! Switches add the state of their queues. Every host reports its anomalies to the first one. The block devices of the
//! machine belong to the hosts for which the topology has a disk; the other nodes have no facts of them.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use skopos_net::lab::{Lab, state_folder};
use skopos_term::{Failure, tell};

use super::place::failed;
use super::shown::{dir_of, folder_of, id_of, state_of};

/// The MTU of hosts: the least of IPv6. The header of telemetry and the data of five hops fit the 1500 bytes of a link.
const HOST_MTU: &str = "1280";

/// Bytes of the key of a lab.
const KEY_BYTES: usize = 32;

/// The port at which each host collects reports, at its loopback.
const COLLECTOR: &str = "127.0.0.1:7363";

/// The port at which the first host receives anomaly reports.
const ANOMALY_PORT: u16 = 7364;

/// The part of a core that the agent of a host may use. A detector learns from two minutes of a sample a second; within the usual
/// 1 %, the agents that share a small machine would poll less often and learn longer.
const BUDGET: &str = "5%";

/// Families of block devices. All nodes of a lab see the devices of the machine.
const OF_DEVICES: [&str; 4] = ["block", "block_access", "block_latency", "device"];

/// Time for an agent to write its last samples.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time to pass the last warnings on. The pipe of an agent that has ended stays open as long as a program that the agent
/// started has it.
const PIPE_PATIENCE: Duration = Duration::from_secs(2);

/// Time between two looks at agents that end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The longest line of an agent's warning that is passed on.
const MAX_LINE_BYTES: u64 = 4096;

/// Running agents. They end when this value is dropped.
#[derive(Default)]
pub(super) struct Agents {
    running: Vec<(String, Child)>,
    /// Pass warnings on, and end with the last program that has the pipe of their agent.
    threads: Vec<JoinHandle<()>>,
}

impl Agents {
    /// Starts an agent in each node.
    ///
    /// # Errors
    /// A file cannot be written, or a program cannot be started.
    pub(super) fn start(lab: &Lab) -> Result<Self, Failure> {
        let name = &lab.topology().name;
        let key = state_folder(name).join("site.key");
        make_key(&key).map_err(|e| cannot_write(&key, &e))?;
        let program = std::env::current_exe()
            .map_err(|e| Failure::new("cannot find this program").because(&e))?;
        let mut agents = Self::default();
        for node in lab.topology().nodes() {
            prepare(lab, node)?;
            let folder = folder_of(name, node);
            for folder in [&dir_of(name, node), &state_of(name, node)] {
                let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
                made.map_err(|e| cannot_write(folder, &e))?;
            }
            let config = folder.join("skopos.toml");
            fs::write(&config, config_of(lab, node, &key)?)
                .map_err(|e| cannot_write(&config, &e))?;
            let mut command = lab.command(node, &program).map_err(|e| failed(&e))?;
            command.arg("agent").args(["--node", node]).arg("--config").arg(&config);
            command.env("SKOPOS_DIR", dir_of(name, node)).env("SKOPOS_STATE", state_of(name, node));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn().map_err(|e| {
                Failure::new(format!("cannot start the agent of {node}")).because(&e)
            })?;
            if let Some(stderr) = child.stderr.take() {
                let node = node.to_owned();
                agents.threads.push(thread::spawn(move || pass_on(&node, stderr)));
            }
            agents.running.push((node.to_owned(), child));
        }
        Ok(agents)
    }

    /// Returns the agents that have ended since the last call, with their statuses.
    pub(super) fn take_ended(&mut self) -> Vec<(String, ExitStatus)> {
        let mut ended = Vec::new();
        self.running.retain_mut(|(node, child)| match child.try_wait() {
            Ok(Some(status)) => {
                ended.push((std::mem::take(node), status));
                false
            }
            _ => true,
        });
        ended
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for (_, child) in &self.running {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let since = Instant::now();
        while !self.running.is_empty() && since.elapsed() < PATIENCE {
            self.take_ended();
            thread::sleep(LOOK_EVERY);
        }
        for (_, child) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        let since = Instant::now();
        while self.threads.iter().any(|thread| !thread.is_finished())
            && since.elapsed() < PIPE_PATIENCE
        {
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Writes a random key that only root can read.
fn make_key(path: &Path) -> std::io::Result<()> {
    let mut bytes = [0; KEY_BYTES];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut text = String::new();
    for byte in bytes {
        // A string takes all.
        let _ = write!(text, "{byte:02x}");
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    std::io::Write::write_all(&mut file, text.as_bytes())
}

fn cannot_write(path: &Path, e: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}", path.display())).because(e)
}

/// Makes room for telemetry in the packets of a host, and turns off the segments that a network card would cut: they get
/// no telemetry.
fn prepare(lab: &Lab, node: &str) -> Result<(), Failure> {
    let is_host = lab.topology().hosts.iter().any(|host| host.name == node);
    for port in lab.ports(node).iter().filter(|_| is_host) {
        let words = ["link", "set", "dev", &port.interface, "mtu", HOST_MTU, "gso_max_segs", "1"];
        lab.exec(node, "ip", &words).map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// Returns the configuration of the agent of a node.
fn config_of(lab: &Lab, node: &str, key: &Path) -> Result<String, Failure> {
    let topology = lab.topology();
    let id = id_of(topology, node).unwrap_or_default();
    let host = topology.hosts.iter().position(|host| host.name == node);
    let mut text = "[agent]\n".to_owned();
    if host.is_some() {
        let _ = writeln!(text, "budget = \"{BUDGET}\"");
    }
    if !topology.disks.iter().any(|disk| disk.host == node) {
        let _ = writeln!(text, "skip = {OF_DEVICES:?}");
    }
    let _ = write!(text, "[telemetry]\nkey_file = \"{}\"\n", key.display());
    let ports = lab.ports(node);
    if !ports.is_empty() {
        let _ = writeln!(text, "[telemetry.node]\nid = {id}");
        if host.is_some() {
            let _ = writeln!(text, "collector = \"{COLLECTOR}\"");
            text +=
                "watch = [{ destination = \"10.77.0.0/24\" }, { destination = \"fd77::/64\" }]\n";
        }
        let links = topology.links.iter().filter(|link| link.ends.iter().any(|end| end == node));
        for ((at, port), link) in (1..).zip(&ports).zip(links) {
            let _ = writeln!(
                text,
                "[[telemetry.node.interface]]\nname = \"{}\"\nport = {at}\ntransit = true",
                port.interface
            );
            if let Some(rate) = link.rate_mbit {
                let _ = writeln!(text, "rate_mbit = {rate:?}");
            }
            if host.is_some() {
                text += "source = \"egress\"\nsink = \"ingress\"\n";
            }
        }
    }
    if host.is_none() {
        return Ok(text);
    }
    let _ = writeln!(
        text,
        "[telemetry.collector]\nlisten = \"{COLLECTOR}\"\nsources = [\"127.0.0.0/8\"]"
    );
    if let Some(first) = topology.hosts.first() {
        let (address, _) = lab.addresses(&first.name).map_err(|e| failed(&e))?;
        // Detectors learn from samples: with longer intervals they would learn for an hour.
        text += "[sensors.default]\npolicy = \"fixed\"\n";
        let _ = writeln!(text, "[telemetry.anomalies]\nsend_to = \"{address}:{ANOMALY_PORT}\"");
        if host == Some(0) {
            let _ = writeln!(text, "listen = \"{address}:{ANOMALY_PORT}\"");
        }
    }
    Ok(text)
}

/// Prints the warnings of an agent with the name of its node.
fn pass_on(node: &str, stderr: ChildStderr) {
    let mut reader = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => tell(format!("{node}: {}", String::from_utf8_lossy(&line).trim_end())),
        }
    }
}
