//! Addresses of the TCP listeners.

use std::net::SocketAddr;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use skopos_agent::config::address;

/// Address of the HTTP listener.
pub type HttpAddress = ListenAddress<7470>;

/// Address of the Arrow Flight SQL listener.
pub type FlightAddress = ListenAddress<7471>;

/// Address of a TCP listener, or `none`. `PORT` is the default port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAddress<const PORT: u16> {
    /// The listener is disabled: `none`.
    Disabled,
    /// The listener uses this address.
    At(SocketAddr),
}

impl<const PORT: u16> ListenAddress<PORT> {
    /// The default address, on the loopback interface.
    pub const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
}

impl<const PORT: u16> FromStr for ListenAddress<PORT> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Disabled);
        }
        address::parse(text, PORT).map(Self::At)
    }
}

impl<'de, const PORT: u16> Deserialize<'de> for ListenAddress<PORT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
