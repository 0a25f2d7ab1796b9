//! A hierarchy of storage tiers: real files in folders, moved by the policies of [`crate::place`].
//!
//! Read in this order: [`Settings`], [`View`], [`Engine`], `folder` (a tier on disk, with `disk` and `unsettled`), `state`
//! (the counts behind the engine), `room` (flushes and evictions), `write`, `read`, `bring_up` and [`Prefetcher`].
//!
//! # Layout
//! A folder of a tier has `home`, the files whose copies count; `cache`, copies that were brought up, which a start
//! removes; `part`, files that are being written, which a start removes too; and `lock`, which one process holds. The name of
//! a file on disk is its name with `%2F` for `/`, and so on for all bytes but letters, digits, `_`, `-` and inner dots.
//!
//! # Invariants
//! - A write is acknowledged after the file was synced, renamed into `home`, and the folder synced: it survives a crash of
//!   the program, and a crash of the machine if the tier does.
//! - A file leaves a tier only after its copy below is as durable. A crash in between leaves two copies, and both count.
//! - All copies of a name are of one write. A name is free, and `remove` returns, only after every removal of an older file
//!   of it is durable on every tier, so that no loss of power brings it back. A start makes the removals of an earlier process
//!   durable.
//! - A copy that cannot be removed counts until it is.
//! - A copy that a start finds, and whose length differs from that on a faster tier, is not read. It is removed with its file.
//! - A replica above a healthy tier that has the file, too, is removed only if a write has no room on any other tier or set.
//! - A [`Prefetcher`] reserves room in the order of announcements. A file waits for an earlier one only if cached copies leave
//!   that one too little room.
//! - A thread waits for room only while it has none reserved, so writes never wait for each other in a circle.
//! - A failed tier costs no acknowledged file: other tiers take new files, and files of the failed tier are found again when
//!   it is back.
//! - Each announcement of a file stands for one read: a copy stays wanted until that many reads have happened.
//! - Memory is a tier: files are not kept in the page cache.
//! - Waiting, failing and evicting are counted in [`Stats`].

/// Compiles and runs the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/howto/place-files-on-tiers.md")]
struct Page;

mod settings;
mod stats;
mod name;
mod view;
mod disk;
mod unsettled;
mod folder;
mod state;
mod engine;
mod room;
mod write;
mod read;
mod bring_up;
mod prefetch;
#[cfg(test)]
mod power_tests;

pub use bring_up::Prefetched;
pub use engine::Engine;
pub use name::MAX_NAME_BYTES;
pub use prefetch::{MAX_HINTS, MAX_WORKERS, Prefetcher};
pub use settings::{Settings, TierSpec};
pub use state::{AWAITED_READS, KEPT};
pub use stats::Stats;
pub use view::{Declared, View};
