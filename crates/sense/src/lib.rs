//! Sensors of the host. Each reads one source and yields the facts of one family of
//! `skopos_model::schema`; each is one file, named after its family.
//!
//! # Invariants
//! - A sensor opens its files once and reads them again with `pread`; a tick allocates nothing
//!   unless an instance (a disk, a mount) came or went. (`smart` runs a program every few minutes.)
//! - A sensor knows no clock and no destination: [`Tick`] brings both. Only `clock` and `peer`, which
//!   measure clocks, read them, in one place: `clock::now`; `program`, to end one that hangs; and
//!   `remote_fs`, to tell how long an answer took and to wait no longer than it may.
//! - What the machine lacks is a [`Skip`] with its reason, never a made-up value.
//!
//! Read in this order: [`Sensor`], [`Tick`] and [`Sink`]; `file`, `parse` and `facts` below every
//! sensor; `instances` for those whose things come and go, `table` for those that read named
//! numbers; then any one sensor, `load` first.

#![forbid(unsafe_code)]

mod sensor;
mod root;
mod file;
mod parse;
mod facts;
mod instances;
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
mod fsinfo;
mod device;
mod smart;
mod raid;
mod netdev;
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

pub use peer::{MAX_PEERS, PeerSettings};
pub use registry::{Opened, open_all, open_peers};
pub use root::Root;
pub use sensor::{FactId, Sensor, Sink, Skip, Tick};
