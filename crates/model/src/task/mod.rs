//! The report of one monitored task: its measurements, their methods and their completeness.
//!
//! Read in this order: a [`Resource`] is one field of a report and one name in a limit; a [`Reading`]
//! is its value with the method of the measurement; [`Limits`] are the most that a task may use; a
//! [`Summary`] is the whole report.

mod resource;
mod limits;
mod summary;
mod files;

pub use files::{FILES_VERSION, FileUse, Files, MAX_FILES_LISTED, NotSeen, PeerUse, ProcessFiles};
pub use limits::{Crossing, Limit, LimitError, Limits, amount, parse_bytes};
pub use resource::{Combine, RESOURCES, Resource, resource};
pub use summary::{
    Attached, Completeness, Ended, ExitType, Finding, Host, Identity, Job, LimitSet, MechanismUse,
    Nested, Overhead, Process, Rank, RankUse, Reading, SUMMARY_VERSION, Summary,
};
