//! Complete runs of complete tasks.

mod support;
mod bpf_objects;
mod conformance;
mod preload;
mod preload_calls;
mod ring;
mod signals;
