//! Errors of the engine: what is wrong with a statement or a table, and what would be right.

use std::time::Duration;

use datafusion::error::DataFusionError;
use skopos_eval::Position;
use thiserror::Error;

use crate::limits::{MAX_DEPTH, MAX_PARAMETERS, MAX_RELATIONS, MAX_SQL_BYTES, MEMORY_BYTES};

/// The reason why a statement has no answer, or why a table cannot be registered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The policy refuses the caller.
    #[error(transparent)]
    Denied(#[from] skopos_access::Denied),
    /// The text is not SQL.
    #[error("{at}: {message}")]
    Syntax {
        /// The position of the first mistake.
        at: Position,
        /// The expected and the actual text.
        message: String,
    },
    /// A name does not exist.
    #[error("{}there is no {what} `{name}`", place(*at))]
    UnknownName {
        /// The position of the name, if it was found.
        at: Option<Position>,
        /// `table`, `column` or `function`.
        what: &'static str,
        /// The name.
        name: String,
        /// The most similar name that exists.
        nearest: Option<String>,
    },
    /// The statement would change something.
    #[error("`{0}` is not a query, and only queries are answered")]
    NotAQuery(String),
    /// The statement has another number of parameters than of values.
    #[error("the statement has {wanted} parameters, and {given} values were given")]
    Parameters {
        /// Number of parameters.
        wanted: usize,
        /// Number of values.
        given: usize,
    },
    /// The values are not one row.
    #[error("parameters take one row of values, and {0} rows were given")]
    ParameterRows(usize),
    /// The first parameter that is wrong: of another form, left out, or one too many.
    #[error("`{0}` cannot be a parameter here")]
    Parameter(String),
    /// The statement is too long.
    #[error("the statement has {0} bytes; the maximum is {MAX_SQL_BYTES}")]
    TooLong(usize),
    /// The statement has more levels than a thread's stack has room for.
    #[error("the statement is nested too deeply: {MAX_DEPTH} levels are the most")]
    TooDeep,
    /// The statement reads too many tables.
    #[error(
        "the statement reads more than {MAX_RELATIONS} tables; each use of a `WITH` counts its tables \
         again"
    )]
    TooManyTables,
    /// The statement has too many columns, windows or grouping sets.
    #[error("the statement has more than {most} {what}")]
    TooWide {
        /// The parts of which there are too many.
        what: &'static str,
        /// The largest number that is allowed.
        most: usize,
    },
    /// Two tables have one name.
    #[error("there is a table `{0}` already; a table needs a name of its own")]
    TableExists(String),
    /// A table cannot be registered.
    #[error("the table `{name}` cannot be registered: {problem}")]
    Table {
        /// The name of the table.
        name: String,
        /// The problem, and what would be right.
        problem: String,
    },
    /// The deadline has passed.
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    /// The answer has too many rows.
    #[error("the answer has more than {0} rows")]
    TooManyRows(usize),
    /// The system has no room for the threads of the engine.
    #[error("the threads of the query engine cannot be started")]
    Threads(#[source] std::io::Error),
    /// All queries together need too much memory.
    #[error("the query needs more memory than the {} MiB that all queries share", MEMORY_BYTES >> 20)]
    Memory(#[source] DataFusionError),
    /// Too many statements run, and too many wait for them.
    #[error("too many statements run at one time")]
    Busy,
    /// Another error of planning or of execution.
    #[error("{message}")]
    Query {
        /// The error in one line.
        message: String,
    },
}

/// The two dialects differ in one name: insights smooth with `ema`, which a set of rows cannot.
const EMA_IN_SQL: &str = "`ema` is for insights of an agent; in `skopos sql` use `avg(value)` over a \
     window, such as `time_bucket('10s', time)` of `samples`";

/// The message for an aggregate function inside another.
pub(crate) const NESTED: &str = "aggregate functions cannot be nested, such as `sum(rate(value))`";

fn place(at: Option<Position>) -> String {
    at.map_or_else(String::new, |at| format!("{at}: "))
}

impl Error {
    /// Returns what the user can do.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Denied(denied) if denied.is_stranger => "show a token or a certificate",
            Self::Denied(_) => "an administrator can give you another role",
            Self::UnknownName { what: "function", name, .. }
                if name.eq_ignore_ascii_case("ema") =>
            {
                EMA_IN_SQL
            }
            Self::Query { message } if message == NESTED => {
                "only insights of an agent nest them; in `skopos sql` use a subquery, such as SELECT \
                 sum(r) FROM (SELECT rate(value) AS r FROM samples GROUP BY topic)"
            }
            Self::UnknownName { nearest: Some(nearest), .. } => {
                return Some(format!("did you mean `{nearest}`?"));
            }
            Self::Parameter(_) => {
                return Some(format!(
                    "write all of them as `?`, or all as `$1`, `$2` and so on; {MAX_PARAMETERS} are \
                     the most"
                ));
            }
            Self::UnknownName { what: "table", .. } => {
                "`SHOW TABLES` lists the tables; a topic is a table in double quotes"
            }
            Self::Busy => "try again in a moment",
            Self::TooManyRows(_) => "add `LIMIT n`, aggregate with GROUP BY, or allow more rows",
            Self::Memory(_) => "ask for less time or fewer topics, or aggregate in a subquery",
            Self::Deadline(_) => "ask for less time or fewer topics, or allow more time",
            Self::TooLong(_) => "write `x IN (a, b, …)` or `LIKE`, or split the statement",
            Self::TooDeep => {
                "write `x IN (a, b, …)` for many values of one column, or split the statement"
            }
            Self::TooWide { .. } => "select what you need, or split the statement",
            Self::TooManyTables => "select from `latest` or `samples`, which have all topics",
            Self::NotAQuery(_) => "begin with SELECT, WITH, EXPLAIN or SHOW TABLES",
            Self::Parameters { .. } => "prepare the statement and bind a value to each parameter",
            Self::ParameterRows(_) => "run the statement once for each row",
            Self::TableExists(_)
            | Self::Table { .. }
            | Self::UnknownName { .. }
            | Self::Syntax { .. }
            | Self::Threads(_)
            | Self::Query { .. } => return None,
        };
        Some(hint.to_owned())
    }

    /// Returns the position in the statement that the error is about.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Syntax { at, .. } => Some(*at),
            Self::UnknownName { at, .. } => *at,
            _ => None,
        }
    }
}
