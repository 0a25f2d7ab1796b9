//! The query engine: SQL over live values and what is kept of them.
//!
//! ```text
//! text ─▶ cache ─▶ point read ─────────────▶ answer      no planner
//!            │  └─▶ logical plan ─▶ DataFusion ─▶ answer
//!            └ parse, see which of the two it is
//! ```
//!
//! # Invariants
//! - Both ways give the same answer; what a point read cannot answer goes to the planner.
//! - A statement asks and changes nothing.
//! - Every query has a deadline, a bound on its memory and one on its rows.
//! - Nothing outside of this crate knows DataFusion; answers are Arrow batches.
//!
//! Read in this order: [`Source`], then `statement`, `point`, `engine`, and `tables` for what there is
//! to select from.

#![forbid(unsafe_code)]

mod source;
mod asking;
mod error;
mod engine;
mod stream;
mod prepared;
mod catalog;
mod doubles;
mod point;
mod depth;
mod statement;
mod split;
mod signature;
mod inputs;
mod pool;
mod pace;
mod runs;
mod tables;
mod functions;
mod whole;

pub use asking::Missing;
pub use catalog::{CATALOG, SCHEMA};
pub use datafusion::arrow;
pub use engine::{Answer, Engine, Limits, MAX_SQL_BYTES, Way};
pub use error::Error;
pub use inputs::Inputs;
pub use prepared::{MAX_PARAMETERS, Prepared};
pub use skopos_eval::Position;
pub use source::{About, Asked, Described, Elsewhere, Node, Row, Source, Wanted, When};
pub use split::split;
pub use stream::Stream;
pub use tables::is_table;
pub use tables::kept::kept;
