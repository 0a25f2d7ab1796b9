//! The listeners of a hub: a UNIX socket for programs of its user, and HTTP and Arrow Flight SQL for other clients.
//!
//! Read in this order: [`Listeners`] opens them. `unix` is the UNIX socket, with a thread for each connection. `listen`
//! is the common part of the two TCP listeners: address, admission, number of connections, and shutdown. `http` and
//! `flight` answer, with a file for each kind of answer, and `haproxy` answers its agent checks. `jobs` stores records that come by the UNIX socket.
//! [`fetch`] is the client that downloads jobs; it shares the messages in [`downloads`] with the listener.

#![forbid(unsafe_code)]
// They panic when the reader is gone; `skopos_term` has replacements that do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod shares;
pub mod downloads;
pub mod fetch;
mod jobs;
mod unix;
mod listen;
mod http;
mod haproxy;
mod flight;
mod listeners;

pub use listen::ListenArgs;
pub use listeners::{Listeners, Served};
