//! Tests of the sensors from the agent's side: through `open_all`, with a sink of their own.
//!
//! `recorded`, `cores`, `mounts` and `hardware` feed them kernel files of known content, including odd
//! ones; `large` makes those of a machine with many cores; `ports` finds free ports.
//! `live` and `network` compare them with independent tools on this machine; `peers` lets nodes probe each
//! other; `page_cache` watches files; `slurm` starts a cluster; `smart` replaces smartctl; `block_access` accesses a loop
//! device; `in_kernel` has the other sensors with BPF programs; `pending` runs their
//! table of events under way; `bpf_objects` compiles the BPF programs; `no_allocation` counts the allocations of
//! steady ticks; `totality` feeds them damaged files.

mod large;
mod loop_device;
mod ports;
mod support;

mod block_access;
mod bpf_objects;
mod cores;
mod hardware;
mod in_kernel;
mod live;
mod mounts;
mod network;
mod no_allocation;
mod page_cache;
mod pending;
mod peers;
mod recorded;
mod slurm;
mod slurm_cluster;
mod smart;
mod totality;
