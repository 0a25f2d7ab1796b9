//! Point reads: statements that are answered from memory, without the planner.
//!
//! - the paper's resource query, `SELECT MAX(timestamp), metric FROM t UNION …`, of any length (`tuples`);
//! - `SELECT columns FROM latest WHERE topic =`, `IN` or `LIKE` a text (`rows`);
//! - aggregates over `latest`, with the evaluator of the agents' SQL insights (`aggregates`).
//!
//! The answer equals the planner's, to the types and names of the columns. A statement whose answer would
//! differ is left to the planner.

mod tuples;
mod rows;
mod aggregates;
mod doubles;
mod select;

use datafusion::arrow::array::RecordBatch;
use datafusion::sql::parser::Statement as Parsed;

use self::aggregates::Aggregates;
use self::rows::Rows;
use self::select::plain_query;
use self::tuples::Tuples;
use crate::catalog::Catalog;
use crate::inputs::Inputs;
use crate::source::{Source, Wanted};

/// The most topics of a read that any thread may do: it takes some 20 µs, less than to wake another thread.
const MAX_TOPICS_AT_ONCE: usize = 128;

/// A statement that is a point read.
#[derive(Debug)]
pub(crate) enum Point {
    Tuples(Tuples),
    Rows(Rows),
    Aggregates(Aggregates),
}

impl Point {
    /// Returns the point read that a statement is; `None` if only the planner can answer it.
    pub(crate) fn compile(sql: &str, statement: &Parsed, catalog: &Catalog) -> Option<Self> {
        let query = plain_query(statement)?;
        if let Some(tuples) = Tuples::compile(&query.body, catalog) {
            return Some(Self::Tuples(tuples));
        }
        if let Some(rows) = Rows::compile(&query.body) {
            return Some(Self::Rows(rows));
        }
        Aggregates::compile(sql, &query.body).map(Self::Aggregates)
    }

    /// Returns the answer; `None` if the values are such that only the planner can find it.
    pub(crate) fn read(&self, source: &dyn Source) -> Option<RecordBatch> {
        match self {
            Self::Tuples(tuples) => tuples.read(source),
            Self::Rows(rows) => rows.read(source),
            Self::Aggregates(aggregates) => aggregates.read(source),
        }
    }

    /// Returns true if it reads so few topics that it delays nobody.
    pub(crate) fn is_small(&self) -> bool {
        let topics = match self {
            Self::Tuples(tuples) => tuples.topics(),
            Self::Rows(rows) => match rows.wanted() {
                Wanted::These(topics) => topics.len(),
                _ => return false,
            },
            Self::Aggregates(_) => return false,
        };
        topics <= MAX_TOPICS_AT_ONCE
    }

    /// Returns true if it reads all topics.
    pub(crate) fn is_wide(&self) -> bool {
        let wanted = match self {
            Self::Tuples(_) => return false,
            Self::Rows(rows) => rows.wanted(),
            Self::Aggregates(aggregates) => aggregates.wanted(),
        };
        match wanted {
            Wanted::All => true,
            Wanted::Starting(starts) => starts.iter().any(String::is_empty),
            Wanted::These(_) => false,
        }
    }

    /// Returns the inputs of the statement.
    pub(crate) fn inputs(&self) -> Inputs {
        match self {
            Self::Tuples(tuples) => tuples.inputs(),
            Self::Rows(rows) => rows.inputs(),
            Self::Aggregates(aggregates) => aggregates.inputs(),
        }
    }
}
