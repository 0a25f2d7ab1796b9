use std::time::Duration;

use datafusion::error::DataFusionError;
use skopos_eval::Position;
use thiserror::Error;

use crate::limits::{MAX_DEPTH, MAX_PARAMETERS, MAX_RELATIONS, MAX_SQL_BYTES};

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No SQL at all.
    #[error("{at}: {message}")]
    Syntax {
        /// Where it stops to be SQL.
        at: Position,
        /// What was expected and what was found.
        message: String,
    },
    /// A name that there is not.
    #[error("{}there is no {what} `{name}`", place(*at))]
    UnknownName {
        /// Where it stands, if it could be found.
        at: Option<Position>,
        /// `table`, `column` or `function`.
        what: &'static str,
        /// The name.
        name: String,
        /// The most alike that there is.
        nearest: Option<String>,
    },
    /// It is no question: it would change something.
    #[error("only questions are answered, and `{0}` is none")]
    NotAQuestion(String),
    /// It needs other values than it has.
    #[error("the statement has {wanted} parameters, and {given} values were given")]
    Parameters {
        /// How many it needs.
        wanted: usize,
        /// How many there are.
        given: usize,
    },
    /// Values for more than one answer, or for none.
    #[error("parameters take one row of values, and {0} were given")]
    ParameterRows(usize),
    /// A parameter that is none, or the first that cannot be.
    #[error("`{0}` cannot be a parameter here")]
    Parameter(String),
    /// The statement is longer than anybody writes.
    #[error("the statement has {0} bytes, the most is {MAX_SQL_BYTES}")]
    TooLong(usize),
    /// It nests more levels than a thread's stack has room for.
    #[error("the statement is nested too deeply: {MAX_DEPTH} levels are the most")]
    TooDeep,
    /// It reads more tables than anybody wants to see together.
    #[error(
        "the statement reads more than {MAX_RELATIONS} tables, those in each use of `WITH` counted"
    )]
    TooManyTables,
    /// It took longer than it may.
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    /// The answer has more rows than it may.
    #[error("the answer has more than {0} rows")]
    TooManyRows(usize),
    /// No threads to compute on.
    #[error("no threads can be started")]
    Threads(#[source] std::io::Error),
    /// It needs more memory than it may have.
    #[error("it needs more memory than it may have")]
    Memory(#[source] DataFusionError),
    /// What the planner or the execution says.
    #[error("{message}")]
    Query {
        /// In one line.
        message: String,
    },
}

fn place(at: Option<Position>) -> String {
    at.map_or_else(String::new, |at| format!("{at}: "))
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownName { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{nearest}`?"))
            }
            Self::UnknownName { what: "table", .. } => Some(
                "`SHOW TABLES` lists what there is; a topic is a table in double quotes".to_owned(),
            ),
            Self::TooManyRows(_) => {
                Some("say `LIMIT n`, bring rows together with GROUP BY, or allow more".to_owned())
            }
            Self::Memory(_) => {
                Some("ask for less time or fewer topics, or bring rows together earlier".to_owned())
            }
            Self::Deadline(_) => {
                Some("ask for less time or fewer topics, or allow more time".to_owned())
            }
            Self::TooDeep => Some(
                "say `x IN (a, b, …)` for many values of one column, and ask in several statements"
                    .to_owned(),
            ),
            Self::TooManyTables => {
                Some("select from `latest` or `samples`, which have all topics".to_owned())
            }
            Self::NotAQuestion(_) => {
                Some("begin with SELECT, WITH, EXPLAIN or SHOW TABLES".to_owned())
            }
            Self::Parameter(_) => Some(format!(
                "write them all as `?`, or all as `$1`, `$2` and so on; {MAX_PARAMETERS} at the most"
            )),
            Self::Parameters { .. } => {
                Some("prepare the statement and bind a value to each parameter".to_owned())
            }
            Self::ParameterRows(_)
            | Self::UnknownName { .. }
            | Self::Syntax { .. }
            | Self::TooLong(_)
            | Self::Threads(_)
            | Self::Query { .. } => None,
        }
    }

    /// Where in the statement it stands, if it is in one place.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Syntax { at, .. } => Some(*at),
            Self::UnknownName { at, .. } => *at,
            _ => None,
        }
    }
}
