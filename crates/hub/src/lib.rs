//! The hub of a site: what many nodes publish, in one live view that is asked in SQL.
//!
//! Read in this order: [`Hub`] puts the parts together, [`Inside`] is what its listeners ask. `source` is
//! what the query engine reads: [`Local`], the segments of this machine, and a mirror of every other node.
//! `past` asks nodes for samples that only they have, [`read`] has nodes measure values that are too old.
//! [`Standing`] is a question that is answered again whenever its inputs change, [`Pulse`] wakes it.
//! `insights` computes what only a hub can; `remote_write` sends latest values to a store of somebody
//! else's. [`counts`] counts what is asked, `facts` publishes the counts. [`client`] asks a hub through its
//! UNIX socket, in the [`messages`] that both sides share. The listeners themselves are in `skopos-serve`.

#![forbid(unsafe_code)]
// They panic when the reader is gone; `skopos_term` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod config;
pub mod counts;
mod local;
mod pulse;
mod standing;
pub mod pieces;
mod source;
pub mod tables;
mod past;
pub mod topics;
pub mod read;
mod insights;
pub mod prometheus;
mod remote_write;
mod facts;
mod inside;
mod hub;
pub mod messages;
pub mod client;

pub use hub::Hub;
pub use inside::Inside;
pub use local::{Local, insight_info};
pub use pulse::Pulse;
pub use source::HubSource;
pub use standing::{Change, MAX_ROWS, Standing, any};
