//! Network telemetry: packets that carry the state of the network, reports about them, and the collector that
//! turns both into facts.
//!
//! # Invariants
//! - Bytes from a network are checked where they enter. A length in a packet never sizes an allocation.
//! - Nothing is dropped without a count.
//! - A packet that a sink has restored is the packet that its source received, byte for byte.
//!
//! Read in this order: `bytes` and [`Error`], which every codec uses; then the modules below in their order.

// UNSAFE: network namespaces, ancillary data of sockets, and FUSE need system calls without a safe wrapper.

mod bytes;
mod error;
pub mod anomaly;

pub mod int;
mod tag;
pub mod netns;
pub mod plane;
pub mod ioam;
pub mod collector;
pub mod snmp;
pub mod lab;

pub use error::Error;
pub use tag::{Key, MIN_KEY_BYTES, TAG_REPORT_BYTES};
