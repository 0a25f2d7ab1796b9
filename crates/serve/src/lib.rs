//! The listeners of a hub: the UNIX socket for programs of its user, HTTP and Arrow Flight SQL for everybody
//! else.
//!
//! Read in this order: [`Listeners`] opens them. `unix` is the UNIX socket: a thread a connection. `listen`
//! is what the two TCP listeners share: the address, who is let in, how many at one time, and how they
//! close. `http` and `flight` answer, a file an answer.

#![forbid(unsafe_code)]
// They panic when the reader is gone; `skopos_term` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod unix;
mod listen;
mod http;
mod flight;
mod listeners;

pub use listen::DoorArgs;
pub use listeners::{Listeners, Served};
