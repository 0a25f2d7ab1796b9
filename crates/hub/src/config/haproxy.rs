//! The table `[hub.haproxy]`.

use serde::Deserialize;

use super::listen::ListenAddress;

/// Address of the agent-check listener for HAProxy.
pub type HaproxyAddress = ListenAddress<7472>;

/// The agent-check listener for HAProxy, if there is the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HaproxyConfig {
    /// Address of the listener [default: 127.0.0.1:7472].
    #[serde(default = "usual")]
    pub listen: HaproxyAddress,
}

fn usual() -> HaproxyAddress {
    ListenAddress::At(HaproxyAddress::DEFAULT)
}
