//! The archive: one SQLite file with the reports of many tasks.
//!
//! Read in this order: `schema` has the tables and their migrations; `file` opens an archive; `import`
//! adds reports; [`Conditions`] select tasks; `queries` has statistics about them, and `rows` the reports
//! as they are; `files` has the usage of
//! files beside a report.
//!
//! The file is in write-ahead mode: readers and one writer do not wait for each other; a second writer
//! waits. With `synchronous=NORMAL` imported reports survive the end of any process at any time. A loss
//! of power may remove the last batches, each completely, and never damages the file.

mod error;
mod schema;
mod file;
mod condition;
mod queries;
mod rows;
mod files;
mod import;

pub use condition::{ConditionError, Conditions, FIELDS};
pub use error::Error;
pub use file::Archive;
pub use files::TaskWithFiles;
pub use import::{ForeignReader, ImportSummary, Refusal};
pub use queries::{Class, Keeper, Records, Usage};
pub use rows::{Cell, Field, Filter};
