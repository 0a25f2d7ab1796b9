//! Samples in shared memory.
//!
//! A publisher owns one *segment*: a file under `/dev/shm/skopos-<uid>/` with a directory of
//! vertices and a ring of samples for each. Any process that may read the file maps it and reads
//! the latest value in nanoseconds, without a system call, a lock or a daemon.
//!
//! ```
//! use skopos_model::{Topic, Unit, ValueType};
//! use skopos_shm::{Host, Publisher, VertexSpec};
//!
//! # let dir = std::env::temp_dir().join(format!("skopos-doc-{}", std::process::id()));
//! // One process publishes …
//! let publisher = Publisher::builder("my-service").dir(&dir).create()?;
//! let topic: Topic = "n01/my-service/queue/depth".parse()?;
//! let depth = publisher.register(VertexSpec::new(topic.clone(), ValueType::U64))?;
//! depth.publish(17u64)?;
//!
//! // … and any other process reads.
//! let host = Host::open_dirs(vec![dir.clone()])?;
//! let vertex = host.find(&topic)?;
//! assert_eq!(vertex.latest()?.as_f64(), Some(17.0));
//!
//! let mut changes = vertex.subscribe();
//! depth.publish(18u64)?;
//! assert!(changes.next_timeout(std::time::Duration::from_secs(1))?.is_some());
//! # drop(publisher); std::fs::remove_dir_all(&dir).ok();
//! # Ok::<(), skopos_shm::Error>(())
//! ```
//!
//! Read in this order: [`layout`], the bytes; `ring`, the protocol of one vertex; `wait`, sleeping
//! and waking; `own_segment`, `writer` and `publisher`, the writing side; `segment`, `vertex`,
//! `directory`, `subscribe`, `snapshot` and `host`, the reading side; `map` and `sys`, the unsafe access
//! to memory and the system calls.
//!
//! # Invariants
//! - A reader never blocks a writer, never sees a torn sample, never sees samples out of order.
//! - Times of one vertex never go back.
//! - Every offset from a file is checked against the mapping before it is used.
//! - If a publisher is killed at any instruction, its readers stay correct and see its death at once.
//! - The handles of a publisher do not work in a child after `fork`: the child makes its own publisher.

// A loom build has only the protocols, without all of their callers.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

// Small functions on the paths of a read and of a publish are `#[inline]`: other crates call them per
// sample, and release builds have no link-time optimisation.

pub mod layout;
mod ring;
mod wait;
mod entry;
#[cfg(not(loom))]
mod spec;
#[cfg(not(loom))]
mod own_segment;
#[cfg(not(loom))]
mod list;
#[cfg(not(loom))]
mod writer;
#[cfg(not(loom))]
mod publisher;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod vertex;
#[cfg(not(loom))]
mod directory;
#[cfg(not(loom))]
mod subscribe;
#[cfg(not(loom))]
mod snapshot;
#[cfg(not(loom))]
mod host;
#[cfg(not(loom))]
mod header;
#[cfg(not(loom))]
mod flags;
#[cfg(not(loom))]
mod dir;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod error;
mod sync;

pub use ring::Published;
#[cfg(not(loom))]
pub use {
    dir::{DIR_VARIABLE, default_dir, runtime_dir, search_path},
    error::Error,
    host::{Host, SegmentVersions},
    publisher::{Builder, DEFAULT_MAX_BYTES, DEFAULT_MAX_VERTICES, Interest, Publisher},
    segment::{Segment, VertexInfo},
    snapshot::{Snapshot, snapshot},
    spec::{DEFAULT_SLOTS, VertexSpec},
    subscribe::{Delivery, Subscription},
    sys::{boottime, effective_uid, now, release_program_pages},
    vertex::{Range, Reading, Vertex},
    writer::{Group, Tick, VertexWriter},
};

#[cfg(test)]
mod heap;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod ring_tests;
