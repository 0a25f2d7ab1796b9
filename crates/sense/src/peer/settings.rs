use std::net::SocketAddr;
use std::time::Duration;

use rustix::time::ClockId;
use skopos_model::{Timestamp, escape_segment};

use super::datagram::MAX_NAME_BYTES;
use crate::clock;

/// The most peers of one node. Each gets a datagram of 112 bytes in each interval: at most 512 a
/// second by default. On a larger site, let each node watch a few others, and ask a hub for the
/// rest.
pub const MAX_PEERS: usize = 512;

/// The most unanswered probes to one peer, and so the longest timeout in intervals.
pub(super) const MAX_PENDING: usize = 8;

/// The shortest interval. Faster probes would measure the network, and not which nodes are alive.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// The nodes that this one probes, and the address at which it answers. Without both, nothing is
/// sent and no socket is opened.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// The name of this node, as in the peer lists of others.
    pub node: String,
    /// The address at which probes of others are answered; `None` answers no probes.
    pub listen: Option<SocketAddr>,
    /// Name and address of each node to probe.
    pub peers: Vec<(String, SocketAddr)>,
    /// The interval at which each peer is probed, unless the sensor is polled less often.
    pub interval: Duration,
    /// The longest time that an answer may take. A peer is dead when the first of two or more
    /// unanswered probes is this old; with the default, at most 3 s after its death.
    pub timeout: Duration,
    /// Returns this node's system time. Only tests have more than one.
    pub wall_clock: fn() -> Timestamp,
}

impl PeerSettings {
    /// Returns settings without peers and address, with an interval of a second and a timeout of
    /// 1.25 s.
    pub fn of_node(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            listen: None,
            peers: Vec::new(),
            interval: Duration::from_secs(1),
            timeout: Duration::from_millis(1250),
            wall_clock: || Timestamp::from_nanos(clock::now(ClockId::Realtime)),
        }
    }

    /// Returns true if there is nothing to send and nothing to answer.
    pub fn is_empty(&self) -> bool {
        self.listen.is_none() && self.peers.is_empty()
    }

    /// Checks names, addresses, number and times.
    ///
    /// # Errors
    /// The wrong value, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        let Self { node, listen, peers, interval, timeout, wall_clock: _ } = self;
        check_name(node)?;
        if peers.len() > MAX_PEERS {
            return Err(format!(
                "there are {} peers; a node probes at most {MAX_PEERS}",
                peers.len()
            ));
        }
        if *interval < MIN_INTERVAL {
            return Err(format!("the interval is {interval:?}; the shortest is {MIN_INTERVAL:?}"));
        }
        // A longer timeout would need more open probes than are kept.
        let longest = *interval * (MAX_PENDING as u32 - 1);
        if timeout.is_zero() || *timeout > longest {
            return Err(format!(
                "the timeout is {timeout:?}; with an interval of {interval:?} it is at most {longest:?}"
            ));
        }
        let mut segments = Vec::new();
        for (name, address) in peers {
            check_name(name)?;
            check_address(name, *address, *listen)?;
            let mut segment = String::new();
            escape_segment(name.as_bytes(), &mut segment);
            if segments.contains(&segment) {
                return Err(format!("two peers are called `{name}`; each needs its own name"));
            }
            segments.push(segment);
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    match name.len() {
        1..=MAX_NAME_BYTES => Ok(()),
        _ => {
            Err(format!("`{name}` is not a name of a node; a name has 1 to {MAX_NAME_BYTES} bytes"))
        }
    }
}

fn check_address(
    name: &str,
    address: SocketAddr,
    listen: Option<SocketAddr>,
) -> Result<(), String> {
    if address.port() == 0 || address.ip().is_unspecified() {
        return Err(format!("the peer {name} cannot be reached at {address}"));
    }
    match listen {
        Some(SocketAddr::V4(own)) if address.is_ipv6() => Err(format!(
            "the peer {name} has the IPv6 address {address}, and this node listens on {own} only; \
             listen on [::]:{}, which serves IPv4 too",
            own.port()
        )),
        Some(SocketAddr::V6(own)) if address.is_ipv4() && !own.ip().is_unspecified() => {
            Err(format!(
                "the peer {name} has the IPv4 address {address}, and this node listens on {own} \
                 only; listen on [::]:{}, which serves both",
                own.port()
            ))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listen: Option<&str>, peers: &[(&str, &str)]) -> Result<(), String> {
        let address = |text: &str| text.parse().expect("an address");
        PeerSettings {
            listen: listen.map(address),
            peers: peers.iter().map(|(name, at)| ((*name).to_owned(), address(at))).collect(),
            ..PeerSettings::of_node("n01")
        }
        .check()
    }

    #[test]
    fn good_settings_pass() {
        assert_eq!(check(None, &[]), Ok(()));
        assert_eq!(check(Some("[::]:7361"), &[("a", "10.0.0.2:1"), ("b", "[fe80::1]:2")]), Ok(()));
        assert_eq!(check(None, &[("a", "10.0.0.2:1"), ("b", "[fe80::1]:2")]), Ok(()));
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let refused = |listen, peers: &[(&str, &str)], part: &str| {
            let said = check(listen, peers).expect_err(part);
            assert!(said.contains(part), "{said}");
        };
        refused(None, &[("", "10.0.0.2:1")], "1 to 64 bytes");
        refused(None, &[("a", "10.0.0.2:1"), ("a", "10.0.0.3:1")], "two peers are called `a`");
        refused(None, &[("a", "10.0.0.2:0")], "cannot be reached");
        refused(None, &[("a", "0.0.0.0:1")], "cannot be reached");
        refused(Some("0.0.0.0:7361"), &[("a", "[fe80::1]:2")], "listen on [::]:7361");
        refused(Some("[fe80::2]:7361"), &[("a", "10.0.0.2:2")], "listen on [::]:7361");
        let many: Vec<_> = (0..=MAX_PEERS).map(|n| format!("n{n}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), "10.0.0.2:1")).collect();
        refused(None, &many, "at most 512");
    }

    #[test]
    fn impossible_times_are_refused() {
        let with = |interval, timeout| {
            let (interval, timeout) =
                (Duration::from_millis(interval), Duration::from_millis(timeout));
            PeerSettings { interval, timeout, ..PeerSettings::of_node("n01") }.check()
        };
        assert_eq!(with(500, 3500), Ok(()));
        assert!(with(500, 3501).is_err_and(|e| e.contains("at most 3.5s")));
        assert!(with(500, 0).is_err());
        assert!(with(1, 5).is_err_and(|e| e.contains("shortest is 10ms")));
    }
}
