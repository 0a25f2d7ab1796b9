//! Addresses in the configuration.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Deserializer};

/// The port of the examples in `docs/howto/let-nodes-see-each-other.md`.
const PORT: u16 = 7361;

/// An address with its port.
struct Address(SocketAddr);

/// Parses an address with its port.
///
/// # Errors
/// The text is not an address, or has no port: the message suggests `port`.
pub fn parse(text: &str, port: u16) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.parse::<IpAddr>() {
        Ok(ip) => format!("`{text}` has no port: try `{}`", SocketAddr::new(ip, port)),
        // A name would have to be resolved, which can take long, and may change.
        Err(_) => format!("`{text}` is not an address: write it like `10.0.0.2:{port}`"),
    })
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text, PORT).map(Self).map_err(serde::de::Error::custom)
    }
}

pub(super) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    Address::deserialize(deserializer).map(|address| Some(address.0))
}

pub(super) fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, SocketAddr>, D::Error> {
    let all = BTreeMap::<String, Address>::deserialize(deserializer)?;
    Ok(all.into_iter().map(|(name, address)| (name, address.0)).collect())
}
