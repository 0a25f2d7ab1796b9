//! Callpaths and traces of RPC services.
#![forbid(unsafe_code)]

pub mod error;
pub mod interval;
pub mod callpath;
pub mod record;
pub mod analysis;
