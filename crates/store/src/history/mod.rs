//! History on disk: published samples, within limits of size and age.
//!
//! ```text
//! samples ─▶ Keeper ─▶ log-N ─ sealed ─▶ part-N-FROM-TO.parquet ─ over a limit ─▶ removed
//!                        └───────┬───────────────┘
//!                             Folder ─▶ Parts ─▶ chunks of columns
//! ```
//!
//! # Invariants
//! - A flushed sample exists exactly once, whenever and however the process ends: a log is read up to its
//!   last complete frame, and a part with its final name has the whole log of its generation.
//! - A reader needs no lock. If a file disappears after the reader listed the folder, it lists again.
//! - Parts never change. Their names alone give their times.

mod error;
mod column;
mod series;
mod log;
mod block;
mod series_list;
mod seal;
mod selection;
mod pages;
mod file;
mod chunks;
mod part;
mod folder;
mod keeper;

pub use block::Stretch;
pub use chunks::{Chunk, Chunks, Run};
pub use column::Column;
pub use error::Error;
pub use folder::Folder;
pub use keeper::{Chores, Keeper, Limits, PushOutcome, SeriesId, Size};
pub use part::Part;
pub use seal::Sealer;
pub use selection::Selection;
pub use series::{ORIGINS, Samples, Series};
