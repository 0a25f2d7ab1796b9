use std::net::SocketAddr;
#[cfg(feature = "hub")]
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::address;

/// The port of Arrow Flight SQL, unless another one is named.
const FLIGHT_PORT: u16 = 7471;

/// Where to be asked by Arrow Flight SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlightAt {
    /// Nowhere.
    Nowhere,
    /// There.
    At(SocketAddr),
}

impl FlightAt {
    /// On this machine.
    #[cfg(feature = "hub")]
    pub(crate) const USUAL: SocketAddr =
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), FLIGHT_PORT);
}

impl FromStr for FlightAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        address::parse(text, FLIGHT_PORT).map(Self::At)
    }
}

impl<'de> Deserialize<'de> for FlightAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
