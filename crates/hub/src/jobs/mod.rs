//! The jobs of a site: the roles STS, LTS and MDS of a hub.
//!
//! [`Jobs`] has the intake of new records, the folder of sealed segments and the catalogue, and two threads: one commits
//! what producers send; the other seals parts and tells the catalogue about running jobs. `docs/internals/job-storage.md` has
//! the whole path of a record.
//!
//! Every call takes a caller, and asks the policy: a record is stored if the caller may store it, and a job is shown if
//! the caller may read it.
//!
//! Read in this order: `batch`, `signal`, `replication`, `counts`, `troubles`, `shared`, `sealed`, `numbers`, `chores`, `threads`,
//! `stored`, `turn`, `looked_up`, `pushing`, `storing`, `reads`, `copy_of`, `store`, `segments`, `helped`,
//! `replicating`, `open_copy`, `copies`, `place`, `spooled`, `node_facts`, `from_nodes`, `mds`, `judging`, `columns`, `download`.

mod batch;
mod signal;
mod replication;
mod counts;
mod troubles;
mod shared;
mod sealed;
mod numbers;
mod chores;
mod threads;
mod stored;
mod turn;
mod looked_up;
mod pushing;
mod storing;
mod reads;
mod copy_of;
mod store;
mod segments;
mod helped;
mod replicating;
mod open_copy;
mod copies;
mod place;
mod spooled;
mod delivering;
mod node_facts;
mod from_nodes;
mod mds;
#[cfg(test)]
mod mds_tests;
mod judging;
mod columns;
mod download;
#[cfg(test)]
mod download_tests;
#[cfg(test)]
mod copy_tests;
#[cfg(test)]
mod turn_tests;
#[cfg(test)]
mod tests;

pub use batch::{BatchError, RecordColumns};
pub use columns::{PlacedRecord, download_schema, records_of};
pub use copies::{Copies, Copy, CopyError, ShownCopies, TakeOverError, take_over};
pub(crate) use delivering::Delivering;
pub use download::{Download, MAX_FOUND, MAX_PORTIONS, OfJob, Places, Portion, Wanted, holder_of};
pub(crate) use from_nodes::FromNodes;
pub use helped::HelpedPlace;
pub(crate) use helped::HelpedSegments;
pub use looked_up::LookedUp;
pub use mds::{Difference, Mds, MdsError, Rebuilt, Verified};
pub(crate) use node_facts::NodeFacts;
pub use place::{JobsPlace, JobsSettings, PlaceError};
pub use reads::{Question, ReadEntry, Reading};
pub use replicating::{Replicated, Replicating};
pub use segments::{SegmentsError, SegmentsPlace};
pub use skopos_store::jobs::spool::Sent;
pub use skopos_store::jobs::{Progress, RecordSum, SegmentFile, StoredRecord, replica};
pub(crate) use spooled::SpoolTaker;
pub use spooled::store_batch;
pub use store::{AckLevel, Awaiting, Jobs, JobsLimits, Piece};
pub use stored::{Lookup, Session, StoreError, Stored, Visit};
pub use turn::{StoreTurn, WaitingBytes};
