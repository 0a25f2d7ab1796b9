//! The interface of a table: how another crate offers rows to the engine.
//!
//! The engine knows a table by this trait alone. A crate implements [`Table`], and the program that owns
//! the engine registers it in one line; see [`Registry`](crate::Registry).
//!
//! ```
//! use std::sync::Arc;
//! use skopos_query::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
//! use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
//!
//! #[derive(Debug)]
//! struct Queue { columns: Vec<Column>, lengths: Vec<(String, i64)> }
//!
//! impl Table for Queue {
//!     fn name(&self) -> &str { "queue" }
//!     fn help(&self) -> &str { "Number of jobs that wait, by partition" }
//!     fn columns(&self) -> &[Column] { &self.columns }
//!
//!     fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
//!         let wanted = scan.texts("partition");
//!         let rows = self.lengths.iter().filter(|(name, _)| {
//!             wanted.as_ref().is_none_or(|wanted| wanted.contains(&name.as_str()))
//!         });
//!         let (names, lengths): (Vec<&str>, Vec<i64>) =
//!             rows.map(|(name, length)| (name.as_str(), *length)).unzip();
//!         let all: [ArrayRef; 2] =
//!             [Arc::new(StringArray::from(names)), Arc::new(Int64Array::from(lengths))];
//!         Ok(Rows::of(scan.select(&all)?))
//!     }
//!
//!     fn fingerprint(&self, _scan: &Scan) -> Fingerprint { Fingerprint::Version(0) }
//! }
//!
//! let columns = vec![
//!     Column::text("partition", "Name of the partition"),
//!     Column::integer("waiting", "Number of jobs that wait"),
//! ];
//! let queue = Queue { columns, lengths: vec![("gpu".to_owned(), 3)] };
//! assert_eq!(queue.columns()[1].name(), "waiting");
//! ```

use std::fmt;

use crate::column::Column;
use crate::divided::Pieces;
use crate::rows::{BoxError, Rows};
use crate::scan::Scan;
use crate::topic_filter::TopicFilter;

/// A table that the engine can select from.
///
/// Any number of queries call the methods at the same time. `scan` runs on the engine's own threads and
/// may read files; the other methods must return at once.
pub trait Table: fmt::Debug + Send + Sync + 'static {
    /// Returns the name in SQL: a lower-case letter, then lower-case letters, digits and `_`.
    fn name(&self) -> &str;

    /// Returns one sentence that says what a row is.
    fn help(&self) -> &str;

    /// Returns the columns, which never change.
    fn columns(&self) -> &[Column];

    /// Returns the rows that `scan` asks for, with the columns that it asks for.
    ///
    /// The engine applies every condition of the statement again, except those on [`exact`](Self::exact)
    /// columns, so a table may return more rows than asked for, and never fewer.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError>;

    /// Returns the columns for which every scan applies [`Scan::equals`] and [`Scan::times`] exactly: it returns no row with
    /// another value or `NULL` there. Conditions that these two tell wholly are not applied again, so the
    /// [limit](Scan::limit) of a statement with no other conditions reaches the scan.
    fn exact(&self) -> &[&str] {
        &[]
    }

    /// Returns the column by which every scan sorts its rows, the greatest value first and `NULL` last; `None` if it does not
    /// sort them. A statement with `ORDER BY column DESC NULLS LAST` and a `LIMIT` then reads no more rows than it needs.
    fn latest_first(&self) -> Option<&str> {
        None
    }

    /// Returns the table as one in pieces, which several hubs can read together; `None` if only this hub reads it. Its
    /// [`scan`](Self::scan) is not called then.
    fn in_pieces(&self) -> Option<&dyn Pieces> {
        None
    }

    /// Returns a fingerprint of the rows that `scan` asks for. For one scan it is always of the same
    /// variant.
    fn fingerprint(&self, scan: &Scan) -> Fingerprint;
}

/// A fingerprint of the rows of a scan. A query that watches for changes runs again when it differs.
#[derive(Clone, Debug)]
pub enum Fingerprint {
    /// The rows change when a sample of one of these topics arrives.
    Samples(TopicFilter),
    /// The rows are the same while this number is the same. The engine compares it when samples arrive,
    /// and at least once a second.
    Version(u64),
    /// The rows may change at any time, so the query runs again once a second.
    Unknown,
}
