//! Messages between nodes.
//!
//! The **live plane** carries the changes of each node to the programs that follow it: [`Batch`]es over
//! Zenoh, numbered by each publisher. It is lossy by contract: a follower that misses a number counts
//! the gap and requests a snapshot.
//!
//! # Invariants
//! - Each message is checked when it arrives. A damaged one is counted, and is never fatal.
//! - A reader reserves no more memory for a message than its length, times a constant.
//! - Where others than the own user reach a session, each message proves its maker, and a message that does not is
//!   counted and dropped: a node cannot publish, answer or claim a name for another one.
//! - A slow subscriber costs a publisher nothing, and other subscribers nothing.
//! - Incomplete data never passes for complete data: each part of a snapshot carries the number of parts,
//!   an incomplete snapshot is discarded, and a mirror knows from which time it has each sample of a
//!   vertex.
//!
//! Read in this order: [`Batch`], [`Mirror`], [`Plane`] for publishers, [`Follower`] and [`Site`] for
//! followers, [`Question`] for requests to one node, [`Delivery`] for records of jobs.

#![forbid(unsafe_code)]

mod error;
mod bytes;
mod batch;
mod keys;
mod drops;
mod interest;
mod watch;
mod packed;
mod recent;
mod completeness;
mod vertices;
mod mirror;
mod trust;
mod meeting;
mod config;
mod places;
mod plane;
mod clock;
mod maker;
mod site;
mod arrived;
mod inbox;
mod snapshot;
mod requested;
mod intake;
mod follower;
mod history;
mod renewal;
mod delivery;

pub use batch::{Batch, Checked, Content, Description, IndexedSample, MAX_BATCH_BYTES};
pub use config::{PlaneConfig, RUNTIME};
pub use delivery::{
    Asker, Delivered, Delivery, DeliveryResponder, JobsOfNode, MAX_DELIVERY_BYTES,
    MAX_FURTHER_JOBS, MAX_JOBS_OF_NODE, Taker,
};
pub use drops::DropCounter;
pub use error::Error;
pub use follower::{Follower, Refresher};
pub use history::{Extent, HistoryAnswer, HistoryResponder, Question};
pub use interest::Interest;
pub use mirror::{BatchOutcome, Mirror};
pub use plane::{Outlet, Plane, Responder};
pub use recent::Recent;
pub use renewal::{Issuer, RenewalResponder};
pub use site::{FailedMessages, Node, NodeState, NodeWatcher, Site};
pub use trust::{Authority, Identity, TicketSigner, new_key, possession};
pub use vertices::Vertex;
pub use watch::MirrorWatcher;
