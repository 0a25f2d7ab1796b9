//! Options of the live plane, for agents and hubs.

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use skopos_agent::AgentArgs;
use skopos_model::{Topic, TopicPattern};
use skopos_term::{Failure, state};
use skopos_wire::{Identity, PlaneConfig};

/// The folder in which the sessions of this user meet, in the runtime directory.
const MEETING: &str = "plane";

/// Name of a site without certificates, by default.
const SITE: &str = "default";

/// Folder of this program's certificate, in the folder of state.
const IDENTITY: &str = "pki";

/// Options to find other nodes.
#[derive(Clone, Debug, Args)]
pub struct LiveArgs {
    /// Name of the site: nodes of different sites on the same network do not see each other [default: the
    /// site of the certificate, else `default`]
    #[arg(long, value_name = "NAME", value_parser = site)]
    site: Option<String>,
    /// Listen at this endpoint too, such as tls/10.0.0.1:7447 [default: your programs on this machine alone]
    #[arg(long, value_name = "ENDPOINT", value_parser = endpoint)]
    listen: Vec<String>,
    /// Connect to this hub or router, such as tls/hub1:7447. Repeat it to connect to several. Of
    /// alternatives with commas between them the first that answers is used
    #[arg(long, value_name = "ENDPOINT,…", value_parser = endpoints)]
    connect: Vec<String>,
    /// Folder with the certificate of this program, from `skopos pki init` or `skopos join`
    /// [default: `pki` in $SKOPOS_STATE]
    #[arg(long, value_name = "DIR")]
    identity: Option<PathBuf>,
    /// Take endpoints tcp/…: everybody who reaches them reads all facts, and can send false ones
    #[arg(long)]
    insecure: bool,
    /// Search for nodes on this network interface: `auto` for all, `none` for no search [default: none]
    #[arg(long, value_name = "INTERFACE", value_parser = interface)]
    look_on: Option<String>,
}

/// Beginnings of endpoints: with certificates, and in clear text.
const TLS: &str = "tls/";
const TCP: &str = "tcp/";

/// Checks an endpoint: `tls/HOST:PORT` or `tcp/HOST:PORT`.
fn endpoint(text: &str) -> Result<String, String> {
    let address = text.strip_prefix(TLS).or_else(|| text.strip_prefix(TCP));
    let host_and_port = address.and_then(|address| address.rsplit_once(':'));
    let is_host = |host: &str| {
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_name = !host.is_empty() && !host.contains([':', '[', ']', '/']);
        !host.contains(char::is_whitespace)
            && bracketed.map_or(is_name, |address| address.parse::<Ipv6Addr>().is_ok())
    };
    match host_and_port {
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err("an endpoint looks like tls/10.0.0.1:7447 or tls/[::1]:7447".to_owned()),
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

/// Returns the folder of a program's identity, by default.
pub fn default_identity_folder() -> Option<PathBuf> {
    state::folder().map(|folder| folder.join(IDENTITY))
}

impl LiveArgs {
    /// Returns the configuration of a hub with this runtime directory: a peer of all nodes, which follows them and
    /// accepts connections.
    ///
    /// # Errors
    /// An endpoint is in clear text, or needs a certificate that is missing or cannot be used.
    pub fn of_hub(&self, dir: &Path) -> Result<PlaneConfig, Failure> {
        Ok(PlaneConfig { folder: Some(dir.join(MEETING)), ..self.peer()? })
    }

    /// Returns the configuration of a node with this runtime directory. A node that names a single hub is its client:
    /// peers learn of each other and connect to the nodes that they follow, which does not scale to a thousand nodes.
    /// `follows` is true if the node mirrors facts of other nodes.
    ///
    /// # Errors
    /// The errors of [`of_hub`](Self::of_hub).
    pub fn of_node(&self, dir: &Path, follows: bool) -> Result<PlaneConfig, Failure> {
        let peer = self.peer()?;
        let is_client = self.connect.len() == 1 && self.listen.is_empty() && peer.look_on.is_none();
        let folder = self.connect.is_empty().then(|| dir.join(MEETING));
        Ok(PlaneConfig { is_client, follows, folder, ..peer })
    }

    /// Returns the identity of this program if it has one, whether it joins a plane or not; `None` with `--insecure`.
    ///
    /// # Errors
    /// The identity cannot be used.
    pub fn known_identity(&self) -> Result<Option<Arc<Identity>>, Failure> {
        if self.insecure {
            return Ok(None);
        }
        Ok(self.found()?.map(Arc::new))
    }

    /// Returns true if clients of configured addresses need no certificate and no token.
    pub fn is_insecure(&self) -> bool {
        self.insecure
    }

    /// Returns the folder of the identity; `None` if the environment does not determine it.
    pub fn identity_folder(&self) -> Option<PathBuf> {
        self.identity.clone().or_else(default_identity_folder)
    }

    fn found(&self) -> Result<Option<Identity>, Failure> {
        let broken = |e| {
            let failure = Failure::new("the certificate of this program cannot be used");
            failure.because(&e).hint(
                "`skopos join HUB --token TOKEN` gets this node a new one; on the hub of the authority, \
                 `skopos pki renew` makes one",
            )
        };
        let found = self.identity_folder().map(|folder| Identity::load(&folder).map_err(broken));
        Ok(found.transpose()?.flatten())
    }

    fn peer(&self) -> Result<PlaneConfig, Failure> {
        let endpoints = self.connect.iter().flat_map(|text| text.split(','));
        let connect: Vec<String> = endpoints.map(str::to_owned).collect();
        let look_on = self.look_on.clone().filter(|interface| interface != "none");
        let identity = self.identity(&connect, look_on.is_some())?.map(Arc::new);
        let certified = identity.as_ref().map(|identity| identity.names().site);
        let site = self.site.clone().or(certified).unwrap_or_else(|| SITE.to_owned());
        let listen = self.listen.clone();
        Ok(PlaneConfig { listen, connect, look_on, identity, ..PlaneConfig::alone(&site) })
    }

    /// Returns the identity of this program, if it has one and uses it.
    fn identity(&self, connect: &[String], looks: bool) -> Result<Option<Identity>, Failure> {
        let mut endpoints = self.listen.iter().chain(connect);
        if self.insecure {
            return match endpoints.find(|one| one.starts_with(TLS)) {
                None => Ok(None),
                Some(one) => Err(Failure::new(format!("`--insecure` is for tcp/…, and not {one}"))
                    .hint("leave it out: tls/… uses the certificate of this program")),
            };
        }
        if let Some(one) = endpoints.clone().find(|one| one.starts_with(TCP)) {
            let error = format!("{one} is in clear text: everybody who reaches it reads all facts");
            return Err(Failure::new(error).hint(format!(
                "write {TLS}{}, with certificates from `skopos pki init` and `skopos join`; on a \
                 network of friends add --insecure",
                one.trim_start_matches(TCP)
            )));
        }
        let is_needed = endpoints.next().is_some() || looks;
        let found = self.found()?;
        if found.is_some() || !is_needed && self.identity.is_none() {
            return Ok(found);
        }
        let place = self
            .identity_folder()
            .map(|folder| format!(" in {}", folder.display()))
            .unwrap_or_default();
        Err(Failure::new(format!("this program has no certificate{place}")).hint(
            "`skopos pki init` makes the first one, on the hub; `skopos join` gets one for a node",
        ))
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
            ("--site", self.site.is_some()),
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

    /// Makes the options of a program that listens at `endpoint` for `site`, in clear text and without discovery.
    pub fn at(site: &str, endpoint: &str) -> Self {
        Self {
            site: Some(site.to_owned()),
            listen: vec![endpoint.to_owned()],
            connect: Vec::new(),
            identity: None,
            insecure: true,
            look_on: Some("none".to_owned()),
        }
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
            ("--listen", "tls/10.0.0.1:7447", true),
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
            let words = ["skopos", "--insecure", "--listen", listen, "--look-on", "lo"];
            let live = Only::parse_from(words).live;
            let config = live.beside_hub().of_node(Path::new("/run"), false).expect("a peer");
            assert_eq!(config.folder.as_deref(), Some(Path::new("/run/plane")), "{listen}");
            assert!(!config.follows && config.listen.is_empty() && config.look_on.is_none());
        }
    }

    #[test]
    fn clear_text_is_said_aloud_and_certificates_are_needed_otherwise() {
        let dir = tempfile::tempdir().expect("a folder");
        let parsed = |args: &str| {
            let folder = dir.path().to_str().expect("text");
            let words = ["skopos", "--identity", folder];
            let live = Only::parse_from(words.into_iter().chain(args.split_whitespace())).live;
            live.of_node(Path::new("/run"), false).map_err(|e| e.in_one_line())
        };
        for (args, expected) in [
            ("--listen tcp/0.0.0.0:7447", Err("clear text")),
            ("--listen tls/0.0.0.0:7447", Err("no certificate")),
            ("--connect tls/hub1:7447,tcp/hub2:7447", Err("clear text")),
            ("--look-on auto", Err("no certificate")),
            ("--insecure --listen tls/0.0.0.0:7447", Err("is for tcp/")),
            ("--insecure --listen tcp/0.0.0.0:7447", Ok("default")),
            ("--insecure --look-on auto --site a", Ok("a")),
        ] {
            match (parsed(args), expected) {
                (Ok(config), Ok(site)) => assert_eq!(config.site, site, "{args}"),
                (Err(e), Err(part)) => assert!(e.contains(part), "{args}: {e}"),
                (got, _) => panic!("{args}: {got:?}"),
            }
        }
    }

    #[test]
    fn a_node_that_names_one_hub_is_its_client() {
        let node = |args: &str| {
            let words = ["skopos", "--insecure"].into_iter().chain(args.split_whitespace());
            let config = Only::parse_from(words).live.of_node(Path::new("/run"), false);
            let config = config.expect("a node");
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
