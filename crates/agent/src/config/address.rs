use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Deserializer};

/// The port of the examples in `docs/howto/let-nodes-see-each-other.md`.
const PORT: u16 = 7361;

/// An address with its port; one that is not says what would be right.
struct Address(SocketAddr);

/// An address with its port; `port` is what is suggested where there is none.
pub fn parse(text: &str, port: u16) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.parse::<IpAddr>() {
        Ok(ip) => format!("`{text}` has no port: try `{}`", SocketAddr::new(ip, port)),
        // A name would have to be asked for, which can take long, and may change.
        Err(_) => format!("`{text}` is no address: write it like `10.0.0.2:{port}`"),
    })
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text, PORT).map(Self).map_err(serde::de::Error::custom)
    }
}

pub fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    Address::deserialize(deserializer).map(|address| Some(address.0))
}

pub fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, SocketAddr>, D::Error> {
    let all = BTreeMap::<String, Address>::deserialize(deserializer)?;
    Ok(all.into_iter().map(|(name, address)| (name, address.0)).collect())
}
