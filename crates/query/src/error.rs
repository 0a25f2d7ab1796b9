use std::time::Duration;

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use skopos_eval::Position;
use thiserror::Error;

use crate::depth::{MAX_DEPTH, MAX_RELATIONS};
use crate::engine::MAX_SQL_BYTES;
use crate::functions;
use crate::prepared::MAX_PARAMETERS;
use crate::signature::mismatch;
use crate::tables::Tables;

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

/// The two dialects differ in one name: insights smooth with `ema`, which a set of rows cannot.
const EMA_IN_SQL: &str = "`ema` is for insights of an agent; in `skopos sql` use `avg(value)` over a \
     window, such as `time_bucket('10s', time)` of `samples`";

/// The message for an aggregate function inside another.
const NESTED: &str = "aggregate functions cannot be nested, such as `sum(rate(value))`";

fn place(at: Option<Position>) -> String {
    at.map_or_else(String::new, |at| format!("{at}: "))
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownName { what: "function", name, .. } if name.eq_ignore_ascii_case("ema") => {
                Some(EMA_IN_SQL.to_owned())
            }
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
            Self::Query { message } if message == NESTED => Some(
                "only insights of an agent nest them; in `skopos sql` use a subquery, such as SELECT \
                 sum(r) FROM (SELECT rate(value) AS r FROM samples GROUP BY topic)"
                    .to_owned(),
            ),
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

/// What the engine says, in this project's words where it is the user's to mend.
pub(crate) fn explained(error: DataFusionError, sql: &str, tables: &Tables) -> Error {
    let message = error.find_root().strip_backtrace();
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => return Error::Memory(error),
        DataFusionError::External(cause) => return Error::Query { message: told(&**cause) },
        DataFusionError::SchemaError(schema, _) => {
            if let SchemaError::FieldNotFound { field, valid_fields } = &**schema {
                let known = valid_fields.iter().map(|field| field.name.clone()).collect();
                return unknown("column", &field.name, known, sql);
            }
        }
        DataFusionError::Plan(text) => {
            if let Some(name) = between(text, "table '", "' not found") {
                let name = name.rsplit_once(".live.").map_or(name, |(_, table)| table);
                return unknown("table", name, tables.all_names(), sql);
            }
            if let Some(name) = between(text, "Invalid function '", "'") {
                let known = between(text, "Did you mean '", "'").into_iter();
                let known = known.chain(functions::NAMES).map(str::to_owned).collect();
                return unknown("function", name, known, sql);
            }
        }
        _ => {}
    }
    let message = message.lines().next().unwrap_or_default();
    if message.contains("Aggregate function calls cannot be nested") {
        return Error::Query { message: NESTED.to_owned() };
    }
    if let Some((function, message)) = mismatch(message) {
        return match place_of(function, sql) {
            Some(at) => Error::Syntax { at, message },
            None => Error::Query { message },
        };
    }
    let kinds = ["Error during planning: ", "Execution error: ", "Internal error: "];
    let message = kinds.iter().find_map(|kind| message.strip_prefix(kind)).unwrap_or(message);
    Error::Query { message: message.to_owned() }
}

/// An error of this project's own, with its causes.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// How alike two names must be, from 0 to 1, before one is suggested for the other.
const LIKENESS: f64 = 0.5;

fn unknown(what: &'static str, name: &str, known: Vec<String>, sql: &str) -> Error {
    let likeness = |other: &str| strsim::normalized_damerau_levenshtein(other, name);
    let nearest = known.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let nearest = nearest.filter(|other| likeness(other) >= LIKENESS);
    Error::UnknownName { at: place_of(name, sql), what, name: name.to_owned(), nearest }
}

/// Where a name stands first.
fn place_of(name: &str, sql: &str) -> Option<Position> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().ok()?;
    let is_it = |token: &&TokenWithSpan| match &token.token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(name),
        _ => false,
    };
    let start = tokens.iter().find(is_it)?.span.start;
    Some(Position { line: start.line, column: start.column })
}
