//! Options of the live plane, for every role that joins it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use skopos_agent::AgentArgs;
use skopos_model::{Topic, TopicPattern};
use skopos_wire::PlaneConfig;

/// Where others are looked for, unless it is said: so nothing leaves the machine unasked.
const LOOK_ON: &str = "lo";

/// How to find the others.
#[derive(Clone, Debug, Args)]
pub struct LiveArgs {
    /// Which nodes belong together: sites on one network do not see each other
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = site)]
    site: String,
    /// Listen there, such as tcp/10.0.0.1:7447 [default: this machine's loopback, any port]
    #[arg(long, value_name = "ENDPOINT")]
    listen: Vec<String>,
    /// Connect to this hub or router, such as tcp/hub1:7447; to each, if given several times; to the first
    /// that answers of tcp/hub1:7447,tcp/hub2:7447
    #[arg(long, value_name = "ENDPOINT,…")]
    connect: Vec<String>,
    /// Look for others on this network interface: `auto` for all, `none` to look for nobody
    /// [default: lo; none for an agent with --connect]
    #[arg(long, value_name = "INTERFACE", value_parser = interface)]
    look_on: Option<String>,
}

/// The kernel's network interfaces, a folder each.
const INTERFACES: &str = "/sys/class/net";

/// A site's name: topics of what is computed of it begin with it.
fn site(text: &str) -> Result<String, String> {
    match Topic::new(text) {
        Ok(topic) if topic.segments().count() == 1 => Ok(text.to_owned()),
        _ => {
            Err("a site is named like a node: of the characters a-z 0-9 _ - . : @ + = %".to_owned())
        }
    }
}

/// Interfaces by their names or addresses, `auto` or `none`. One that is not there would find nobody, and
/// nobody would be told.
fn interface(text: &str) -> Result<String, String> {
    let is_there = |name: &str| {
        name.parse::<IpAddr>().is_ok()
            || !name.is_empty() && !name.contains('/') && Path::new(INTERFACES).join(name).exists()
    };
    if ["auto", "none"].contains(&text) || text.split(',').all(is_there) {
        return Ok(text.to_owned());
    }
    // Where they cannot be listed, whatever was typed may be one.
    let Ok(all) = std::fs::read_dir(INTERFACES) else { return Ok(text.to_owned()) };
    let names = all.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    Err(format!("there is no such network interface; here are {}", names.join(", ")))
}

impl LiveArgs {
    /// As a peer of all others: for who follows nodes and is connected to.
    pub fn of_hub(&self) -> PlaneConfig {
        self.peer(self.look_on.as_deref().unwrap_or(LOOK_ON))
    }

    /// As one of many nodes. Who names one hub and nothing else is its client: peers are told of each other
    /// and connected with whom they follow, which a thousand of them cannot be. `follows` is whether it
    /// wants to hear what other nodes tell.
    pub fn of_node(&self, follows: bool) -> PlaneConfig {
        let usual = if self.connect.is_empty() { LOOK_ON } else { "none" };
        let peer = self.peer(self.look_on.as_deref().unwrap_or(usual));
        let is_client = self.connect.len() == 1 && self.listen.is_empty() && peer.look_on.is_none();
        PlaneConfig { is_client, follows, ..peer }
    }

    fn peer(&self, look_on: &str) -> PlaneConfig {
        let mut config = PlaneConfig::on_this_machine(&self.site);
        if !self.listen.is_empty() {
            config.listen.clone_from(&self.listen);
        }
        let endpoints = self.connect.iter().flat_map(|text| text.split(','));
        config.connect = endpoints.map(str::to_owned).collect();
        config.look_on = (look_on != "none").then(|| look_on.to_owned());
        config
    }
}

impl LiveArgs {
    /// Whom to connect to.
    pub fn connect(&self) -> &[String] {
        &self.connect
    }

    pub fn site(&self) -> &str {
        &self.site
    }

    /// Of a site of its own: listens there and looks for nobody.
    pub fn at(site: &str, endpoint: &str) -> Self {
        let (listen, connect) = (vec![endpoint.to_owned()], Vec::new());
        Self { site: site.to_owned(), listen, connect, look_on: Some("none".to_owned()) }
    }
}

/// Options of an agent with its part in the live plane and its history.
#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(flatten)]
    pub agent: AgentArgs,
    /// Keep what is published on disk, in this folder
    #[arg(long, value_name = "DIR")]
    pub history: Option<PathBuf>,
    /// Tell a hub, and whoever follows, what is known here
    #[arg(long)]
    pub live: bool,
    /// Keep what other nodes tell of these topics in this machine's shared memory, such as 'n*/fs/**';
    /// may be given several times
    #[arg(long, value_name = "PATTERN", requires = "live")]
    pub mirror: Vec<TopicPattern>,
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
    fn a_site_and_an_interface_are_such() {
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
        ] {
            assert_eq!(parsed(option, value), expected, "{option} {value}");
        }
    }

    #[test]
    fn who_only_names_a_hub_is_its_client() {
        let node = |args: &str| {
            let words = ["skopos"].into_iter().chain(args.split_whitespace());
            let config = Only::parse_from(words).live.of_node(false);
            (config.is_client, config.look_on, config.connect.len())
        };
        let on = |interface: &str| Some(interface.to_owned());
        assert_eq!(node(""), (false, on("lo"), 0));
        assert_eq!(node("--connect tcp/hub:7447"), (true, None, 1));
        assert_eq!(
            node("--connect tcp/hub:7447,tcp/hub2:7447"),
            (true, None, 2),
            "whoever answers"
        );
        assert_eq!(node("--connect tcp/hub:7447 --look-on none"), (true, None, 1));
        assert_eq!(node("--connect tcp/hub:7447 --look-on auto"), (false, on("auto"), 1));
        assert_eq!(node("--connect tcp/hub:7447 --listen tcp/127.0.0.1:0"), (false, None, 1));
        let both = "--connect tcp/hub:7447 --connect tcp/hub2:7447";
        assert_eq!(node(both), (false, None, 2), "a connection with each");
        assert_eq!(node("--look-on none"), (false, None, 0), "it waits for whoever connects");
    }
}
