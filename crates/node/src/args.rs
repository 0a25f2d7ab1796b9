//! Options of the live plane, for agents and hubs.

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use clap::Args;
use skopos_agent::AgentArgs;
use skopos_model::{Topic, TopicPattern};
use skopos_wire::PlaneConfig;

/// The folder in which the sessions of this user meet, in the runtime directory.
const MEETING: &str = "plane";

/// Default name of a site.
const SITE: &str = "default";

/// Options to find other nodes.
#[derive(Clone, Debug, Args)]
pub struct LiveArgs {
    /// Name of the site: nodes of different sites on the same network do not see each other
    #[arg(long, value_name = "NAME", default_value = SITE, value_parser = site)]
    site: String,
    /// Listen at this endpoint too, such as tcp/10.0.0.1:7447 [default: your programs on this machine alone]
    #[arg(long, value_name = "ENDPOINT", value_parser = endpoint)]
    listen: Vec<String>,
    /// Connect to this hub or router, such as tcp/hub1:7447. Repeat it to connect to several. Of
    /// alternatives with commas between them the first that answers is used
    #[arg(long, value_name = "ENDPOINT,…", value_parser = endpoints)]
    connect: Vec<String>,
    /// Search for nodes on this network interface: `auto` for all, `none` for no search [default: none]
    #[arg(long, value_name = "INTERFACE", value_parser = interface)]
    look_on: Option<String>,
}

/// Checks an endpoint: `tcp/HOST:PORT`.
fn endpoint(text: &str) -> Result<String, String> {
    let host_and_port = text.strip_prefix("tcp/").and_then(|address| address.rsplit_once(':'));
    let is_host = |host: &str| {
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_name = !host.is_empty() && !host.contains([':', '[', ']', '/']);
        !host.contains(char::is_whitespace)
            && bracketed.map_or(is_name, |address| address.parse::<Ipv6Addr>().is_ok())
    };
    match host_and_port {
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err("an endpoint looks like tcp/10.0.0.1:7447 or tcp/[::1]:7447".to_owned()),
    }
}

/// Checks endpoints to connect to, with commas between them.
fn endpoints(text: &str) -> Result<String, String> {
    for one in text.split(',') {
        if endpoint(one)?.ends_with(":0") {
            return Err("nothing listens at port 0".to_owned());
        }
    }
    Ok(text.to_owned())
}

/// Path of the kernel's network interfaces, a folder for each.
const INTERFACES: &str = "/sys/class/net";

/// Parses the name of a site, which is the first segment of its insights' topics.
fn site(text: &str) -> Result<String, String> {
    match Topic::new(text) {
        Ok(topic) if topic.segments().count() == 1 => Ok(text.to_owned()),
        _ => {
            Err("the name of a site consists of the characters a-z 0-9 _ - . : @ + = %".to_owned())
        }
    }
}

/// Parses names or addresses of interfaces, `auto` or `none`. A missing interface is an error, because discovery
/// on it would fail in silence.
fn interface(text: &str) -> Result<String, String> {
    let is_there = |name: &str| {
        name.parse::<IpAddr>().is_ok()
            || !name.is_empty() && !name.contains('/') && Path::new(INTERFACES).join(name).exists()
    };
    if ["auto", "none"].contains(&text) || text.split(',').all(is_there) {
        return Ok(text.to_owned());
    }
    // If the interfaces cannot be listed, every name is accepted.
    let Ok(all) = std::fs::read_dir(INTERFACES) else { return Ok(text.to_owned()) };
    let names = all.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    Err(format!("this network interface does not exist; the interfaces are {}", names.join(", ")))
}

impl LiveArgs {
    /// Returns the configuration of a hub with this runtime directory: a peer of all nodes, which follows them and
    /// accepts connections.
    pub fn of_hub(&self, dir: &Path) -> PlaneConfig {
        PlaneConfig { folder: Some(dir.join(MEETING)), ..self.peer() }
    }

    /// Returns the configuration of a node with this runtime directory. A node that names a single hub is its client:
    /// peers learn of each other and connect to the nodes that they follow, which does not scale to a thousand nodes.
    /// `follows` is true if the node mirrors facts of other nodes.
    pub fn of_node(&self, dir: &Path, follows: bool) -> PlaneConfig {
        let peer = self.peer();
        let is_client = self.connect.len() == 1 && self.listen.is_empty() && peer.look_on.is_none();
        let folder = self.connect.is_empty().then(|| dir.join(MEETING));
        PlaneConfig { is_client, follows, folder, ..peer }
    }

    fn peer(&self) -> PlaneConfig {
        let mut config = PlaneConfig::alone(&self.site);
        config.listen.clone_from(&self.listen);
        let endpoints = self.connect.iter().flat_map(|text| text.split(','));
        config.connect = endpoints.map(str::to_owned).collect();
        config.look_on = self.look_on.clone().filter(|interface| interface != "none");
        config
    }

    /// Returns the options of an agent whose hub, in the same process, has these options: the two meet on this machine
    /// if the hub listens, because two sessions cannot listen at one endpoint.
    pub fn beside_hub(mut self) -> Self {
        if !self.listen.is_empty() {
            self.listen.clear();
            self.connect.clear();
            self.look_on = None;
        }
        self
    }

    /// Returns an option that is not at its default.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--site", self.site != SITE),
            ("--listen", !self.listen.is_empty()),
            ("--connect", !self.connect.is_empty()),
            ("--look-on", self.look_on.is_some()),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// Returns the endpoints to connect to.
    pub fn connect(&self) -> &[String] {
        &self.connect
    }

    /// Returns the name of the site.
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Makes the options of a program that listens at `endpoint` for `site`, without discovery.
    pub fn at(site: &str, endpoint: &str) -> Self {
        let (listen, connect) = (vec![endpoint.to_owned()], Vec::new());
        Self { site: site.to_owned(), listen, connect, look_on: Some("none".to_owned()) }
    }
}

/// Options of an agent with its part in the live plane and its history.
#[derive(Clone, Debug, Args)]
pub struct NodeArgs {
    /// Options of the agent.
    #[command(flatten)]
    pub agent: AgentArgs,
    /// Keep published samples on disk, in this folder
    #[arg(long, value_name = "DIR")]
    pub history: Option<PathBuf>,
    /// Join the live plane: send facts to hubs and to the nodes that follow them
    #[arg(long)]
    pub live: bool,
    /// Mirror these topics of other nodes in this machine's shared memory, such as 'n*/fs/**'; may be
    /// given several times
    #[arg(long, value_name = "PATTERN", requires = "live")]
    pub mirror: Vec<TopicPattern>,
    /// Options of the live plane.
    #[command(flatten)]
    pub plane: LiveArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        live: LiveArgs,
    }

    #[test]
    fn sites_and_interfaces_are_checked() {
        let parsed =
            |option: &str, value: &str| Only::try_parse_from(["skopos", option, value]).is_ok();
        for (option, value, expected) in [
            ("--site", "a", true),
            ("--site", "a/b", false),
            ("--site", "*", false),
            ("--site", "", false),
            ("--look-on", "lo", true),
            ("--look-on", "auto", true),
            ("--look-on", "none", true),
            ("--look-on", "10.0.0.1", true),
            ("--look-on", "lo,nope0", false),
            ("--look-on", "nope0", false),
            ("--listen", "tcp/10.0.0.1:7447", true),
            ("--listen", "tcp/[::1]:0", true),
            ("--listen", "10.0.0.1:7447", false),
            ("--listen", "tcp/10.0.0.1", false),
            ("--listen", "tcp/10.0.0.1:99999", false),
            ("--listen", "udp/10.0.0.1:7447", false),
            ("--listen", "tcp/::1:7447", false),
            ("--listen", "tcp/a b:7447", false),
            ("--connect", "tcp/hub1:0", false),
            ("--connect", "tcp/hub1:7447,tcp/hub2:7447", true),
            ("--connect", "tcp/hub1:7447,hub2", false),
        ] {
            assert_eq!(parsed(option, value), expected, "{option} {value}");
        }
    }

    #[test]
    fn an_agent_beside_a_hub_that_listens_meets_it_on_this_machine() {
        for listen in ["tcp/10.0.0.1:7447", "tcp/0.0.0.0:7447", "tcp/[::]:0"] {
            let live = Only::parse_from(["skopos", "--listen", listen, "--look-on", "lo"]).live;
            let config = live.beside_hub().of_node(Path::new("/run"), false);
            let expected = PlaneConfig {
                folder: Some("/run/plane".into()),
                follows: false,
                ..PlaneConfig::alone("default")
            };
            assert_eq!(config, expected, "{listen}");
        }
    }

    #[test]
    fn a_node_that_names_one_hub_is_its_client() {
        let node = |args: &str| {
            let words = ["skopos"].into_iter().chain(args.split_whitespace());
            let config = Only::parse_from(words).live.of_node(Path::new("/run"), false);
            (config.is_client, config.folder.is_some(), config.look_on, config.connect.len())
        };
        let on = |interface: &str| Some(interface.to_owned());
        assert_eq!(node(""), (false, true, None, 0));
        assert_eq!(node("--connect tcp/hub:7447"), (true, false, None, 1));
        assert_eq!(
            node("--connect tcp/hub:7447,tcp/hub2:7447"),
            (true, false, None, 2),
            "the first that answers"
        );
        assert_eq!(node("--connect tcp/hub:7447 --look-on none"), (true, false, None, 1));
        assert_eq!(node("--connect tcp/hub:7447 --look-on auto"), (false, false, on("auto"), 1));
        let listens = "--connect tcp/hub:7447 --listen tcp/127.0.0.1:0";
        assert_eq!(node(listens), (false, false, None, 1));
        let both = "--connect tcp/hub:7447 --connect tcp/hub2:7447";
        assert_eq!(node(both), (false, false, None, 2), "connections with both");
        assert_eq!(node("--look-on none"), (false, true, None, 0), "it waits for connections");
    }
}
