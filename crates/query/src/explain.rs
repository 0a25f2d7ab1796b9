//! Errors of DataFusion in this project's words, where the user can mend them.

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use skopos_eval::Position;

use crate::error::Error;
use crate::functions;
use crate::signature::mismatch;
use crate::tables::Tables;

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
