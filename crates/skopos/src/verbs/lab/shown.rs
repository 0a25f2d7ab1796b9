//! A lab as verbs show it.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;
use skopos_net::lab::{self, Topology, state_folder};
use skopos_term::{Failure, Out, Style};

use super::claim::Holder;

/// The name of the topology in the folder of a lab's state.
pub(super) const TOPOLOGY: &str = "lab.toml";

/// The folder of an agent's segments, below the folder of its node.
const RUN: &str = "run";

/// The folder of an agent's state, below the folder of its node.
const STATE: &str = "state";

/// A lab: a line of `docs/json/lab.schema.json`.
#[derive(Debug, Serialize)]
pub(super) struct ShownLab {
    lab: String,
    /// The process that holds it; `None` if that was killed.
    pid: Option<i32>,
    nodes: Vec<ShownNode>,
    disks: Vec<ShownDisk>,
}

#[derive(Debug, Serialize)]
struct ShownNode {
    name: String,
    /// `host` or `switch`; `None` if the topology is lost.
    kind: Option<&'static str>,
    /// Its id in telemetry.
    id: Option<u32>,
    addresses: Vec<String>,
    /// The other ends of its links, by port.
    ports: Vec<ShownPort>,
    namespace: String,
    /// The directory of the segments of its agent, if one was started.
    dir: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct ShownPort {
    interface: String,
    peer: String,
}

#[derive(Debug, Serialize)]
struct ShownDisk {
    name: String,
    host: String,
    folder: PathBuf,
}

/// Returns the folder of the files of a node's agent.
pub(super) fn folder_of(lab: &str, node: &str) -> PathBuf {
    state_folder(lab).join(node)
}

/// Returns the directory of the segments of a node's agent.
pub(super) fn dir_of(lab: &str, node: &str) -> PathBuf {
    folder_of(lab, node).join(RUN)
}

/// Returns the folder of state of the programs of a node.
pub(super) fn state_of(lab: &str, node: &str) -> PathBuf {
    folder_of(lab, node).join(STATE)
}

/// Returns the id of a node in telemetry: its place among hosts and switches, from 1.
pub(super) fn id_of(topology: &Topology, node: &str) -> Option<u32> {
    (1..).zip(topology.nodes()).find(|(_, name)| *name == node).map(|(id, _)| id)
}

/// Returns a lab of this machine.
pub(super) fn look(name: &str) -> ShownLab {
    let text = fs::read_to_string(state_folder(name).join(TOPOLOGY));
    let topology = text.ok().and_then(|text| Topology::parse(&text).ok());
    let nodes = lab::nodes(name).into_iter().map(|node| shown_node(name, node, topology.as_ref()));
    let mut nodes: Vec<ShownNode> = nodes.collect();
    nodes.sort_by_key(|node| node.id);
    let disks = topology.iter().flat_map(|topology| &topology.disks).map(|disk| ShownDisk {
        name: disk.name.clone(),
        host: disk.host.clone(),
        folder: lab::disk_folder(name, &disk.name),
    });
    let pid = Holder::of(name).map(|holder| holder.pid.as_raw_nonzero().get());
    ShownLab { lab: name.to_owned(), pid, nodes, disks: disks.collect() }
}

fn shown_node(lab: &str, name: String, topology: Option<&Topology>) -> ShownNode {
    let host = topology.and_then(|topology| topology.hosts.iter().position(|h| h.name == name));
    let addresses = host.map(lab::addresses).map(|(v4, v6)| vec![v4.to_string(), v6.to_string()]);
    let ports = topology.map(|topology| topology.ports(&name)).unwrap_or_default();
    let dir = dir_of(lab, &name);
    ShownNode {
        kind: topology.map(|_| if host.is_some() { "host" } else { "switch" }),
        id: topology.and_then(|topology| id_of(topology, &name)),
        addresses: addresses.unwrap_or_default(),
        ports: ports
            .into_iter()
            .map(|port| ShownPort { interface: port.interface, peer: port.peer })
            .collect(),
        namespace: lab::namespace_of(lab, &name),
        dir: dir.exists().then_some(dir),
        name,
    }
}

impl ShownLab {
    /// Prints the lab.
    pub(super) fn print(&self, out: &mut Out) -> Result<(), Failure> {
        if out.style == Style::Json {
            out.json(self)?;
            return Ok(());
        }
        let by = match self.pid {
            Some(pid) => format!("held by process {pid}"),
            None => format!("its process was killed: `skopos lab down {}` removes it", self.lab),
        };
        out.line(format!("lab {}: {by}", out.bold(&self.lab)))?;
        let header = ["NODE", "KIND", "ID", "PORTS", "ADDRESSES", "NAMESPACE"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for node in &self.nodes {
            let port = |port: &ShownPort| format!("{} to {}", port.interface, port.peer);
            rows.push(vec![
                node.name.clone(),
                node.kind.unwrap_or("-").to_owned(),
                node.id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
                node.ports.iter().map(port).collect::<Vec<_>>().join(", "),
                node.addresses.join(" "),
                node.namespace.clone(),
            ]);
        }
        out.table(&rows, &[2])?;
        for disk in &self.disks {
            out.line(format!("disk {} of {}: {}", disk.name, disk.host, disk.folder.display()))?;
        }
        Ok(())
    }
}
