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
mod limits;
mod error;
mod answer;
mod context;
mod engine;
mod prepared;
mod stream;
mod planner;
mod point;
mod doubles;
mod statement;
mod ast;
mod parameters;
mod depth;
mod split;
mod explain;
mod signature;
mod inputs;
mod pool;
mod pace;
mod runs;
mod tables;
mod functions;
mod operators;

pub use answer::{Answer, Way};
pub use context::Missing;
pub use datafusion::arrow;
pub use engine::Engine;
pub use error::Error;
pub use inputs::Inputs;
pub use limits::{Limits, MAX_PARAMETERS, MAX_SQL_BYTES};
pub use prepared::Prepared;
pub use skopos_eval::Position;
pub use source::{About, Asked, Described, Elsewhere, Node, Row, Source, Wanted, When};
pub use split::split;
pub use stream::Stream;
pub use tables::kept::kept;
pub use tables::{CATALOG, SCHEMA, is_table};
