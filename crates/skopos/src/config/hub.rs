use std::collections::BTreeMap;
#[cfg(feature = "hub")]
use std::net::IpAddr;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use skopos_model::Topic;

use super::address;
use super::flight::FlightAt;
use super::remote_write::RemoteWriteConfig;

/// The hub: `[hub]`. A build without it checks this part all the same.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HubConfig {
    /// Tables of one topic each, by names of the user's.
    #[serde(deserialize_with = "by_name")]
    pub(crate) aliases: BTreeMap<String, Topic>,
    /// Where it is asked by HTTP.
    pub(crate) http: Option<HttpAt>,
    /// Where it is asked by Arrow Flight SQL.
    pub(crate) flight: Option<FlightAt>,
    /// The store that latest values are sent to.
    pub(crate) remote_write: Option<RemoteWriteConfig>,
}

/// The port of HTTP, unless another one is named.
const HTTP_PORT: u16 = 7470;

/// Where to be asked by HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpAt {
    /// Nowhere.
    Nowhere,
    /// There.
    At(SocketAddr),
}

impl HttpAt {
    /// On this machine.
    #[cfg(feature = "hub")]
    pub(crate) const USUAL: SocketAddr =
        SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), HTTP_PORT);
}

impl FromStr for HttpAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        address::parse(text, HTTP_PORT).map(Self::At)
    }
}

impl<'de> Deserialize<'de> for HttpAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Topic>, D::Error> {
    let all = BTreeMap::<String, String>::deserialize(deserializer)?;
    let parsed = all.into_iter().map(|(name, topic)| Ok((name, topic.parse()?)));
    parsed.collect::<Result<_, skopos_model::Error>>().map_err(serde::de::Error::custom)
}
