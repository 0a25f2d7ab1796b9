//! Options of the live plane, for every role that joins it.

use clap::Args;
use skopos_wire::PlaneConfig;

/// How to find the others.
#[derive(Clone, Debug, Args)]
pub(crate) struct LiveArgs {
    /// Which nodes belong together: sites on one network do not see each other
    #[arg(long, value_name = "NAME", default_value = "default")]
    site: String,
    /// Listen there, such as tcp/10.0.0.1:7447 [default: this machine's loopback, any port]
    #[arg(long, value_name = "ENDPOINT")]
    listen: Vec<String>,
    /// Connect to these hubs or routers, such as tcp/hub1:7447
    #[arg(long, value_name = "ENDPOINT")]
    connect: Vec<String>,
    /// Look for others on this network interface (`auto` for all, `none` to look for nobody)
    #[arg(long, value_name = "INTERFACE", default_value = "lo")]
    look_on: String,
}

impl LiveArgs {
    pub(crate) fn site(&self) -> &str {
        &self.site
    }

    /// Of a site of its own: listens there and looks for nobody.
    #[cfg(feature = "bench")]
    pub(crate) fn at(site: &str, endpoint: &str) -> Self {
        let (listen, connect) = (vec![endpoint.to_owned()], Vec::new());
        Self { site: site.to_owned(), listen, connect, look_on: "none".to_owned() }
    }

    pub(crate) fn config(&self) -> PlaneConfig {
        let mut config = PlaneConfig::on_this_machine(&self.site);
        if !self.listen.is_empty() {
            config.listen.clone_from(&self.listen);
        }
        config.connect.clone_from(&self.connect);
        config.look_on = (self.look_on != "none").then(|| self.look_on.clone());
        config
    }
}
