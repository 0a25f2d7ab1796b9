//! All listeners of a hub.

use std::path::Path;
use std::sync::Arc;

use skopos_agent::config::Config;
use skopos_hub::Hub;
use skopos_hub::config::{HaproxyConfig, HubConfig};
use skopos_hub::counts::Counts;
use skopos_hub::messages::{FlightUrl, socket_path};
use skopos_node::LiveArgs;
use skopos_query::Engine;
use skopos_term::Failure;

use crate::flight::{self, OtherHubs, ReplicaTask};
use crate::haproxy;
use crate::http;
use crate::listen::{Admittance, ListenArgs, TcpEndpoint};
use crate::unix::HubSocket;

/// The listeners of a hub, until they are dropped.
pub struct Listeners {
    _unix: HubSocket,
    http: TcpEndpoint,
    flight: TcpEndpoint,
    haproxy: Option<TcpEndpoint>,
    _replica: Option<ReplicaTask>,
}

impl Listeners {
    /// Opens the listeners of `hub`. With `is_insecure` clients need no certificate and no token.
    ///
    /// # Errors
    /// Fails if another hub uses the directory, or if a configured address cannot be used.
    pub fn open(
        hub: &Hub,
        args: &ListenArgs,
        config: &HubConfig,
        is_insecure: bool,
    ) -> Result<Self, Failure> {
        let (backend, runtime) = (hub.backend(), hub.runtime());
        let counts = |name: &str| -> Arc<Counts> {
            let found = backend.counts.iter().find(|(listener, _)| *listener == name);
            found.map(|(_, counts)| counts.clone()).unwrap_or_default()
        };
        let unix = HubSocket::open(hub.dir(), backend.clone(), counts("unix"), runtime.clone())?;
        let admittance = Admittance { pki: hub.pki().cloned(), is_insecure };
        let (at, of_http) = (args.http(config), (config.hosts.clone(), admittance.clone()));
        let helpers = &config.jobs.helpers;
        if !helpers.is_empty() {
            let identity = hub.pki().map(|pki| pki.identity().clone());
            let hubs = OtherHubs::new(helpers, (identity, is_insecure), runtime)?;
            backend.engine.divide_among(Arc::new(hubs));
        }
        let replica = config.jobs.replica.as_ref();
        let identity = hub.pki().map(|pki| pki.identity().clone());
        let start = |address: &String| {
            let jobs = backend.jobs.clone();
            ReplicaTask::start(address, (identity, is_insecure), jobs, runtime)
        };
        let _replica = replica.map(start).transpose()?;
        let http = http::open(at, of_http, backend.clone(), counts("http"), runtime)?;
        let open = |config: &HaproxyConfig| {
            haproxy::open(config, is_insecure, backend.clone(), counts("haproxy"), runtime)
        };
        let haproxy = config.haproxy.as_ref().map(open).transpose()?;
        let address = args.flight(config);
        let answering = (backend.engine.clone(), backend.jobs.clone());
        let flight =
            flight::open(address, admittance, answering, counts("flight"), (runtime, hub.dir()))?;
        if let Some(url) = flight.url() {
            // An address for all interfaces is not one to connect to.
            let local = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:");
            let is_secure = url.starts_with("grpc+tls:");
            let pki = hub.pki().filter(|_| is_secure);
            let authority = pki.map(|pki| pki.identity().folder().join("authority.pem"));
            let _ = backend.flight.set(FlightUrl { url: local, authority });
        }
        Ok(Self { _unix: unix, http, flight, haproxy, _replica })
    }
}

/// A hub with its listeners, until it is dropped: for `skopos hub` and `skopos up`.
pub struct Served {
    // Fields drop in this order: the listeners close before the hub that they ask.
    listeners: Listeners,
    hub: Hub,
}

impl Served {
    /// Starts a hub in the runtime directory `dir` and opens its listeners. If it `follows`, it knows all nodes of the
    /// site of `live`; else only this machine.
    ///
    /// # Errors
    /// Fails if the plane cannot be joined, a listener cannot be opened, another hub uses this directory, or the
    /// configuration is not valid.
    pub fn start(
        dir: &Path,
        (live, follows): (&LiveArgs, bool),
        args: &ListenArgs,
        config: &Config,
    ) -> Result<Self, Failure> {
        let own = HubConfig::of(config)?;
        let mut hub = Hub::open(dir, (live, follows), &own, config.path.as_deref())?;
        let listeners = Listeners::open(&hub, args, &own, live.is_insecure())?;
        hub.work(&own, &config.insight)?;
        Ok(Self { listeners, hub })
    }

    /// Returns the query engine, for a program that contains the hub.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.hub.backend().engine
    }

    /// Returns the addresses of the hub: the path of its socket, then URLs.
    pub fn addresses(&self) -> Vec<String> {
        let socket = socket_path(self.hub.dir()).display().to_string();
        let tcp = [&self.listeners.http, &self.listeners.flight];
        let tcp = tcp.into_iter().chain(&self.listeners.haproxy);
        let urls = tcp.filter_map(TcpEndpoint::url).map(str::to_owned);
        std::iter::once(socket).chain(urls).collect()
    }

    /// Returns the name of the site.
    pub fn site(&self) -> &str {
        self.hub.site()
    }

    /// Returns true if the hub has no connection to another node.
    pub fn is_alone(&self) -> bool {
        self.hub.is_alone()
    }

    /// Returns a failure for each listener that is not open because another program uses its default port.
    pub fn warnings(&self) -> impl Iterator<Item = &Failure> {
        [&self.listeners.http, &self.listeners.flight].into_iter().filter_map(TcpEndpoint::warning)
    }
}
