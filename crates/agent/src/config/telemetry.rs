//! The table `[telemetry]`: the agent's part in the telemetry of a network.

use std::fs;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU16;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use skopos_net::snmp::DeviceSettings;
use skopos_term::Failure;

use super::address;

/// The longest key file that is read: a key of any use is shorter.
const MAX_KEY_FILE_BYTES: u64 = 4096;

/// Permissions that a key file must not have: those of the group and of others.
const OTHERS: u32 = 0o077;

/// The most networks from which a collector takes reports: each datagram is compared with all of them.
pub const MAX_SOURCES: usize = 256;

/// The most datagrams that a source may be allowed in a second: more than one core reads.
const MAX_DATAGRAMS_PER_SECOND: u32 = 1_000_000;

/// The greatest rate of a link, in millions of bits a second.
const MAX_RATE_MBIT: f64 = 10_000_000.0;

/// The shortest time between two anomaly reports, and the longest.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));

/// The most peers of probes: each costs a packet of less than 400 bytes in each interval.
pub const MAX_PEERS: usize = 256;

/// The most nodes that fit a trace (RFC 9486: an option has 255 bytes).
const MAX_PROBE_NODES: u8 = 10;

/// Telemetry of the network: `[telemetry]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// Path of the file with the key of the site, relative to the configuration. Reports that this node sends have a tag
    /// made with it, and its collector takes only such reports.
    pub key_file: Option<PathBuf>,
    /// The domain of telemetry: that of all nodes whose ids and clocks belong together. The collector refuses reports of
    /// other domains.
    pub domain: Option<NonZeroU16>,
    /// The data plane of this node.
    pub node: Option<NodeConfig>,
    /// The collector of reports.
    pub collector: Option<CollectorConfig>,
    /// Anomaly reports of hosts.
    pub anomalies: Option<AnomaliesConfig>,
    /// Probes whose traces the kernels on their way fill.
    pub ioam: Option<IoamConfig>,
    /// Devices that are polled by SNMP: `[[telemetry.snmp]]`.
    #[serde(rename = "snmp")]
    pub devices: Vec<DeviceSettings>,
}

/// The data plane of this node: `[telemetry.node]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// The id of the node in packets.
    pub id: u32,
    /// The collector to which a sink reports.
    #[serde(default, deserialize_with = "address::optional")]
    pub collector: Option<SocketAddr>,
    /// The mode of sources.
    #[serde(default)]
    pub mode: Mode,
    /// The UDP port of packets with telemetry.
    pub int_port: Option<u16>,
    /// The most hops that add data to a packet.
    pub hops: Option<u8>,
    /// The flows that sources watch.
    #[serde(default)]
    pub watch: Vec<WatchConfig>,
    /// The interfaces with a part.
    #[serde(default, rename = "interface")]
    pub interfaces: Vec<InterfaceConfig>,
}

/// The mode of INT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Hops add their data to packets, and the sink reports all of it.
    #[default]
    Md,
    /// Packets carry instructions, and each hop reports its own data.
    Mx,
    /// Packets stay as they are, and each hop reports its own data.
    Xd,
}

/// Flows to watch. An absent entry is any value.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchConfig {
    /// The protocol above IP.
    pub protocol: Option<Protocol>,
    /// The network of the sender.
    pub source: Option<Network>,
    /// The network of the receiver.
    pub destination: Option<Network>,
    /// The port of the sender.
    pub source_port: Option<u16>,
    /// The port of the receiver.
    pub destination_port: Option<u16>,
}

/// A protocol above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Returns its number in IP headers.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// An interface with its part in telemetry: `[[telemetry.node.interface]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// The name of the interface.
    pub name: String,
    /// The number of the port in packets.
    pub port: u16,
    /// The rate of the link, in millions of bits a second.
    pub rate_mbit: Option<f64>,
    /// Packets of watched flows get telemetry when they pass in this direction.
    pub source: Option<Way>,
    /// Packets with telemetry get the data of this node when they leave.
    #[serde(default)]
    pub transit: bool,
    /// Telemetry is taken from packets that pass in this direction.
    pub sink: Option<Way>,
}

/// A direction at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Packets that arrive.
    Ingress,
    /// Packets that leave.
    Egress,
}

/// The collector of telemetry reports: `[telemetry.collector]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectorConfig {
    /// The address at which it listens.
    #[serde(deserialize_with = "listen")]
    pub listen: SocketAddr,
    /// The networks from which reports may come. With a key, all networks unless named.
    #[serde(default)]
    pub sources: Vec<Network>,
    /// Datagrams that a source may send in a second.
    pub datagrams_per_second: Option<u32>,
    /// The UDP port of packets with telemetry.
    pub int_port: Option<u16>,
}

/// Anomaly reports: `[telemetry.anomalies]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnomaliesConfig {
    /// The address to which this node reports.
    #[serde(deserialize_with = "address::optional")]
    pub send_to: Option<SocketAddr>,
    /// Path of the file with the secret of this node, 64 hexadecimal digits; by default the secret is derived from the
    /// key of the site.
    pub secret_file: Option<PathBuf>,
    /// The least time between two reports; a second by default.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub interval: Option<Duration>,
    /// The address at which reports of other nodes are received.
    #[serde(deserialize_with = "address::optional")]
    pub listen: Option<SocketAddr>,
}

/// Probes with traces of IOAM: `[telemetry.ioam]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoamConfig {
    /// The namespace for which the nodes on the way are configured.
    pub namespace: u16,
    /// The addresses to which probes are sent.
    #[serde(default)]
    pub peers: Vec<SocketAddrV6>,
    /// The time between two probes of a peer; a second by default.
    #[serde(default, deserialize_with = "skopos_score::duration::optional")]
    pub interval: Option<Duration>,
    /// The most nodes that can write to a probe; ten by default.
    pub nodes: Option<u8>,
    /// The address at which probes are taken.
    pub listen: Option<SocketAddrV6>,
    /// The id of this node in reports, of its own among all that report.
    pub id: Option<u32>,
    /// The collector to which probes are reported.
    #[serde(default, deserialize_with = "address::optional")]
    pub collector: Option<SocketAddr>,
}

/// A network: an address and the bits of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(pub IpAddr, pub u8);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a network: write it like `10.0.0.0/16`");
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| wrong()))?;
        if bits > most {
            return Err(format!("`{text}`: a prefix of this address has at most {most} bits"));
        }
        Ok(Self(address, bits))
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let address = address::optional(deserializer)?;
    address.ok_or_else(|| serde::de::Error::missing_field("listen"))
}

impl TelemetryConfig {
    /// Checks bounds, and entries that need each other.
    ///
    /// # Errors
    /// Says the first fault with a hint.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(node) = &self.node {
            node.check()?;
        }
        if let Some(collector) = &self.collector {
            collector.check(self.key_file.is_some())?;
        }
        skopos_net::snmp::check(&self.devices).map_err(|e| {
            let failure = Failure::new("[[telemetry.snmp]]: a device cannot be polled").because(&e);
            failure.hint("docs/howto/watch-switches-with-snmp.md has the keys")
        })?;
        if let Some(ioam) = &self.ioam {
            ioam.check(self.key_file.is_some())?;
        }
        let Some(anomalies) = &self.anomalies else { return Ok(()) };
        anomalies.check(self.key_file.is_some())
    }
}

impl NodeConfig {
    fn check(&self) -> Result<(), Failure> {
        let fault = |why: String, hint: &str| {
            Err(Failure::new(format!("[telemetry.node]: {why}")).hint(hint))
        };
        if self.interfaces.is_empty() {
            return fault(
                "it has no interface".to_owned(),
                "add a table [[telemetry.node.interface]] for each interface with a part",
            );
        }
        if self.watch.len() > skopos_net::plane::MAX_WATCHES
            || self.interfaces.len() > skopos_net::plane::MAX_PORTS
        {
            let why =
                format!("{} flows and {} interfaces", self.watch.len(), self.interfaces.len());
            return fault(why, "a node watches at most 16 flows at 128 interfaces");
        }
        let is_source = self.interfaces.iter().any(|interface| interface.source.is_some());
        if is_source && self.watch.is_empty() {
            return fault(
                "it has a source and watches no flow".to_owned(),
                "name flows, such as watch = [{ protocol = \"udp\", destination_port = 7000 }]",
            );
        }
        let reports = |interface: &InterfaceConfig| {
            interface.sink.is_some() || (interface.transit && self.mode != Mode::Md)
        };
        if self.collector.is_none() && self.interfaces.iter().any(reports) {
            return fault(
                "it reports, and names no collector".to_owned(),
                "add collector = \"10.0.0.1:7363\", the address of [telemetry.collector] there",
            );
        }
        for (at, interface) in self.interfaces.iter().enumerate() {
            if self.interfaces[..at].iter().any(|other| other.name == interface.name) {
                let why = format!("the interface `{}` is there twice", interface.name);
                return fault(why, "one table has all parts of an interface");
            }
            if interface.rate_mbit.is_some_and(|rate| !(0.001..=MAX_RATE_MBIT).contains(&rate)) {
                let why = format!("the rate of `{}` is out of range", interface.name);
                return fault(why, "rate_mbit is the rate of the link in Mbit/s, such as 1000");
            }
        }
        let mixed = |watch: &&WatchConfig| {
            let versions = [watch.source, watch.destination].map(|n| n.map(|n| n.0.is_ipv4()));
            matches!(versions, [Some(a), Some(b)] if a != b)
        };
        if self.watch.iter().find(mixed).is_some() {
            return fault(
                "a watched flow goes from IPv4 to IPv6".to_owned(),
                "source and destination of a flow have one version of IP",
            );
        }
        Ok(())
    }
}

impl CollectorConfig {
    fn check(&self, has_key: bool) -> Result<(), Failure> {
        let fault = |why: &str, hint: &str| {
            Err(Failure::new(format!("[telemetry.collector]: {why}")).hint(hint))
        };
        if self.sources.is_empty() && !has_key {
            return fault(
                "it has neither sources nor a key",
                "name the networks of the nodes, such as sources = [\"10.0.0.0/16\"], or a key_file in [telemetry]",
            );
        }
        if self.sources.len() > MAX_SOURCES {
            return fault("it has more than 256 sources", "name networks with shorter prefixes");
        }
        let rate = self.datagrams_per_second.unwrap_or(1);
        if rate == 0 || rate > MAX_DATAGRAMS_PER_SECOND {
            return fault("datagrams_per_second is out of range", "choose 1 to 1000000");
        }
        Ok(())
    }
}

impl IoamConfig {
    fn check(&self, has_key: bool) -> Result<(), Failure> {
        let fault = |why: &str, hint: &str| {
            Err(Failure::new(format!("[telemetry.ioam]: {why}")).hint(hint))
        };
        if !has_key {
            return fault("probes need a key", "add a key_file in [telemetry]");
        }
        if self.peers.is_empty() && self.listen.is_none() {
            return fault(
                "it neither sends probes nor takes them",
                "add peers = [\"[fd00::2]:7365\"], or listen = \"[fd00::1]:7365\"",
            );
        }
        if self.peers.len() > MAX_PEERS {
            return fault("it has more than 256 peers", "a probe to each node of a rack is enough");
        }
        if !(1..=MAX_PROBE_NODES).contains(&self.nodes.unwrap_or(1)) {
            return fault("nodes is out of range", "a probe has room for 1 to 10 nodes");
        }
        if self.interval.is_some_and(|time| !(INTERVALS.0..=INTERVALS.1).contains(&time)) {
            return fault("the interval is out of range", "choose 100ms to 1h");
        }
        let Some(listen) = self.listen else { return Ok(()) };
        if listen.ip().is_unspecified() {
            return fault(
                "listen is not an address of this node",
                "paths are named by it: write it like `[fd00::1]:7365`",
            );
        }
        if self.id.is_none() || self.collector.is_none() {
            return fault(
                "probes that are taken are reported",
                "add id = 7 and collector = \"127.0.0.1:7363\", the address of [telemetry.collector]",
            );
        }
        Ok(())
    }
}

impl AnomaliesConfig {
    fn check(&self, has_key: bool) -> Result<(), Failure> {
        let fault = |why: &str, hint: &str| {
            Err(Failure::new(format!("[telemetry.anomalies]: {why}")).hint(hint))
        };
        if self.send_to.is_some() && self.secret_file.is_none() && !has_key {
            return fault(
                "reports need a key",
                "add a secret_file here, or a key_file in [telemetry]",
            );
        }
        if self.listen.is_some() && !has_key {
            return fault("a receiver needs the key of the site", "add a key_file in [telemetry]");
        }
        let (least, most) = INTERVALS;
        if self.interval.is_some_and(|interval| !(least..=most).contains(&interval)) {
            return fault("the interval is out of range", "choose one from 100ms to 1h");
        }
        Ok(())
    }
}

/// Reads a key from a file that only its owner can read. A newline at the end does not belong to the key.
///
/// # Errors
/// The file cannot be read, is readable by others, or is too long.
pub fn read_key(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |e: std::io::Error| {
        Failure::new(format!("cannot read the key {}", path.display()))
            .because(&e)
            .hint("head -c 32 /dev/urandom | base64 > KEY; chmod 600 KEY")
    };
    let about = fs::metadata(path).map_err(failed)?;
    if about.permissions().mode() & OTHERS != 0 {
        return Err(Failure::new(format!("others can read the key {}", path.display()))
            .hint(format!("chmod 600 {}", path.display())));
    }
    if !about.is_file() || about.len() > MAX_KEY_FILE_BYTES {
        return Err(Failure::new(format!("{} is not a key", path.display()))
            .hint("a key is a file of 16 to 4096 bytes"));
    }
    let mut key = fs::read(path).map_err(failed)?;
    while key.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        key.pop();
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        match toml::from_str::<TelemetryConfig>(text) {
            Err(e) => e.to_string(),
            Ok(config) => config.check().err().map_or_else(String::new, |e| e.in_one_line()),
        }
    }

    const GOOD: &str = "key_file = 'site.key'\ndomain = 7\n\
        [collector]\nlisten = '10.0.0.1:7363'\nsources = ['10.0.0.0/16', 'fd00::/8', '10.1.2.3']\n\
        [node]\nid = 1\ncollector = '10.0.0.1:7363'\nmode = 'md'\n\
        watch = [{ protocol = 'udp', destination = '10.0.0.0/8', destination_port = 7000 }]\n\
        [[node.interface]]\nname = 'eth0'\nport = 1\nrate_mbit = 50\nsource = 'egress'\n\
        transit = true\nsink = 'ingress'\n\
        [anomalies]\nsend_to = '10.0.0.1:7364'\ninterval = '1s'\nlisten = '10.0.0.1:7364'\n";

    #[test]
    fn a_whole_table_is_valid_and_each_fault_has_its_reason() {
        assert_eq!(why(GOOD), "");
        let check = |from: &str, to: &str, expected: &str| {
            assert!(GOOD.contains(from), "{from}");
            let why = why(&GOOD.replacen(from, to, 1));
            assert!(why.contains(expected), "{to}: {why}");
        };
        check("'fd00::/8'", "'fd00::/129'", "at most 128 bits");
        check("'10.1.2.3'", "'here'", "write it like `10.0.0.0/16`");
        check("'10.0.0.1:7363'\nsources", "'10.0.0.1'\nsources", "has no port");
        check("mode = 'md'", "mode = 'in'", "unknown variant");
        check("domain = 7", "domain = 0", "nonzero");
        check("domain = 7", "domain = 70000", "invalid value");
        check("id = 1\n", "", "missing field `id`");
        check("id = 1", "id = -1", "invalid value");
        check("watch = [{", "hops = 300\nwatch = [{", "invalid value");
        check("destination = '10", "source = 'fd00::/8', destination = '10", "one version of IP");
        check("rate_mbit = 50", "rate_mbit = 0", "the rate of `eth0`");
        check("\ncollector = '10.0.0.1:7363'", "", "names no collector");
        check("'1s'", "'1ms'", "from 100ms to 1h");
        check("'udp'", "'icmp'", "unknown variant");
        check("key_file = 'site.key'\n", "", "reports need a key");
        let watch =
            "watch = [{ protocol = 'udp', destination = '10.0.0.0/8', destination_port = 7000 }]\n";
        check(watch, "", "watches no flow");
        assert!(why("[collector]\nlisten = '10.0.0.1:7363'").contains("neither sources nor a key"));
        assert!(why("[node]\nid = 1").contains("no interface"));
        assert!(why("[anomalies]\nlisten = '0.0.0.0:1'").contains("needs the key of the site"));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("site.key");
        assert!(
            read_key(&path).expect_err("none").hint_text().expect("a hint").contains("urandom")
        );
        fs::write(&path, "0123456789abcdef\n").expect("written");
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
        mode(0o640).expect("our own");
        let failure = read_key(&path).expect_err("others can read it");
        assert!(failure.hint_text().expect("a hint").contains("chmod 600"));
        mode(0o600).expect("our own");
        assert_eq!(read_key(&path).expect("a key"), b"0123456789abcdef");
        fs::write(&path, [7; 5000]).expect("written");
        assert!(read_key(&path).is_err());
        assert!(read_key(folder.path()).is_err());
    }
}
