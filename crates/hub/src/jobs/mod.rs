//! The jobs of a site: the roles STS, LTS and MDS of a hub.
//!
//! [`Jobs`] has the intake of new records, the folder of sealed segments and the catalogue, and two threads: one commits
//! what producers send; the other seals parts and tells the catalogue about running jobs. `docs/internals/job-storage.md` has
//! the whole path of a record.
//!
//! Every call takes a caller, and asks the policy: a record is stored if the caller may store it, and a job is shown if
//! the caller may read it.
//!
//! Read in this order: `batch`, `signal`, `shared`, `threads`, `store`, `place`, `judging`.

mod batch;
mod signal;
mod shared;
mod threads;
mod store;
mod place;
mod judging;
#[cfg(test)]
mod tests;

pub use batch::{BatchError, RecordColumns};
pub use place::{JobsPlace, PlaceError};
pub use store::{AckLevel, Jobs, Piece, StoreError, Stored, Visit};
