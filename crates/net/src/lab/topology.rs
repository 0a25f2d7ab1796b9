//! The file that describes a lab.

use std::collections::HashSet;

use serde::Deserialize;

use crate::Error;

/// The most hosts and switches of a lab. Each is a network namespace; a machine with two cores makes 64 in seconds.
pub const MAX_NODES: usize = 64;

/// The most links of a lab.
pub const MAX_LINKS: usize = 256;

/// The longest name of a lab, a host, a switch or a disk: it is a part of the name of a namespace.
pub const MAX_NAME_BYTES: usize = 16;

/// The longest delay of a link, once around the earth by fibre and more.
pub const MAX_DELAY_MS: f64 = 1000.0;

/// The smallest disk: a smaller ext4 has no room for its journal.
const MIN_DISK_MB: u32 = 16;

/// The largest disk: its file system is made in seconds, and its image is shorter than the longest file of ext4.
const MAX_DISK_MB: u32 = 1_000_000;

/// The slowest disk: the kernel asks for at most 128 KiB at once, for which it waits 1.3 seconds.
const MIN_DISK_RATE_MB: f64 = 0.1;

/// The fastest disk: any machine is slower.
const MAX_DISK_RATE_MB: f64 = 100_000.0;

const WHAT: &str = "a topology";

/// A lab: hosts and switches, the links between them, and disks of hosts.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Name of the lab. Two labs on one machine have two names.
    pub name: String,
    /// The hosts.
    #[serde(default, rename = "host")]
    pub hosts: Vec<Host>,
    /// The switches.
    #[serde(default, rename = "switch")]
    pub switches: Vec<Switch>,
    /// The links. A circle of switches needs a host that routes, or the frames of a circle go round for ever; so
    /// circles are refused.
    #[serde(default, rename = "link")]
    pub links: Vec<Link>,
    /// The disks.
    #[serde(default, rename = "disk")]
    pub disks: Vec<Disk>,
}

/// A host.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name.
    pub name: String,
}

/// A switch: a bridge.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Its name.
    pub name: String,
}

/// A link between two nodes.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Names of the two nodes.
    pub ends: [String; 2],
    /// The rate in each direction, in millions of bits a second. Without it, the link is as fast as the machine.
    pub rate_mbit: Option<f64>,
    /// Bytes that wait for a link with a rate.
    #[serde(default = "queue_bytes")]
    pub queue_bytes: u32,
    /// The delay in each direction, in milliseconds.
    pub delay_ms: Option<f64>,
}

/// A disk of a host, with the time of a seek.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Its name.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its size, in millions of bytes.
    pub size_mb: u32,
    /// Milliseconds of a seek: an access that does not begin where the last one ended.
    pub seek_ms: f64,
    /// The rate of accesses without a seek, in millions of bytes a second.
    pub rate_mb: Option<f64>,
}

/// An interface of a node in a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabPort {
    /// Name of the interface in its namespace.
    pub interface: String,
    /// The node at the other end of the link.
    pub peer: String,
}

fn queue_bytes() -> u32 {
    1_000_000
}

impl Topology {
    /// Reads a topology from TOML, and checks it.
    ///
    /// # Errors
    /// The text is not TOML, a name is not allowed or not known, or there is a circle.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let topology: Self = toml::from_str(text)
            .map_err(|e| Error::malformed(WHAT, e.to_string().trim_end().to_owned()))?;
        topology.check()?;
        Ok(topology)
    }

    /// Returns the names of hosts and switches, hosts first.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().map(|host| &*host.name);
        hosts.chain(self.switches.iter().map(|switch| &*switch.name))
    }

    /// Returns the name of the interface of a node for a link.
    pub(super) fn interface(&self, node: &str, link: usize) -> String {
        let before = self.links[..link].iter().filter(|l| l.ends.iter().any(|e| e == node));
        let number = before.count();
        let is_host = self.hosts.iter().any(|host| host.name == node);
        if is_host { format!("eth{number}") } else { format!("p{}", number + 1) }
    }

    /// Returns the interfaces of a node, in the order of its links: `eth0` and so on at a host, `p1` and so on at a
    /// switch.
    pub fn ports(&self, node: &str) -> Vec<LabPort> {
        let own = self.links.iter().enumerate().filter_map(|(at, link)| {
            let end = link.ends.iter().position(|end| end == node)?;
            let peer = link.ends[1 - end].clone();
            Some(LabPort { interface: self.interface(node, at), peer })
        });
        own.collect()
    }

    /// Checks names, bounds and links.
    ///
    /// # Errors
    /// Says the first fault.
    pub fn check(&self) -> Result<(), Error> {
        let fault = |why: String| Err(Error::malformed(WHAT, why));
        let mut known = HashSet::new();
        let disks = self.disks.iter().map(|disk| &*disk.name);
        for name in std::iter::once(&*self.name).chain(disks).chain(self.nodes()) {
            check_name(name)?;
        }
        if let Some(twice) = self.nodes().find(|name| !known.insert((*name).to_owned())) {
            return fault(format!("`{twice}` is there twice"));
        }
        let mut disks = HashSet::new();
        if let Some(twice) = self.disks.iter().find(|disk| !disks.insert(&disk.name)) {
            return fault(format!("the disk `{}` is there twice", twice.name));
        }
        if known.len() > MAX_NODES || self.links.len() > MAX_LINKS {
            return fault(format!("at most {MAX_NODES} hosts and switches, and {MAX_LINKS} links"));
        }
        for link in &self.links {
            if let Some(end) = link.ends.iter().find(|end| !known.contains(*end)) {
                return fault(format!(
                    "a link ends at `{end}`, which is neither a host nor a switch"
                ));
            }
            check_link(link)?;
        }
        for disk in &self.disks {
            if !self.hosts.iter().any(|host| host.name == disk.host) {
                return fault(format!(
                    "the disk `{}` is of `{}`, which is not a host",
                    disk.name, disk.host
                ));
            }
            check_disk(disk)?;
        }
        self.check_circles()
    }

    /// Frames of a circle of switches would go round for ever.
    fn check_circles(&self) -> Result<(), Error> {
        let mut group: Vec<(&str, usize)> =
            self.nodes().enumerate().map(|(at, name)| (name, at)).collect();
        let of = |group: &[(&str, usize)], name: &str| {
            group.iter().find(|(n, _)| *n == name).map(|(_, group)| *group)
        };
        let is_switch = |name: &str| self.switches.iter().any(|switch| switch.name == name);
        for Link { ends: [a, b], .. } in &self.links {
            if !is_switch(a) || !is_switch(b) {
                continue;
            }
            let (first, second) = (of(&group, a), of(&group, b));
            if first == second {
                let why = format!("the link from `{a}` to `{b}` closes a circle of switches");
                return Err(Error::malformed(WHAT, why));
            }
            let (Some(first), Some(second)) = (first, second) else { continue };
            group.iter_mut().filter(|(_, g)| *g == second).for_each(|(_, g)| *g = first);
        }
        Ok(())
    }
}

pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(good) {
        let why = format!("`{name}` is not a name: 1 to {MAX_NAME_BYTES} of a-z and 0-9");
        return Err(Error::malformed(WHAT, why));
    }
    Ok(())
}

fn check_link(link: &Link) -> Result<(), Error> {
    let [a, b] = &link.ends;
    let fault =
        |why: &str| Err(Error::malformed(WHAT, format!("the link from `{a}` to `{b}`: {why}")));
    if a == b {
        return fault("it ends where it begins");
    }
    if link.rate_mbit.is_some_and(|rate| !(0.01..=100_000.0).contains(&rate)) {
        return fault("a rate is between 0.01 and 100000 Mbit/s");
    }
    if link.delay_ms.is_some_and(|delay| !(0.0..=MAX_DELAY_MS).contains(&delay)) {
        return fault("a delay is between 0 and 1000 ms");
    }
    Ok(())
}

fn check_disk(disk: &Disk) -> Result<(), Error> {
    let fault =
        |why: String| Err(Error::malformed(WHAT, format!("the disk `{}`: {why}", disk.name)));
    if !(0.0..=MAX_DELAY_MS).contains(&disk.seek_ms) {
        return fault(format!("a seek takes 0 to {MAX_DELAY_MS} ms"));
    }
    if !(MIN_DISK_MB..=MAX_DISK_MB).contains(&disk.size_mb) {
        return fault(format!("a disk has {MIN_DISK_MB} to {MAX_DISK_MB} MB"));
    }
    let range = MIN_DISK_RATE_MB..=MAX_DISK_RATE_MB;
    if disk.rate_mb.is_some_and(|rate| !range.contains(&rate)) {
        return fault(format!("a rate is between {MIN_DISK_RATE_MB} and {MAX_DISK_RATE_MB} MB/s"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = 'demo'\n[[host]]\nname = 'a'\n[[host]]\nname = 'b'\n[[switch]]\nname = 's1'\n\
        [[link]]\nends = ['a', 's1']\nrate_mbit = 50\n[[link]]\nends = ['s1', 'b']\ndelay_ms = 5\n\
        [[disk]]\nname = 'bad'\nhost = 'b'\nsize_mb = 64\nseek_ms = 8\n";

    #[test]
    fn a_topology_is_read_and_its_faults_are_named() {
        let topology = Topology::parse(GOOD).expect("good");
        assert_eq!(topology.nodes().collect::<Vec<_>>(), ["a", "b", "s1"]);
        assert_eq!(topology.links[0].queue_bytes, 1_000_000);
        let check = |from: &str, to: &str, expected: &str| {
            let why = Topology::parse(&GOOD.replacen(from, to, 1)).expect_err(expected).to_string();
            assert!(why.contains(expected) && !why.ends_with('\n'), "{why:?}");
        };
        check("'demo'", "'De mo'", "is not a name");
        check("'demo'", "'12345678901234567'", "is not a name");
        check("name = 'b'", "name = 'a'", "`a` is there twice");
        check("['a', 's1']", "['a', 's2']", "neither a host nor a switch");
        check("['a', 's1']", "['a', 'a']", "ends where it begins");
        check("rate_mbit = 50", "rate_mbit = 0", "a rate is between");
        check("delay_ms = 5", "delay_ms = -1", "a delay is between");
        check("host = 'b'", "host = 's1'", "is not a host");
        check("size_mb = 64", "size_mb = 1", "a disk has 16 to 1000000 MB");
        check("size_mb = 64", "size_mb = 99999999", "a disk has 16 to 1000000 MB");
        check("seek_ms = 8", "seek_ms = 1001", "a seek takes 0 to 1000 ms");
        for rate in ["0", "-5", "nan", "1e-300"] {
            let with_rate = format!("seek_ms = 8\nrate_mb = {rate}");
            check("seek_ms = 8", &with_rate, "a rate is between 0.1");
        }
        check("seek_ms", "sek_ms", "unknown field");
        let more = "[[switch]]\nname = 's2'\n[[link]]\nends = ['s1', 's2']\n[[link]]\nends = ['s2', 's1']\n";
        let why = Topology::parse(&format!("{GOOD}{more}")).expect_err("a circle").to_string();
        assert!(why.contains("closes a circle"), "{why}");
    }
}
