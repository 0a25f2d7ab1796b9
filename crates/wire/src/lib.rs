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
//! - What is half is not taken for the whole: a snapshot counts when all of its parts have come, and a
//!   mirror knows from when on it has each sample of a vertex.
//!
//! Read in this order: [`Batch`], [`Mirror`], [`Plane`] for who sends, [`Follower`] and [`Site`] for who
//! follows, [`Question`] for what is asked of one node.

#![forbid(unsafe_code)]

mod error;
mod bytes;
mod batch;
mod watch;
mod recent;
mod whole;
mod mirror;
mod config;
mod plane;
mod clock;
mod site;
mod follower;
mod history;

pub use batch::{Batch, Checked, Content, Description, MAX_BATCH_BYTES, Told};
pub use config::PlaneConfig;
pub use error::Error;
pub use follower::{Follower, Refresher};
pub use history::{Answered, Answering, Question};
pub use mirror::{Mirror, Taken, Vertex};
pub use plane::{Answers, Outlet, Plane};
pub use recent::Recent;
pub use site::{Node, Site, State};
pub use watch::{Interest, Watcher};
