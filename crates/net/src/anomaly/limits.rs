//! The bounds of anomaly reports.

use std::time::Duration;

/// The longest packet. IPv6 guarantees a path 1,280 bytes; headers of IPv6 and UDP take 48, and those of in-band
/// telemetry over a few hops the rest.
pub const MAX_PACKET_BYTES: usize = 1100;

/// The longest name of a metric or node: the length of its part that differs from the name before is one byte.
pub const MAX_NAME_BYTES: usize = 255;

/// The greatest id of a name. A bitmap of all ids has at most two bytes in the length of a run.
pub const MAX_ID: u32 = 16_383;

/// The most metrics that one reporter judges. Each has about 700 bytes of state, so all have less than 3 MB. A node with
/// 64 cores, 20 disks and 100 listeners has about 1,500.
pub const MAX_METRICS: usize = 4096;

/// The time after which an unusual metric is reported again, so that a lost packet or a new collector costs no more than
/// this time.
pub const REFRESH: Duration = Duration::from_secs(30);

/// The least time between two entries of one metric. A value that swings about its bound makes 12 entries a minute.
pub const MIN_RESEND: Duration = Duration::from_secs(5);

/// The time after which a name is sent again with its id, so that a restarted collector learns it.
pub const NAME_REFRESH: Duration = Duration::from_secs(60);

/// The number of first packets with an id that carry its name: the second is for a lost first one.
pub const NAME_REPEATS: u8 = 2;

/// The greatest difference between the time of a report and the clock of its receiver. Older packets are refused, because
/// a receiver that was restarted does not know whether they are replayed.
pub const MAX_AGE: Duration = Duration::from_secs(120);

/// The most nodes of one receiver. Beyond it, reports of new nodes are refused.
pub const MAX_NODES: usize = 4096;

/// The most bytes of names that a receiver keeps for a node: as many names as a node has metrics, at 64 bytes.
pub const MAX_NAME_BYTES_PER_NODE: usize = MAX_METRICS * 64;

/// The most packets with a wrong tag that are verified a second, from addresses without a verified report. Verifying takes
/// about 2 µs, so a flood costs half a percent of a core. In a flood, a new node waits for a moment without one.
pub const FORGED_PER_SECOND: u32 = 2000;

/// The same for addresses that sent a verified report: a flood that imitates them costs 2 % of a core.
pub const FORGED_PER_SECOND_KNOWN: u32 = 10_000;
