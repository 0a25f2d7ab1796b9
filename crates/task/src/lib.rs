//! The task monitor: starts a task, measures what it uses, keeps it within limits, and says how well
//! each number was measured.
//!
//! Read in this order: [`Order`] says what to run and how; [`run`] does it; `launch` starts the task
//! without changing anything about it, and `attach` finds one that runs; `monitor` is the loop that waits for whatever happens;
//! `mechanism` has a file for each way to measure, of which [`choose`] takes those that are possible;
//! `seen` is what they have seen; `enforce` ends a task that exceeds a limit; `stop` stops with it; `report` makes the
//! [`Summary`](skopos_model::task::Summary) of it all, taking each number from the mechanism that
//! measures it best. [`import`] reads reports of other tools.
//!
//! # Invariants
//! - The task notices nothing: its streams, process group, terminal, signals, exit code and
//!   environment are those that it would have had.
//! - A monitor that dies leaves a task that runs on, neither stopped nor traced.
//! - No number without the method that measured it, and none that is made up.

// UNSAFE: fork, ptrace and waitid have no safe wrapper; each is called in `sys` alone.

mod sys;
mod proc;
mod family;
mod attach;
mod launch;
mod seen;
mod mechanism;
mod enforce;
mod stop;
mod monitor;
mod report;
mod host;
mod lacks;
pub mod import;

pub use attach::Unfit;
pub use host::rank;
pub use lacks::build_lacks;
pub use launch::unwatched;
pub use mechanism::choose::{Choice, MECHANISMS, choose};
pub use monitor::{Failed, Order, Outcome, run};
pub use report::job::join;
pub use report::page::page;
pub use report::series::{COLUMNS, Row};
pub use report::signals::signal;
pub use sys::die_of;
pub use sys::started::spare_the_monitor;
