//! A lab on one machine: network namespaces as hosts and switches, links with rate and delay, disks with seeks.
//!
//! # Invariants
//! - A lab is gone when its [`Lab`] is dropped. What a killed process leaves behind is removed by the next
//!   [`Lab::up`] or [`down`] of that name.
//! - A lab touches nothing but the namespaces with its name, the processes in them, and its folders.
//!
//! Read in this order: `topology` (the file), `command`, this file, `tap` and `delay` (links with a delay), `disk`,
//! `processes`.

mod topology;
mod command;
mod tap;
mod delay;
mod disk;
mod processes;

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::Error;
use crate::netns::{NAMED, Namespace};
use command::{finished, run};
use delay::DelayLine;
use disk::RunningDisk;

use topology::check_name;
pub use topology::{
    Disk, Host, LabPort, Link, MAX_DELAY_MS, MAX_LINKS, MAX_NAME_BYTES, MAX_NODES, Switch, Topology,
};

/// The folder of all labs. Their disks are mounted below it.
const FOLDER: &str = "/run/skopos-lab";

/// The lab that comes with Skopos: three hosts, two switches, a slow link between them, and a disk that seeks.
pub const EXAMPLE: &str = include_str!("../../examples/lab.toml");

/// A running lab.
#[derive(Debug)]
pub struct Lab {
    topology: Topology,
    /// Lines with the places of their links in the topology.
    lines: Vec<(usize, DelayLine)>,
    disks: Vec<(String, RunningDisk)>,
}

impl Lab {
    /// Builds a lab. What is left of an earlier lab of this name is removed first.
    ///
    /// # Errors
    /// The topology has a fault, this process is not root, `ip` or `tc` (iproute2) is missing, or the kernel
    /// refuses a part. What was built is removed.
    pub fn up(topology: Topology) -> Result<Self, Error> {
        topology.check()?;
        down(&topology.name)?;
        let mut lab = Self { topology, lines: Vec::new(), disks: Vec::new() };
        lab.build()?;
        Ok(lab)
    }

    fn build(&mut self) -> Result<(), Error> {
        let nodes: Vec<String> = self.topology.nodes().map(str::to_owned).collect();
        for node in &nodes {
            let name = self.namespace_name(node);
            run("ip", &["netns", "add", &name])?;
            self.exec(node, "sh", &["-c", QUIET])?;
            run("ip", &["-n", &name, "link", "set", "lo", "up"])?;
        }
        for switch in self.topology.switches.clone() {
            let name = self.namespace_name(&switch.name);
            let words =
                ["link", "add", "br0", "type", "bridge", "stp_state", "0", "mcast_snooping", "0"];
            run("ip", &[&["-n", &*name][..], &words].concat())?;
            run("ip", &["-n", &name, "link", "set", "br0", "up"])?;
        }
        for at in 0..self.topology.links.len() {
            self.build_link(at)?;
        }
        for (host, (v4, v6)) in self.topology.hosts.clone().iter().zip((0..).map(addresses)) {
            let name = self.namespace_name(&host.name);
            if self.ports(&host.name).is_empty() {
                continue;
            }
            run("ip", &["-n", &name, "address", "add", &format!("{v4}/24"), "dev", "eth0"])?;
            run(
                "ip",
                &["-n", &name, "address", "add", &format!("{v6}/64"), "dev", "eth0", "nodad"],
            )?;
        }
        for disk in self.topology.disks.clone() {
            let folder = Path::new(FOLDER).join(&self.topology.name).join(&disk.name);
            let running = RunningDisk::start(&disk, &folder)?;
            self.disks.push((disk.name, running));
        }
        Ok(())
    }

    fn build_link(&mut self, at: usize) -> Result<(), Error> {
        let link = self.topology.links[at].clone();
        let [near, far] = [0, 1].map(|end| {
            let node = &link.ends[end];
            (self.namespace_name(node), self.topology.interface(node, at))
        });
        match link.delay_ms.filter(|delay| *delay > 0.0) {
            Some(delay) => {
                let make = |(namespace, interface): &(String, String)| {
                    Namespace::named(namespace)?.run(|| tap::open(interface))
                };
                let ends = [make(&near)?, make(&far)?];
                let line = DelayLine::start(ends, Duration::from_secs_f64(delay / 1000.0))?;
                self.lines.push((at, line));
            }
            None => run(
                "ip",
                &[
                    "link", "add", &near.1, "netns", &near.0, "type", "veth", "peer", "name",
                    &far.1, "netns", &far.0,
                ],
            )?,
        }
        for (end, (namespace, interface)) in [near, far].iter().enumerate() {
            if self.topology.switches.iter().any(|switch| switch.name == link.ends[end]) {
                run("ip", &["-n", namespace, "link", "set", interface, "master", "br0"])?;
            }
            run("ip", &["-n", namespace, "link", "set", interface, "up"])?;
            if let Some(rate) = link.rate_mbit {
                shape(namespace, interface, rate, link.queue_bytes)?;
            }
        }
        Ok(())
    }

    /// Returns the interfaces of a node, in the order of its links: `eth0` and so on at a host, `p1` and so on at a
    /// switch.
    pub fn ports(&self, node: &str) -> Vec<LabPort> {
        self.topology.ports(node)
    }

    /// Returns the network namespace of a node.
    ///
    /// # Errors
    /// The lab has no such node.
    pub fn namespace(&self, node: &str) -> Result<Namespace, Error> {
        self.known(node)?;
        Namespace::named(&self.namespace_name(node))
    }

    /// Returns the addresses of a host.
    ///
    /// # Errors
    /// The lab has no such host.
    pub fn addresses(&self, host: &str) -> Result<(Ipv4Addr, Ipv6Addr), Error> {
        let at = self.topology.hosts.iter().position(|h| h.name == host);
        let unknown = || Error::malformed("a lab", format!("it has no host `{host}`"));
        at.map(addresses).ok_or_else(unknown)
    }

    /// Returns a command that runs in a node.
    ///
    /// # Errors
    /// The lab has no such node.
    pub fn command(&self, node: &str, program: impl AsRef<OsStr>) -> Result<Command, Error> {
        self.known(node)?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace_name(node)]).arg(program);
        Ok(command)
    }

    /// Runs a program in a node, and returns its output.
    ///
    /// # Errors
    /// The lab has no such node, the program does not start, or it fails.
    pub fn exec(&self, node: &str, program: &str, words: &[&str]) -> Result<Output, Error> {
        let output = self.command(node, program)?.args(words).output();
        finished(program, words, output)
    }

    /// Returns the folder in which a disk is mounted.
    ///
    /// # Errors
    /// The lab has no such disk.
    pub fn disk(&self, name: &str) -> Result<PathBuf, Error> {
        self.running(name).map(|disk| disk.data().to_owned())
    }

    /// Writes what the page cache has of a disk, and discards it, so that the next read comes from the disk.
    ///
    /// # Errors
    /// The lab has no such disk, or a file cannot be read.
    pub fn drop_cache(&self, disk: &str) -> Result<(), Error> {
        self.running(disk)?.drop_cache()
    }

    /// Number of seeks of a disk.
    ///
    /// # Errors
    /// The lab has no such disk.
    pub fn seeks(&self, disk: &str) -> Result<u64, Error> {
        self.running(disk).map(RunningDisk::seeks)
    }

    /// Changes the time of a seek of a disk.
    ///
    /// # Errors
    /// The lab has no such disk, or the time is out of range.
    pub fn set_seek(&self, disk: &str, seek_ms: f64) -> Result<(), Error> {
        if !(0.0..=MAX_DELAY_MS).contains(&seek_ms) {
            return Err(Error::malformed("a lab", "a seek takes 0 to 1000 ms".to_owned()));
        }
        self.running(disk)?.set_seek(seek_ms);
        Ok(())
    }

    fn running(&self, name: &str) -> Result<&RunningDisk, Error> {
        let found = self.disks.iter().find(|(own, _)| own == name);
        let unknown = || Error::malformed("a lab", format!("it has no disk `{name}`"));
        found.map(|(_, disk)| disk).ok_or_else(unknown)
    }

    /// Changes the delay of the link between two nodes, in each direction. The link was built with a delay.
    ///
    /// # Errors
    /// There is no such link, or the delay is out of range.
    pub fn set_delay(&self, ends: [&str; 2], delay_ms: f64) -> Result<(), Error> {
        let [a, b] = ends;
        let fault =
            |why: &str| Error::malformed("a lab", format!("the link from `{a}` to `{b}` {why}"));
        if !(0.0..=MAX_DELAY_MS).contains(&delay_ms) {
            return Err(fault("has a delay of 0 to 1000 ms"));
        }
        let joins = |at: usize| {
            let own = &self.topology.links[at].ends;
            own.iter().all(|end| end == a || end == b)
        };
        let line = self.lines.iter().find(|(at, _)| joins(*at));
        let (_, line) = line.ok_or_else(|| fault("was not built with a delay"))?;
        line.set_delay(Duration::from_secs_f64(delay_ms / 1000.0));
        Ok(())
    }

    /// Number of frames that links with a delay have dropped.
    pub fn dropped_frames(&self) -> u64 {
        self.lines.iter().map(|(_, line)| line.dropped()).sum()
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Removes the lab.
    ///
    /// # Errors
    /// A part cannot be removed; the next [`down`] tries again.
    pub fn down(mut self) -> Result<(), Error> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), Error> {
        // File systems before the programs that serve them.
        self.disks.clear();
        self.lines.clear();
        down(&self.topology.name)
    }

    fn known(&self, node: &str) -> Result<(), Error> {
        if self.topology.nodes().any(|name| name == node) {
            return Ok(());
        }
        let nodes: Vec<&str> = self.topology.nodes().collect();
        Err(Error::malformed("a lab", format!("it has no `{node}`; it has {}", nodes.join(", "))))
    }

    fn namespace_name(&self, node: &str) -> String {
        namespace_of(&self.topology.name, node)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A failure cannot be returned here; the next `up` or `down` finds what is left.
        let _ = self.stop();
    }
}

/// Removes all that is left of a lab, whether its process lives or not: ends the processes in its namespaces, unmounts its
/// disks, deletes its namespaces and its folders. Returns without an error if there is nothing.
///
/// # Errors
/// This process is not root, a part cannot be removed, or no lab can have this name.
pub fn down(name: &str) -> Result<(), Error> {
    check_name(name)?;
    let left = left_of(name);
    processes::end(&left);
    let mut outcome = disk::remove_all(&Path::new(FOLDER).join(name));
    for namespace in left {
        outcome = outcome.and(run("ip", &["netns", "delete", &namespace]));
    }
    let state = state_folder(name);
    if state.exists() {
        let removing = Error::system(format!("remove {}", state.display()));
        outcome = outcome.and(fs::remove_dir_all(&state).map_err(removing));
    }
    outcome
}

/// Returns the folder in which a disk of a lab is mounted.
pub fn disk_folder(lab: &str, disk: &str) -> PathBuf {
    Path::new(FOLDER).join(lab).join(disk).join(disk::DATA)
}

/// Returns the folder for the files of programs that run in a lab. The lab removes it with all that is in it.
pub fn state_folder(lab: &str) -> PathBuf {
    // No name of a lab has a dot.
    Path::new(FOLDER).join(format!("{lab}.state"))
}

/// Returns the file by which a process says that a lab is its own.
pub fn claim_file(lab: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{lab}.claim"))
}

/// Returns the names of the labs of which namespaces are there, in their order.
pub fn labs() -> Vec<String> {
    let names = namespaces().into_iter().filter_map(|entry| {
        let (lab, node) = entry.strip_prefix("skopos-")?.split_once('-')?;
        // Other programs name namespaces too.
        let is_ours = check_name(lab).is_ok() && check_name(node).is_ok();
        is_ours.then(|| lab.to_owned())
    });
    let mut labs: Vec<String> = names.collect();
    labs.sort();
    labs.dedup();
    labs
}

/// Returns the names of the nodes of a lab whose namespaces are there, in their order.
pub fn nodes(lab: &str) -> Vec<String> {
    let prefix = prefix(lab);
    let left = left_of(lab).into_iter();
    let mut nodes: Vec<String> = left.map(|entry| entry[prefix.len()..].to_owned()).collect();
    nodes.sort();
    nodes
}

/// Returns the name of the namespace of a node.
pub fn namespace_of(lab: &str, node: &str) -> String {
    format!("{}{node}", prefix(lab))
}

/// Returns the names of the namespaces of a lab.
fn left_of(name: &str) -> Vec<String> {
    let prefix = prefix(name);
    namespaces().into_iter().filter(|entry| entry.starts_with(&prefix)).collect()
}

fn namespaces() -> Vec<String> {
    let Ok(entries) = fs::read_dir(NAMED) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

fn prefix(lab: &str) -> String {
    // Names have no dash, so no name of a lab is the begin of another prefix.
    format!("skopos-{lab}-")
}

/// Turns off the packets that a kernel sends by itself, which would disturb measurements.
const QUIET: &str = "echo 0 >/proc/sys/net/ipv6/conf/default/router_solicitations; \
     echo 1 >/proc/sys/net/ipv6/conf/default/addr_gen_mode; \
     echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad";

/// Returns the addresses of a host by its place in the file: 10.77.0.1 and fd77::1 for the first.
pub fn addresses(at: usize) -> (Ipv4Addr, Ipv6Addr) {
    // At most 64 nodes.
    let last = at as u16 + 1;
    (Ipv4Addr::new(10, 77, 0, last as u8), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last))
}

/// Limits the rate at which an interface sends.
fn shape(namespace: &str, interface: &str, rate_mbit: f64, queue_bytes: u32) -> Result<(), Error> {
    let bits = (rate_mbit * 1e6) as u64;
    // The bytes of 2 ms, and never less than two full frames.
    let burst = (bits / 8 / 500).max(3200);
    let rate = format!("{bits}bit");
    let (burst, limit) = (burst.to_string(), queue_bytes.max(3200).to_string());
    let words = [
        "qdisc", "add", "dev", interface, "root", "tbf", "rate", &rate, "burst", &burst, "limit",
        &limit,
    ];
    run("tc", &[&["-n", namespace][..], &words].concat())
}
