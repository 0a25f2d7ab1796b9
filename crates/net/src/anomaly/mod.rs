//! Anomaly reports: a node judges its own micrometrics and sends a small packet only if something is unusual.
//!
//! A [`Reporter`] has a detector for each micrometric ([`skopos_score::anomaly::envelope`]). It takes polled values with the
//! times of their polls. Asked for a report, it returns a packet if a metric became unusual, is more unusual than reported,
//! is usual again, or is still unusual after [`REFRESH`]. A [`Receiver`] checks the packets of many nodes and returns
//! [`Report`]s. Both are pure: time is an argument, and sockets belong to the caller. A packet fits into a datagram
//! ([`MAX_PACKET_BYTES`]), and so into the payload of an in-band telemetry packet too.
//!
//! `docs/reference/anomaly-report.md` has the format byte by byte; `packet` has the same as a table.
//!
//! # Invariants
//! - A packet is decoded only after its tag was verified with the key of its node.
//! - A report is delivered at most once. Lost reports are counted by their sequence.
//! - Findings that do not fit into a packet are sent later, the most severe ones first, and their number is in it.
//! - Metrics, names, nodes and the work for forged packets are bounded, and each refusal is counted.
//!
//! ```
//! use skopos_model::{Kind, Timestamp, Unit};
//! use skopos_net::anomaly::{Receiver, Reporter, SiteKey};
//!
//! let site = SiteKey::new(b"a secret of at least 16 bytes")?;
//! let at = |second: i64| Timestamp::from_nanos(second * 1_000_000_000);
//! let mut reporter = Reporter::new(&site.node_secret("n01"), "n01", at(1000))?;
//! let depth = reporter.join("block/vda/queue_depth_mean", Kind::Gauge, Unit::NONE).expect("room");
//! let mut receiver = Receiver::new(site);
//! let from = "192.0.2.1:4567".parse()?;
//! for second in 1001..1400 {
//!     let value = if second < 1390 { 1.0 } else { 60.0 };
//!     if let Some(packet) = reporter.tick(at(second), &[(depth, value)]) {
//!         let report = receiver.take(from, packet, at(second))?;
//!         assert_eq!(second, 1391);
//!         assert_eq!(report.node.as_deref(), Some("n01"));
//!         assert_eq!(report.findings[0].name.as_deref(), Some("block/vda/queue_depth_mean"));
//!         assert_eq!(report.findings[0].seen, 60.0);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod limits;
mod key;
mod number;
mod packet;
mod encode;
mod decode;
mod least;
mod metric;
mod reporter;
mod tokens;
mod window;
mod refused;
mod receiver;

pub use key::{NodeKey, SiteKey};
pub use least::least_change;
pub use limits::{MAX_PACKET_BYTES, REFRESH};
pub use packet::{Entry, Header, Name, Packet, Severity};
pub use receiver::{Finding, Receiver, Report};
pub use refused::{Refusals, Refused};
pub use reporter::{Handle, Reporter, ReporterCounts};
