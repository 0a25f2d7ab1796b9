//! A node in the live plane: it sends the facts of its machine, answers questions of other nodes, and mirrors
//! facts of other nodes. It needs neither the listeners of a hub nor a query engine.
//!
//! `args` holds the command-line options. [`role`] runs an agent with its part in the live plane and its
//! history: `skopos agent`. `membership` joins the plane, at once or when a hub answers. `uplink` sends
//! the changes that `sent` reads in the segments of this machine. `past` answers questions about the past from `local_history`,
//! which reads memory and disk, and `answer` packs the samples into batches. `mirror` writes facts of other
//! nodes into shared memory, and `forward` has them measured by their nodes. `jobs` delivers facts with the records of the
//! jobs that run here.

#![forbid(unsafe_code)]
// These macros panic on a closed pipe; `skopos_term` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(test)]
#[path = "../../sense/tests/it/ports.rs"]
mod ports;
mod args;
mod published;
mod answer;
mod local_history;
mod past;
mod forward;
mod mirror;
mod sent;
mod uplink;
mod renewing;
mod jobs;
mod membership;
pub mod role;

pub use answer::Answer;
pub use args::{LiveArgs, NodeArgs, default_identity_folder};
pub use renewing::Renewing;
