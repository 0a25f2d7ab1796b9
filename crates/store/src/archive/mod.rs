//! The archive: one SQLite file with the reports of many tasks.
//!
//! Read in this order: `schema` has the tables and their migrations; `file` opens an archive; `document` reads a
//! report; [`Conditions`] select tasks; `rows` has the reports as rows, and `files` the usage of files; `queries` has
//! statistics, and the export; `tasks` reads everything that is known about each task; `import` adds reports.
//!
//! The file is in write-ahead mode: readers and one writer do not wait for each other; a second writer
//! waits. With `synchronous=NORMAL` imported reports survive the end of any process at any time. A loss
//! of power may remove the last batches, each completely, and never damages the file.

mod error;
mod schema;
mod file;
mod document;
mod condition;
mod rows;
mod files;
mod queries;
mod tasks;
mod import;

pub use condition::{ConditionError, Conditions, FIELDS};
pub use error::Error;
pub use file::Archive;
pub use files::TaskWithFiles;
pub use import::{ForeignReader, ImportSummary, Refusal};
pub use queries::{Class, Keeper, Records, Usage};
pub use rows::{Cell, Field, Filter};
pub use tasks::{ArchivedTask, DamagedTask};
