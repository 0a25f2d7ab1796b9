//! Explains errors of DataFusion in this project's words, where the user can mend them.

use std::iter;

use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use skopos_access::Denied;
use skopos_eval::Position;
use skopos_model::nearest_name;

use crate::catalog::{Catalog, SCHEMA};
use crate::error::{Error, NESTED};
use crate::functions;
use crate::signature::mismatch;

/// Explains an error of DataFusion.
pub(crate) fn explained(error: DataFusionError, sql: &str, catalog: &Catalog) -> Error {
    let message = error.find_root().strip_backtrace();
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => return Error::Memory(error),
        DataFusionError::External(cause) => {
            return match cause.downcast_ref::<Denied>() {
                Some(denied) => Error::Denied(denied.clone()),
                None => Error::Query { message: chain(&**cause) },
            };
        }
        DataFusionError::SchemaError(schema, _) => {
            if let SchemaError::FieldNotFound { field, valid_fields } = &**schema {
                if let Some(error) = other_table(field, valid_fields, sql, catalog) {
                    return error;
                }
                let known = valid_fields.iter().map(|field| field.name.clone()).collect();
                return unknown("column", &field.name, known, sql);
            }
        }
        DataFusionError::Plan(text) => {
            if let Some(name) = between(text, "table '", "' not found") {
                let schema = format!(".{SCHEMA}.");
                let name = name.rsplit_once(&schema).map_or(name, |(_, table)| table);
                return unknown("table", name, catalog.all_names(), sql);
            }
            if let Some(name) = between(text, "Invalid function '", "'") {
                if functions::is_window(name) {
                    let message = format!(
                        "`{name}` needs a window, such as `OVER (PARTITION BY topic ORDER BY time)`"
                    );
                    return placed(name, message, sql);
                }
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
        return placed(function, message, sql);
    }
    let kinds = ["Error during planning: ", "Execution error: ", "Internal error: "];
    let message = kinds.iter().find_map(|kind| message.strip_prefix(kind)).unwrap_or(message);
    Error::Query { message: message.to_owned() }
}

/// Returns the error of a column that is not in the table which is written before it.
fn other_table(field: &Column, known: &[Column], sql: &str, catalog: &Catalog) -> Option<Error> {
    let table = field.relation.as_ref()?.table();
    let named = || known.iter().filter(|column| column.name == field.name);
    if named().next().is_none() {
        let has_table =
            |column: &&Column| column.relation.as_ref().is_some_and(|r| r.table() == table);
        let of_it = known.iter().filter(has_table).map(|column| column.name.clone());
        let nearest = nearest_name(&field.name, of_it.collect::<Vec<_>>());
        let (at, name) = (position_of(&field.name, sql), format!("{table}.{}", field.name));
        let nearest = nearest.map(|nearest| format!("{table}.{nearest}"));
        return Some(Error::UnknownName { at, what: "column", name, nearest });
    }
    let Some(nearest) = named().find_map(|column| column.relation.as_ref()) else {
        let message = format!("`{table}.{0}` is not known here: write `{0}`", field.name);
        return Some(placed(table, message, sql));
    };
    let at = position_of(table, sql);
    let is_here = |column: &Column| column.relation.as_ref().is_some_and(|r| r.table() == table);
    let column = |table: &str| format!("{table}.{}", field.name);
    if !known.iter().any(is_here) && catalog.all_names().iter().any(|name| name == table) {
        let message =
            format!("`{table}` has another name here: write `{}`", column(nearest.table()));
        return Some(placed(table, message, sql));
    }
    let (what, [name, nearest]) = match known.iter().any(is_here) {
        true => ("column", [table, nearest.table()].map(column)),
        false => ("table", [table, nearest.table()].map(str::to_owned)),
    };
    Some(Error::UnknownName { at, what, name, nearest: Some(nearest) })
}

/// Returns an error at the first occurrence of a name.
fn placed(name: &str, message: String, sql: &str) -> Error {
    match position_of(name, sql) {
        Some(at) => Error::Syntax { at, message },
        None => Error::Query { message },
    }
}

/// Returns an error with its causes in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

fn unknown(what: &'static str, name: &str, known: Vec<String>, sql: &str) -> Error {
    let nearest = nearest_name(name, known);
    Error::UnknownName { at: position_of(name, sql), what, name: name.to_owned(), nearest }
}

/// Returns the position of the first occurrence of a name.
fn position_of(name: &str, sql: &str) -> Option<Position> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().ok()?;
    let is_it = |token: &&TokenWithSpan| match &token.token {
        Token::Word(word) => word.value.eq_ignore_ascii_case(name),
        _ => false,
    };
    let start = tokens.iter().find(is_it)?.span.start;
    Some(Position { line: start.line, column: start.column })
}
