//! Access: who asks, and what they may do.
//!
//! Every listener turns its peer into a [`Caller`], and every call into the engine, the stores and the live plane takes
//! one. [`may`] is the one policy function: it alone decides.
//!
//! Read in this order: `name` for the names in certificates, `caller`, `policy`, `loopback`.

#![forbid(unsafe_code)]

mod caller;
mod name;
mod policy;
mod loopback;

pub use caller::{Caller, Invitation, Role, User};
pub use loopback::is_loopback;
pub use name::{Names, ParseError, is_segment};
pub use policy::{Action, Denied, may};
