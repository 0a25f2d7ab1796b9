//! Sensors of the host. Each sensor reads one source, yields the facts of one family of
//! `skopos_model::schema`, and is one file, named after its family.
//!
//! # Invariants
//! - A sensor opens its files once and reads them again with `pread`. A tick allocates nothing
//!   unless an instance (a disk, a mount) came or went. (`smart` runs a program every few minutes.)
//! - A sensor does not read a clock and does not know where its facts go: [`Tick`] brings both.
//!   Four modules read clocks: `clock` and `peer` measure them (through `clock::now`), `program`
//!   ends programs that hang, and `remote_fs` times answers and limits how long it waits for them.
//! - What the machine lacks is a [`Skip`] with its reason, never a made-up value.
//!
//! Read in this order: [`Sensor`], [`Tick`] and [`Sink`]; then `file`, `parse` and `facts`, which
//! every sensor uses; `instances` for sensors of things that come and go, `table` for sensors of
//! named numbers, `cores` for values of each core; `in_kernel`, `slots` and `histogram` for programs in the kernel; then any
//! sensor, `load` first.

// UNSAFE: cachestat(2) has no safe wrapper; its call is in `sys` alone.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod sys;

mod sensor;
mod root;
mod host_settings;
mod parse;
mod file;
mod shared;
mod rarely;
mod facts;
mod cores;
mod instances;
mod sampling;
mod histogram;
mod slots;
mod in_kernel;
mod table;
mod program;
mod mounts;
mod local;
mod capacity;
pub mod disk;
pub mod mounted;
pub mod calibration;
mod registry;

mod load;
mod cpu;
mod psi;
mod process;
mod interrupts;
mod softirqs;
mod mem;
mod swap;
mod vmstat;
mod numa;
mod block;
mod fs;
mod remote_fs;
mod page_cache;
mod fsinfo;
mod device;
mod smart;
mod raid;
mod link_notices;
mod netlink;
mod sock_diag;
mod netdev;
mod nic;
mod softnet;
mod qdisc;
mod listener;
mod tcp_peer;
mod tcp;
mod udp;
mod sockets;
mod cgroup;
mod hwmon;
mod energy;
mod clock;
mod peer;
mod responder;
mod slurm;
mod block_access;
mod block_latency;
mod runqueue;
mod qdisc_sojourn;
mod page_cache_hits;

pub use host_settings::{HostSettings, MAX_WATCHED};
pub use peer::settings::{MAX_PEERS, PeerSettings};
pub use registry::{Opened, open_all, open_peers};
pub use root::Root;
pub use sensor::{FactId, Sensor, Sink, Skip, Tick};
pub use slurm::ShownJob;
