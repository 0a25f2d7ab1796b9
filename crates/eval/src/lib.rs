//! The subset of SQL that needs no engine: a statement over `latest` or over the window of one topic is
//! parsed once, and its value is then updated input by input.
//!
//! ```
//! use skopos_eval::{Evaluator, Statement};
//! use skopos_model::{Kind, Timestamp, Topic, Unit};
//!
//! let sql = "SELECT sum(value) FROM latest WHERE topic LIKE '%/fs/nvme%/available_bytes'";
//! let mut space = Evaluator::new(&Statement::new(sql)?);
//! let now = Timestamp::from_nanos(0);
//! for (key, disk) in [(1, "nvme0n1p1"), (2, "nvme1n1p1"), (3, "sda1")] {
//!     let topic = Topic::new(&format!("n01/fs/{disk}/available_bytes"))?;
//!     space.row_added(key, &topic, Unit::BYTES, Kind::Gauge);
//!     space.row_changed(key, now, Some(1e9));
//! }
//! assert_eq!(space.value(0, now), Ok(2e9));
//! assert_eq!(space.unit(0), Ok(Some(Unit::BYTES)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - The compiler refuses SQL outside of the subset, with its position and a hint.
//! - A result equals the result of reading all rows anew, to the last bit: sums are exact, in any order
//!   of changes.
//! - Once a row is known, its changes allocate nothing.
//! - A result without a value is [`Unknown`] with a reason; results are never NaN or infinite.
//!
//! Read in this order: [`Statement`], [`Evaluator`], then `parse`, which turns text into a `Program`
//! of `Expression`s, `aggregate`, the state of one aggregate, `latest` and `window`, the rows.

#![forbid(unsafe_code)]

// Small functions on the path of a change are `#[inline]`: the graph calls them per sample, and release
// builds have no link-time optimisation.

mod limits;
mod error;
mod unknown;
mod statement;
mod evaluator;
mod program;
mod expression;
mod like;
mod parse;
mod topics;
mod units;
mod aggregate;
mod latest;
mod window;

pub use aggregate::Exact;
pub use error::{Error, Position};
pub use evaluator::Evaluator;
pub use like::Like;
pub use limits::{MAX_ROWS, MAX_SQL_BYTES, MAX_WINDOW_SAMPLES};
pub use statement::{Row, Statement, Table};
pub use unknown::Unknown;
