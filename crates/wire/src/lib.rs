//! What crosses the network.
//!
//! The **live plane** carries changes, for whoever wants to know what is now: [`Batch`]es, numbered by
//! each publisher, over Zenoh. It is lossy by contract: who misses a number counts it and asks for a
//! snapshot.
//!
//! # Invariants
//! - A message is checked when it comes in; what is damaged is counted and never fatal.
//! - A message makes nobody reserve more memory than it is long, times a constant.
//! - A subscriber that stands still costs a publisher nothing, and other subscribers nothing.
//!
//! Read in this order: [`Batch`], [`Mirror`], [`Plane`] for who sends, [`Site`] for who follows.

#![forbid(unsafe_code)]

mod error;
mod bytes;
mod batch;
mod mirror;
mod plane;
mod site;

pub use batch::{Batch, Checked, Content, Description, MAX_BATCH_BYTES, Told};
pub use error::Error;
pub use mirror::{Mirror, Taken, Vertex};
pub use plane::{Outlet, Plane, PlaneConfig};
pub use site::{Follower, Node, Site, State};
