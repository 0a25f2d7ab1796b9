//! Samples in shared memory.
//!
//! A publisher owns one *segment*: a file under `/dev/shm/skopos-<uid>/` with a directory of
//! vertices and a ring of samples for each. Any process that may read the file maps it and reads
//! the latest value in nanoseconds, without a system call, a lock or a daemon in between.
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
//! // … and any other one reads.
//! let host = Host::open_dirs(vec![dir.clone()])?;
//! let vertex = host.find(&topic)?;
//! assert_eq!(vertex.latest()?.as_f64(), Some(17.0));
//!
//! let mut news = vertex.subscribe();
//! depth.publish(18u64)?;
//! assert!(news.next_timeout(std::time::Duration::from_secs(1))?.is_some());
//! # drop(publisher); std::fs::remove_dir_all(&dir).ok();
//! # Ok::<(), skopos_shm::Error>(())
//! ```
//!
//! Read in this order: [`layout`], the bytes; `ring`, the protocol of one vertex; `wait`, sleeping
//! and waking; `writer` and `publisher`, the one side; `segment`, `vertex`, `subscribe`, `snapshot`
//! and `host`, the other; `map` and `sys`, where memory and system calls are unsafe.
//!
//! # Invariants
//! - A reader never blocks a writer, never sees a torn sample, never sees samples out of order.
//! - Times of one vertex never go back.
//! - Every offset from a file is checked against the mapping before it is used.
//! - A publisher killed at any instruction leaves its readers correct, and is seen as dead at once.
//! - A publisher's handles are of no use in a child after `fork`: make a publisher of its own.

// A loom build has the protocols alone, without the callers that use all of them.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

// Small functions on the paths of a read and of a publish are `#[inline]`: other crates call them per
// sample, and release builds have no link-time optimisation.

pub mod layout;
mod ring;
mod wait;
mod entry;
#[cfg(not(loom))]
mod writer;
#[cfg(not(loom))]
mod spec;
#[cfg(not(loom))]
mod own_segment;
#[cfg(not(loom))]
mod publisher;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod directory;
#[cfg(not(loom))]
mod vertex;
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
