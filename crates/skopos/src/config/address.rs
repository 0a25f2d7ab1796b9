use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// The port of the examples in `docs/peers.md`: what is suggested where there is none.
const PORT: u16 = 7361;

/// An address with its port; one that is not says what would be right.
struct Address(SocketAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        Err(match text.parse::<IpAddr>() {
            Ok(ip) => format!("`{text}` has no port: try `{}`", SocketAddr::new(ip, PORT)),
            // A name would have to be asked for, which can take long, and may change.
            Err(_) => format!("`{text}` is no address: write it like `10.0.0.2:{PORT}`"),
        })
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
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
