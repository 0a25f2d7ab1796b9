//! The dialogue of a verb with its user: the options that all verbs share, output, failures, and the
//! resolution of typed topics.
//!
//! Read in this order: [`Global`] holds the options of every verb; [`Out`] prints data to standard output
//! in one [`Style`]; a verb that cannot do its work ends with a [`Failure`]. [`mod@format`] shows numbers and
//! times, [`reading`] shows one sample of one topic, [`find`] resolves what a user typed to vertices, and
//! [`state`] names the folders that outlive a process. [`usage`] prints help and wrong usage.

#![forbid(unsafe_code)]
// These macros panic on a closed pipe; `out` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod options;
mod out;
mod failure;
pub mod format;
pub mod reading;
pub mod find;
pub mod state;
pub mod usage;

pub use failure::{EXIT_FAILURE, EXIT_NO, Failure};
pub use options::Global;
pub use out::{Out, Style, tell};
