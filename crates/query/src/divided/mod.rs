//! Statements that several hubs answer together. `datafusion-distributed` sends the first step of an aggregation to other
//! hubs, each with some of the pieces of a table; this hub does the rest.
//!
//! # Invariants
//! - The hub that was asked makes the pieces, so it alone decides what the caller may read. A piece names what to read,
//!   and its reader takes no path and no address from it.
//! - A plan of another hub is data from the network: it reads pieces and computes, see [`check`], and a worker has neither
//!   files nor connections for anything else.
//! - The answer is that of one hub. If a hub fails, the statement runs again here.
//!
//! Read in this order: `pieces`, `exec`, `codec`, `plan`, `worker`, `run`.

mod pieces;
mod exec;
mod codec;
mod plan;
mod worker;
mod run;

pub use pieces::{HubChannel, Hubs, Pieces};
pub use worker::Worker;

pub(crate) use codec::PieceCodec;
pub(crate) use exec::PiecesExec;
pub(crate) use plan::reads_pieces;
pub(crate) use run::{Attempt, Dividing};
pub(crate) use worker::worker;
