//! The numbers of the collector itself.

/// Numbers since the collector was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectorCounts {
    /// Datagrams that arrived.
    pub datagrams: u64,
    /// Reports that were read.
    pub reports: u64,
    /// Datagrams that the kernel dropped: from addresses that are not allowed, or because the collector was too slow.
    pub kernel_drops: u64,
    /// Datagrams from addresses that are not allowed, which the kernel did not drop: it has a filter of 64 networks at most.
    pub refused_sources: u64,
    /// Datagrams beyond the rate of their source.
    pub over_quota: u64,
    /// Datagrams without the right tag.
    pub bad_tags: u64,
    /// Datagrams that were seen before. They are refused if there is a key.
    pub replays: u64,
    /// Datagrams and reports that are not of the known format.
    pub malformed: u64,
    /// Datagrams of nodes of another domain, and reports about packets of such sources.
    pub foreign_domains: u64,
    /// Packets about paths, ports and nodes for which there was no room.
    pub beyond_bounds: u64,
    /// Paths, ports and nodes that were discarded for newer ones.
    pub evicted: u64,
    /// Hops that did not fit the list of a path that was published.
    pub hops_left_out: u64,
}
