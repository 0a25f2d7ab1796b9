//! Tests of the sensors as the agent sees them: through `open_all`, with a sink of our own.
//!
//! `recorded`, `mounts` and `hardware` feed them kernel files of known content, odd ones too; `live` compares
//! them with independent tools on this machine; `peers` lets nodes probe each other;
//! `slurm` starts a cluster;
//! `block_access` accesses a loop device; `no_allocation` counts what steady ticks allocate; `totality`
//! feeds them damaged files.

mod support;

mod block_access;
mod bpf_objects;
mod hardware;
mod live;
mod mounts;
mod no_allocation;
mod peers;
mod recorded;
mod slurm;
mod smart;
mod totality;
