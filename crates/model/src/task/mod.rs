//! A monitored task: its measurements, their methods and their accuracy.
//!
//! Read in this order: a [`Resource`] is a field of a report and a name in a limit; a [`Reading`]
//! is its value with the method of measurement; [`Limits`] bound the usage of a task; a [`Summary`]
//! is the whole report.

mod resource;
mod limits;
mod summary;
mod files;
mod task_files;

pub use files::{FILES_VERSION, FileUse, Files, MAX_FILES_LISTED, NotSeen, PeerUse, ProcessFiles};
pub use limits::{Crossing, Limit, LimitError, Limits, amount, parse_bytes};
pub use resource::{Combine, RESOURCES, Resource, resource};
pub use summary::{
    Attached, Completeness, Ended, ExitType, Finding, Host, Identity, Job, LimitSet, MechanismUse,
    Missing, Nested, Overhead, Process, Rank, RankUse, Reading, SUMMARY_VERSION, Summary,
};
pub use task_files::{FilesError, MAX_FILE_ROWS, TaskFiles};
