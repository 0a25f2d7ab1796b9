//! Tests of shared memory with several processes, real files and real kills.
//!
//! One binary for the whole crate, so that it links once. All modules share `support`.

mod support;

mod ages;
mod crash;
mod crash_child;
mod crash_reader;
mod feed;
mod clients;
mod foreign;
mod forks;
mod hostile;
mod mutations;
mod full;
mod owners;
mod publishers;
mod recorders;
mod snapshots;
mod typed;
mod host;
mod memory;
mod waiting;
mod model_based;
mod no_allocation;
