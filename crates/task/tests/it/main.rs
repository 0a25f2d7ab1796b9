//! Complete runs of complete tasks.

mod support;
mod conformance;
mod preload;
#[cfg(feature = "bpf")]
mod ring;
