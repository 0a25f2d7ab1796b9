//! Where the hub's doors are that listen by TCP.

use std::net::SocketAddr;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use skopos_agent::config::address;

/// Where to be asked by HTTP.
pub type HttpAt = DoorAt<7470>;

/// Where to be asked by Arrow Flight SQL.
pub type FlightAt = DoorAt<7471>;

/// Where a door is. `PORT` is its port unless another one is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorAt<const PORT: u16> {
    /// Nowhere.
    Nowhere,
    /// There.
    At(SocketAddr),
}

impl<const PORT: u16> DoorAt<PORT> {
    /// On this machine.
    pub const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
}

impl<const PORT: u16> FromStr for DoorAt<PORT> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        address::parse(text, PORT).map(Self::At)
    }
}

impl<'de, const PORT: u16> Deserialize<'de> for DoorAt<PORT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
