//! All listeners of a hub.

use std::path::Path;
use std::sync::Arc;

use skopos_agent::config::Config;
use skopos_hub::Hub;
use skopos_hub::config::HubConfig;
use skopos_hub::counts::Counts;
use skopos_hub::messages::socket_path;
use skopos_node::LiveArgs;
use skopos_query::Engine;
use skopos_term::Failure;

use crate::flight;
use crate::http;
use crate::listen::{DoorArgs, TcpDoor};
use crate::unix::Door;

/// The listeners of a hub, until they are dropped.
pub struct Listeners {
    _unix: Door,
    http: TcpDoor,
    flight: TcpDoor,
}

impl Listeners {
    /// Opens the listeners of `hub`.
    ///
    /// # Errors
    /// Another hub has the directory; an address that was asked for cannot be had.
    pub fn open(hub: &Hub, args: &DoorArgs, config: &HubConfig) -> Result<Self, Failure> {
        let (inside, runtime) = (hub.inside(), hub.runtime());
        let counts = |name: &str| -> Arc<Counts> {
            let found = inside.counts.iter().find(|(listener, _)| *listener == name);
            found.map(|(_, counts)| counts.clone()).unwrap_or_default()
        };
        let unix = Door::open(hub.dir(), inside.clone(), counts("unix"), runtime.clone())?;
        let http = http::open(args.http(config), inside.clone(), counts("http"), runtime)?;
        let at = args.flight(config);
        let flight = flight::open(at, inside.engine.clone(), counts("flight"), runtime)?;
        Ok(Self { _unix: unix, http, flight })
    }
}

/// A hub that is asked, until it is dropped: for `skopos hub` and `skopos up`.
pub struct Served {
    // The listeners close first, then what they ask goes.
    listeners: Listeners,
    hub: Hub,
}

impl Served {
    /// Starts a hub in the runtime directory `dir` and opens its listeners. With `plane` it follows all nodes
    /// of that site, without it knows this machine alone.
    ///
    /// # Errors
    /// The plane cannot be joined; a listener cannot be opened; another hub has this directory; the
    /// configuration is wrong.
    pub fn start(
        dir: &Path,
        plane: Option<&LiveArgs>,
        args: &DoorArgs,
        config: &Config,
    ) -> Result<Self, Failure> {
        let own = HubConfig::of(config)?;
        let mut hub = Hub::open(dir, plane, &own, config.path.as_deref())?;
        let listeners = Listeners::open(&hub, args, &own)?;
        hub.work(&own, &config.insight)?;
        Ok(Self { listeners, hub })
    }

    /// What answers, for a program that is the hub itself.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.hub.inside().engine
    }

    /// Where the hub can be asked: the path of its socket, then URLs.
    pub fn addresses(&self) -> Vec<String> {
        let socket = socket_path(self.hub.dir()).display().to_string();
        let tcp = [&self.listeners.http, &self.listeners.flight];
        let urls = tcp.into_iter().filter_map(TcpDoor::url).map(str::to_owned);
        std::iter::once(socket).chain(urls).collect()
    }

    /// Returns true if the hub is connected with no other node.
    pub fn is_alone(&self) -> bool {
        self.hub.is_alone()
    }

    /// The listeners that are not open, because another program has their usual port.
    pub fn warnings(&self) -> impl Iterator<Item = &Failure> {
        [&self.listeners.http, &self.listeners.flight].into_iter().filter_map(TcpDoor::warning)
    }
}
