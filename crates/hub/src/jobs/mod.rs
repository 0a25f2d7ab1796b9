//! The jobs of a site: the roles STS, LTS and MDS of a hub.
//!
//! [`Jobs`] has the intake of new records, the folder of sealed segments and the catalogue, and three threads: one commits
//! what producers send, one seals parts, one tells the catalogue about running jobs. `docs/internals/job-storage.md` has
//! the whole path of a record.
//!
//! Every call takes a caller, and asks the policy: a record is stored if the caller may store it, and a job is shown if
//! the caller may read it.
//!
//! Read in this order: `batch`, `store`, `threads`, `place`.

mod batch;
mod store;
mod threads;
mod place;

pub use batch::{BatchError, RecordColumns, check_schema};
pub use place::{JobsPlace, PlaceError};
pub use store::{AckLevel, Jobs, StoreError, Stored, Visit};
