//! The query engine: SQL over live values and their history.
//!
//! ```text
//! text ─▶ cache ─▶ point read ─────────────▶ answer      no planner
//!            │  └─▶ logical plan ─▶ DataFusion ─▶ answer
//!            └ parse, decide between the two
//! ```
//!
//! # Invariants
//! - Point reads and plans give the same answer; the planner answers what a point read cannot.
//! - A statement changes nothing.
//! - Every query has a deadline, and a bound on its memory and on its rows.
//! - The engine knows the tables of other crates by the trait [`Table`] alone, and measurements by the trait
//!   [`Source`].
//! - No other crate knows DataFusion; answers are Arrow batches.
//!
//! # Example
//! ```
//! # use std::{ops::RangeInclusive, sync::Arc};
//! # use skopos_model::Timestamp;
//! # use skopos_query::{Described, Engine, Error, Node, Registry, Row, Source, Wanted};
//! # #[derive(Debug)] struct Empty;
//! # impl Source for Empty {
//! #     fn now(&self) -> Timestamp { Timestamp::from_nanos(0) }
//! #     fn latest(&self, _: &Wanted, _: &mut dyn FnMut(&Row<'_>)) {}
//! #     fn samples(&self, _: &Wanted, _: RangeInclusive<Timestamp>, _: &mut dyn FnMut(&Row<'_>)) {}
//! #     fn topics(&self, _: &Wanted, _: &mut dyn FnMut(&Described<'_>)) {}
//! #     fn nodes(&self) -> Vec<Node> { Vec::new() }
//! # }
//! # fn main() -> Result<(), Error> {
//! let mut registry = Registry::new(Arc::new(Empty));
//! // registry.register(MyTable::new())?;
//! let engine = Engine::new(registry)?;
//! use skopos_access::Caller;
//! let answer = engine.point(&Caller::Owner, "SELECT count(*) FROM latest").expect("a point read");
//! assert_eq!(answer.rows(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Read in this order: [`Source`], [`Table`] and [`Registry`]; `tables` for the tables of this crate; then
//! [`Engine`], `planner`, `statement` and `point`.

#![forbid(unsafe_code)]

mod source;
mod table;
mod column;
mod scan;
mod rows;
mod topic_filter;
mod divided;
mod registry;
mod tables;
mod engine;
mod answer;
mod limits;
mod error;
mod prepared;
mod stream;
mod inputs;
mod planner;
mod admission;
mod cache;
mod catalog;
mod plain_names;
mod precedence;
mod statement;
mod ast;
mod parameters;
mod depth;
mod width;
mod point;
mod functions;
mod operators;
mod numbers;
mod lists;
mod runs;
mod yielding;
mod pool;
mod context;
mod explain;
mod signature;
mod split;
mod opaque;

pub use answer::{Answer, Way};
pub use catalog::{CATALOG, SCHEMA};
pub use column::Column;
pub use context::Missing;
pub use datafusion::arrow;
pub use divided::{HubChannel, Hubs, Pieces, Worker};
pub use engine::{Engine, HeldBytes};
pub use error::Error;
pub use inputs::Inputs;
pub use limits::{Limits, MAX_PARAMETERS, MAX_SQL_BYTES};
pub use prepared::Prepared;
pub use registry::Registry;
pub use rows::{BoxError, Rows};
pub use scan::{Literal, Scan};
pub use skopos_eval::Position;
pub use source::{
    Described, LatestReader, Node, RemoteAnswer, RemoteSamples, Row, Source, Wanted, When,
};
pub use split::split;
pub use stream::Stream;
pub use table::{Fingerprint, Table};
pub use tables::{SampleReader, latest_columns, latest_samples};
pub use topic_filter::TopicFilter;
