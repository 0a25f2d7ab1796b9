//! History on disk: what was published, for as long as there is room for it.
//!
//! ```text
//! samples ─▶ Keeper ─▶ log-N ─ sealed ─▶ part-N-FROM-TO.parquet ─ too old, too much ─▶ removed
//!                        └───────┬───────────────┘
//!                             Folder ─▶ Parts ─▶ chunks of columns
//! ```
//!
//! # Invariants
//! - What was flushed is there once, whenever and however the process ends: a log is read up to its
//!   last whole frame, and a part that has its name has all of the log of its generation.
//! - A reader needs no lock. What went since it listed the folder makes it list again.
//! - Parts never change. Only their names are looked at to know their times.

mod error;
mod series;
mod log;
mod block;
mod seal;
mod part;
mod folder;
mod keeper;

pub use block::{Column, Stretch, UTC};
pub use error::Error;
pub use folder::Folder;
pub use keeper::{Chores, Id, Keeper, Limits, Pushed, Size};
pub use part::{Chunk, Chunks, Part, Run, Selection};
pub use seal::Sealer;
pub use series::{ORIGINS, Samples, Series};
