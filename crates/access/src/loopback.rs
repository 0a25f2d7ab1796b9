//! The addresses at which a connection in clear text does not leave this machine.

use std::net::{IpAddr, SocketAddr};

/// Returns true if `host`, with or without a port, is an address of the loopback, such as `127.0.0.1:7471` or `[::1]`. It is false
/// for all names, `localhost` among them: another machine may answer the look-up of a name.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let address = match host.parse::<SocketAddr>() {
        Ok(at) => Some(at.ip()),
        Err(_) => bare.parse::<IpAddr>().ok(),
    };
    address.is_some_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_loopback_are_near_and_names_are_not() {
        for near in ["127.0.0.1", "127.0.0.2:7471", "::1", "[::1]", "[::ffff:127.0.0.1]:80"] {
            assert!(is_loopback(near), "{near}");
        }
        for far in [
            "",
            ":80",
            "localhost",
            "localhost:7471",
            "127.0.0.1.example",
            "127.0.0.1:99999",
            "127.0.0.1@a.example",
            "10.0.0.1:80",
            "0.0.0.0",
            "[::]:80",
            "[fe80::1]:80",
        ] {
            assert!(!is_loopback(far), "{far}");
        }
    }
}
