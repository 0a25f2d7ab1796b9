//! The content of a packet, and its layout.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | `SA` |
//! | 2 | 1 | version, 1 |
//! | 3 | 1 | flags; bit 0: the body has names |
//! | 4 | 8 | node: the first bytes of the SHA-256 of its name |
//! | 12 | 8 | session: the time at which the reporter started, in nanoseconds since 1970 |
//! | 20 | 4 | sequence, from 1 in each session |
//! | 24 | 8 | time of the report, in nanoseconds since 1970 |
//! | 32 | 2 | length of the body |
//! | 34 | 2 | number of bits of the presence bitmap |
//! | 36 | | body |
//! | | 16 | tag: HMAC-SHA-256 of everything before it, its first half |
//!
//! Numbers are in network byte order. The body has, in this order: the number of findings that are held back (varint);
//! names, if the flag is set; the presence bitmap as runs; severities as runs; the numbers of each finding. See `encode`.

use skopos_model::Timestamp;

/// The first two bytes: "SA".
pub(super) const MAGIC: u16 = 0x5341;

/// The version of the format.
pub(super) const VERSION: u8 = 1;

/// The flag: the body has names.
pub(super) const HAS_NAMES: u8 = 1;

/// Length of the header in bytes.
pub(super) const HEADER_BYTES: usize = 36;

/// The content of a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// The node, and the number and time of its report.
    pub header: Header,
    /// The number of findings for which the packet had no room; they follow later.
    pub held: u64,
    /// Names of ids, ascending by id. The name of id 0 is the name of the node.
    pub names: Vec<Name>,
    /// Findings, ascending by id.
    pub entries: Vec<Entry>,
}

/// The fixed part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The id of the node.
    pub node: u64,
    /// The start of the reporter in nanoseconds since 1970: a later session replaces an earlier one.
    pub session: u64,
    /// The number of the report in its session, from 1.
    pub sequence: u32,
    /// The time of the report.
    pub at: Timestamp,
}

/// The name of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The id.
    pub id: u32,
    /// A topic without its node; for id 0 the node.
    pub name: String,
}

/// A finding about the metric with an id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The id of the metric, from 1.
    pub id: u32,
    /// The severity.
    pub severity: Severity,
    /// The observed value; for a counter its rate per second.
    pub seen: f64,
    /// The lowest expected value. Zero if the metric is usual again.
    pub low: f64,
    /// The highest expected value. Zero if the metric is usual again.
    pub high: f64,
    /// Tenths of a second from the begin of the state to the time of the report.
    pub age_tenths: u64,
}

/// The distance of a value from its usual range, in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The value is usual again.
    Usual = 0,
    /// Outside, by less than twice the distance that is unusual.
    Notable = 1,
    /// Outside by 2 to 4 times that distance.
    High = 2,
    /// Outside by 4 to 8 times that distance.
    Severe = 3,
    /// Outside by 8 times that distance or more.
    Extreme = 4,
}

impl Severity {
    /// All severities, by their number in a packet.
    pub const ALL: [Self; 5] =
        [Self::Usual, Self::Notable, Self::High, Self::Severe, Self::Extreme];

    /// Returns the severity of an unusual value with this score
    /// ([`Finding::score`](skopos_score::anomaly::Finding::score)).
    pub fn of_score(score: f64) -> Self {
        match score {
            s if s >= 8.0 => Self::Extreme,
            s if s >= 4.0 => Self::Severe,
            s if s >= 2.0 => Self::High,
            _ => Self::Notable,
        }
    }

    /// Returns the name: `usual`, `notable`, `high`, `severe` or `extreme`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Notable => "notable",
            Self::High => "high",
            Self::Severe => "severe",
            Self::Extreme => "extreme",
        }
    }
}
