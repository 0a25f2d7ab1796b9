//! The task monitor: starts a task, measures its usage, enforces its limits, and reports how well
//! each number was measured.
//!
//! Read in this order: [`Order`] holds the command and the options; [`run`] executes it; `launch`
//! starts the task without changing anything about it, and `attach` finds a running one; `monitor` is
//! the main loop; `mechanism` has a file for each way to measure, and [`choose`] selects the possible
//! ones; `ledger` collects their results; `enforce` ends a task that exceeds a limit; `stop` handles
//! job control; `report` makes the [`Summary`](skopos_model::task::Summary), which takes each number
//! from the mechanism that measures it best. [`import`] reads reports of other tools.
//!
//! # Invariants
//! - The task notices nothing: it has the streams, process group, terminal, signals, exit code and
//!   environment that it would have without a monitor.
//! - If the monitor dies, the task runs on, neither stopped nor traced.
//! - Each number carries the method that measured it. No number is made up.

// UNSAFE: fork, ptrace and waitid have no safe wrapper; each is called in `sys` alone.

mod bytes;

mod sys;
mod patient;
mod proc;
mod member;
mod membership;
mod baseline;
mod unseen;
mod ledger;
mod family;
mod order;
mod error;
mod end;
mod attach;
mod mechanism;
mod launch;
mod enforce;
mod stop;
mod host;
mod lacks;
mod report;
mod monitor;
pub mod import;

pub use error::{AttachError, RunError};
pub use host::rank;
pub use lacks::build_lacks;
pub use launch::exec_unmonitored;
pub use mechanism::choose::{Choice, MECHANISMS, choose, kernel_keeps_memory};
pub use monitor::{Outcome, run};
pub use order::Order;
pub use report::job::join;
pub use report::job_files::JoinedFiles;
pub use report::page::page;
pub use report::series::{COLUMNS, Row};
pub use report::signals::signal_name;
pub use sys::die_of;
pub use sys::started::{has_room, prepare_monitor};
