//! Samples in shared memory.
//!
//! A publisher owns one *segment*: a file under `/dev/shm/skopos-<uid>/` with a directory of
//! vertices and a ring of samples for each. Any process that may read the file maps it and reads
//! the latest value in nanoseconds, without a system call, a lock or a daemon.
//!
//! # Publish and read numbers
//!
//! ```
//! use std::time::Duration;
//! use skopos_shm::{Host, Publisher, Reader};
//!
//! # let dir = std::env::temp_dir().join(format!("skopos-doc-{}", std::process::id()));
//! // One process publishes. Without `dir`, segments are where all readers look.
//! let publisher = Publisher::builder("my-service").dir(&dir).create()?;
//! let mut depth = publisher.writer::<u64>("n01/my-service/queue/depth")?;
//! depth.publish(17)?;
//!
//! // Any other process reads. `Host::open()` finds everything that is published on this machine.
//! let host = Host::open_dirs(vec![dir.clone()])?;
//! let reader: Reader<u64> = host.reader("n01/my-service/queue/depth")?;
//! assert_eq!(reader.get()?, 17);
//! // A source that is no longer polled keeps its last value. Before a decision, ask for a young one:
//! assert_eq!(reader.fresh(Duration::from_secs(60))?, 17);
//! # drop(depth); drop(publisher); std::fs::remove_dir_all(&dir).ok();
//! # Ok::<(), skopos_shm::Error>(())
//! ```
//!
//! A [`Writer`] is the only writer of its vertex, takes no lock, and unregisters the vertex when it is dropped. A
//! [`VertexWriter`], from [`Publisher::register`], publishes from any number of threads, and also records and
//! unknown values. A [`Group`] publishes facts that are measured together, and [`snapshot`] reads them together.
//!
//! # Find
//!
//! | to find | call |
//! |---|---|
//! | one topic, with the name of the node or without | [`Host::reader`], [`Host::lookup`] |
//! | a topic that may not be published yet | [`Host::wait_for`] |
//! | all topics of a pattern, such as `*/block/*/in_flight` | [`Host::select`] |
//! | new publishers and vertices, as they come and go | [`Host::refresh`], then [`Host::changes`] |
//!
//! # Wait
//!
//! | to wait for | call |
//! |---|---|
//! | the next number | [`Reader::wait`] |
//! | each sample of a vertex, once and in order | [`Subscription::next_timeout`] |
//! | anything that is published | [`Host::wait`], or with publishers that start later [`Host::wait_and_look`] |
//! | anything, in a loop around `poll` or `epoll` | [`Host::notifier`] |
//!
//! A waiting thread sleeps in the kernel, and the publish itself wakes it. An unchanged value wakes no thread.
//!
//! # Errors that a reader expects
//!
//! | error | meaning | usual reaction |
//! |---|---|---|
//! | [`Error::Empty`] | registered, and nothing published yet | try again later |
//! | [`Error::Unknown`] | the publisher could not measure it | as without the value |
//! | [`Error::Stale`] | the source was not polled for longer than the caller allows | as without the value |
//! | [`Error::Gone`] | unregistered, or its publisher has ended | find it again |
//! | [`Error::TooOld`] | the ring no longer reaches back that far | ask the history on disk |
//! | [`Error::Busy`] | writers overwrote the ring while it was read, again and again | try again; a longer ring |
//!
//! The age of a value is measured on a clock that never steps, so it is right when the machine's time is set.
//!
//! # Where to read on
//!
//! Read in this order: [`layout`], the bytes; `ring`, the protocol of one vertex; `wait`, sleeping
//! and waking; `marks`, the interest of readers; `clocks`, `own_segment`, `writer` and `publisher`, the writing side; `segment`, `vertex`,
//! `directory`, `subscribe`, `feed`, `snapshot` and `host`, the reading side; `typed`, handles for numbers of one type;
//! `notifier`, a descriptor for `epoll`; `process`, the publisher's process
//! and its children; [`records`], segments of recorders, whose rings are drained; [`ticks`], the cheapest clock; `map` and `sys`, the unsafe access to memory and the system calls.
//!
//! # Invariants
//! - A reader never blocks a writer, never sees a torn sample, never sees samples out of order.
//! - Times of one vertex never go back.
//! - Every offset from a file is checked against the mapping before it is used.
//! - If a publisher is killed at any instruction, its readers stay correct and see its death at once.
//! - A child after `fork` neither changes nor keeps alive the segment of its parent.

// A loom build has only the protocols, without all of their callers.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

// Small functions on the paths of a read and of a publish are `#[inline]`: other crates call them per
// sample, and release builds have no link-time optimisation.

pub mod layout;
mod ring;
mod wait;
mod entry;
pub mod records;
mod clocks;
mod marks;
#[cfg(not(loom))]
mod spec;
#[cfg(not(loom))]
mod process;
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
mod feed;
#[cfg(not(loom))]
mod snapshot;
#[cfg(not(loom))]
mod host;
#[cfg(not(loom))]
mod typed;
#[cfg(not(loom))]
mod notifier;
#[cfg(not(loom))]
mod header;
#[cfg(not(loom))]
mod flags;
#[cfg(not(loom))]
mod dir;
#[cfg(not(loom))]
mod dead;
#[cfg(not(loom))]
mod map;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
pub mod ticks;
#[cfg(not(loom))]
mod exit;
#[cfg(not(loom))]
mod error;
mod sync;

pub use ring::Published;
#[cfg(not(loom))]
pub use {
    dir::{DIR_VARIABLE, default_dir, runtime_dir, search_path},
    error::Error,
    exit::at_exit,
    feed::{Feed, FeedEvent},
    host::{Host, SegmentVersions},
    notifier::Notifier,
    publisher::{Builder, DEFAULT_MAX_BYTES, DEFAULT_MAX_VERTICES, Interest, Publisher},
    segment::{Segment, VertexInfo},
    snapshot::{Snapshot, snapshot},
    spec::{DEFAULT_SLOTS, VertexSpec},
    subscribe::{Delivery, Subscription},
    sys::{boottime, effective_uid, now, release_program_pages},
    typed::{Number, Reader, Writer},
    vertex::{Range, Reading, Vertex},
    writer::{Group, Tick, VertexWriter},
};

#[cfg(test)]
mod heap;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod ring_tests;
