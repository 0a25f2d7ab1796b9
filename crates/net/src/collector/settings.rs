//! The settings of a collector.

use std::net::IpAddr;

use crate::int::DOMAIN;
use crate::plane::INT_PORT;
use crate::tag::Key;

/// Settings of a collector.
#[derive(Clone, Debug)]
pub struct CollectorSettings {
    /// The networks from which reports may come, each with the bits of its prefix. No network, no reports.
    pub sources: Vec<(IpAddr, u8)>,
    /// Datagrams that a source may send in a second.
    pub datagrams_per_second: u32,
    /// The key of the site. With it, datagrams without the right tag are refused.
    pub key: Option<Key>,
    /// The UDP port of INT in the packets that reports carry.
    pub int_port: u16,
    /// The domain of the nodes. Reports and packets of other domains are refused: their ids of nodes and their clocks are
    /// others. Those that say no domain are taken.
    pub domain: u16,
}

impl CollectorSettings {
    /// Returns settings that accept reports of these networks: 20 000 datagrams a second from each source.
    pub fn new(sources: Vec<(IpAddr, u8)>) -> Self {
        Self {
            sources,
            datagrams_per_second: 20_000,
            key: None,
            int_port: INT_PORT,
            domain: DOMAIN,
        }
    }
}
