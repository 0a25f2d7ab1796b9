use std::time::Duration;

use thiserror::Error;

use super::limits::{MAX_AGE, MAX_NODES};
use crate::Error;

/// The reason why a packet was not taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refused {
    /// The bytes are not a packet.
    #[error("the packet cannot be read")]
    Malformed(#[source] Error),
    /// Too many packets with a wrong tag came within a second, so this one was not verified.
    #[error("too many forged packets came within a second; this one was not verified")]
    Busy,
    /// The tag is wrong, or the packet has the name of another node.
    #[error(
        "the tag was not made with the key of node {node:016x}; does it have the secret of this site?"
    )]
    Forged {
        /// The node that the packet names.
        node: u64,
    },
    /// The time of the packet is too far from the clock of the receiver.
    #[error(
        "the report is {} s {}; at most {} s are allowed: compare the clocks of the node and of this machine",
        .apart.as_secs(), if *.ahead { "ahead of the clock" } else { "old" }, MAX_AGE.as_secs()
    )]
    Stale {
        /// The difference of the times.
        apart: Duration,
        /// True if the packet is ahead of the receiver's clock.
        ahead: bool,
    },
    /// The packet was received before, or is of an earlier session of the node.
    #[error("report {sequence} was received before, or is of an earlier start of the node")]
    Replayed {
        /// Its sequence number.
        sequence: u32,
    },
    /// There is no room for another node.
    #[error("{MAX_NODES} nodes report already; start another receiver for the others")]
    TooManyNodes,
}

/// The number of packets since the start, by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Packets that were taken.
    pub taken: u64,
    /// See [`Refused::Malformed`].
    pub malformed: u64,
    /// See [`Refused::Busy`].
    pub busy: u64,
    /// See [`Refused::Forged`].
    pub forged: u64,
    /// See [`Refused::Stale`].
    pub stale: u64,
    /// See [`Refused::Replayed`].
    pub replayed: u64,
    /// See [`Refused::TooManyNodes`].
    pub too_many_nodes: u64,
    /// Names that were not kept because a node had too many bytes of them.
    pub names_refused: u64,
    /// Findings whose name is not known yet.
    pub unnamed: u64,
}

impl Refusals {
    pub(super) fn note(&mut self, refused: &Refused) {
        *match refused {
            Refused::Malformed(_) => &mut self.malformed,
            Refused::Busy => &mut self.busy,
            Refused::Forged { .. } => &mut self.forged,
            Refused::Stale { .. } => &mut self.stale,
            Refused::Replayed { .. } => &mut self.replayed,
            Refused::TooManyNodes => &mut self.too_many_nodes,
        } += 1;
    }
}
