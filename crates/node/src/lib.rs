//! A node in the live plane: it sends what its machine publishes, answers the questions of others, and
//! mirrors what other nodes publish. It needs neither the listeners of a hub nor a query engine.
//!
//! `args` holds what a user may type. [`role`] runs an agent with its part in the live plane and its
//! history: `skopos agent`. `joined` joins the plane, at once or when a hub is there. `uplink` reads the
//! segments of this machine and sends changes; `past` answers questions about the past, from what `kept`
//! finds in memory and on disk; `mirror` writes facts of other nodes into shared memory of this one, and
//! `forward` has them measured now.

#![forbid(unsafe_code)]
// They panic when the reader is gone; `skopos_term` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod published;
mod kept;
mod past;
mod forward;
mod mirror;
mod uplink;
mod joined;
pub mod role;

pub use args::{LiveArgs, NodeArgs};
pub use joined::{Joined, News};
pub use past::Answer;
