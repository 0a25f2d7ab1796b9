//! Hosts: RPC libraries whose calls are recorded. Each is a feature, and off by default.

#[cfg(feature = "tonic")]
pub mod tonic;
