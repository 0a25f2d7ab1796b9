//! Whole runs of whole tasks.

mod support;
mod conformance;
mod preload;
#[cfg(feature = "bpf")]
mod ring;
