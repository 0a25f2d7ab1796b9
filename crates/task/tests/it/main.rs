//! Whole runs of whole tasks.

mod support;
mod bpf_objects;
mod conformance;
mod preload;
mod ring;
