//! The hub: what many nodes tell, and the doors through which it is asked.
//!
//! `uplink` is the other end: what this machine's publishers have, sent to whoever follows. `source`
//! is what the query engine reads: this machine's segments, and a mirror of every other node's.
//! `door` is the UNIX socket through which `skopos sql` asks.

mod uplink;
mod source;
mod door;

pub(crate) use door::{Door, ask, socket_path};
pub(crate) use source::HubSource;
pub(crate) use uplink::Uplink;
