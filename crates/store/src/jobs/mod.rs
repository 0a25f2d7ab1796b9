//! Jobs in layers: records near the nodes, sealed segments for the long term, and a catalogue that finds them.
//!
//! ```text
//! producers ─▶ Intake: log-N (short time) ─ sealed ─▶ segment-N.parquet (long time) ─▶ Catalogue (metadata)
//!                 └── running jobs ───────────────────────────┴── finished jobs ───────────┘
//! ```
//!
//! A [`JobPart`] is a piece of a job that is sealed at once: the whole of a short job, an hour of a long one, or
//! records that came after the end. A [`JobEntry`] is what the catalogue knows about a job. It is a fold over the
//! records of the job's parts in their order, so the catalogue can be made again from the segments.
//!
//! # Invariants
//! - What was acknowledged can be read, exactly once: from the log until its part is sealed, then from the segment.
//! - A part is identified by its site, job, generation and number. Sealing it again changes nothing.
//! - The catalogue has nothing that the segments have not.
//!
//! Read in this order: `part`, `entry`, `intake`, `segment`, `lts`, [`replica`], [`catalogue`]; [`spool`] is on the side of the producers, `sum`
//! on that of the readers.

mod part;
mod entry;
mod intake;
mod segment;
mod lts;
mod sum;
pub mod replica;
pub mod spool;
pub mod catalogue;

pub use catalogue::{
    Amount, Applied, Catalogue, Change, Cursor, Filter, JobKey, JobRow, Order, Page, PageRequest,
    ResourceRange, Sort, SqliteCatalogue, Visibility,
};
pub use entry::{Dated, JobEntry, MAX_NODES};
pub use intake::{
    Account, Intake, IntakeLimits, OpenJob, Progress, PushOutcome, Pushed, Reached, Refusal,
    SealedParts, UnreadPart, Unsealed,
};
pub use lts::{
    Changes, Lts, PartsOfJobs, Placed, Retention, SegmentDamage, SegmentFile, SegmentFiles,
    Version, WholeSegment,
};
pub use part::{JobPart, Mark, PartRef, StoredRecord};
pub use segment::{ArrivingSegment, PartInfo, PartReader, Segment, SegmentInfo, SegmentWriter};
pub use sum::RecordSum;
