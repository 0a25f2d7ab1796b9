//! The outline of a statement: `SELECT ... FROM table [WHERE ...]`, and no other clause.

use std::mem::take;

use sqlparser::ast::{Expr, Query, Select, SelectItem, SetExpr, TableFactor, TableWithJoins};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::error::{Error, Position};
use crate::limits::{MAX_DEPTH, MAX_SQL_BYTES};
use crate::parse::names::unknown;

/// The parts of a statement whose outline is valid.
pub(super) struct Shape {
    pub(super) projection: Vec<SelectItem>,
    /// True for `samples`, false for `latest`.
    pub(super) samples: bool,
    /// The names that may stand before a dot for the table.
    pub(super) table_names: Vec<String>,
    pub(super) selection: Option<Expr>,
    /// The position of the table's name.
    pub(super) at: Position,
}

/// Keywords that an agent does not support. They are searched before the syntax tree is made, so that the
/// error has the position of the keyword.
const OUTSIDE: &[(Keyword, &str)] = &[
    (Keyword::GROUP, "`GROUP BY`"),
    (Keyword::ORDER, "`ORDER BY`"),
    (Keyword::HAVING, "`HAVING`"),
    (Keyword::LIMIT, "`LIMIT`"),
    (Keyword::OFFSET, "`OFFSET`"),
    (Keyword::FETCH, "`FETCH`"),
    (Keyword::JOIN, "`JOIN`"),
    (Keyword::UNION, "`UNION`"),
    (Keyword::EXCEPT, "`EXCEPT`"),
    (Keyword::INTERSECT, "`INTERSECT`"),
    (Keyword::WITH, "`WITH`"),
    (Keyword::DISTINCT, "`DISTINCT`"),
    (Keyword::OVER, "`OVER`, a window function,"),
    (Keyword::WITHIN, "`WITHIN GROUP`"),
    (Keyword::QUALIFY, "`QUALIFY`"),
    (Keyword::LATERAL, "`LATERAL`"),
    (Keyword::EXISTS, "`EXISTS`"),
    (Keyword::CAST, "`CAST`"),
    (Keyword::EXTRACT, "`EXTRACT`"),
    (Keyword::SIMILAR, "`SIMILAR TO`"),
    (Keyword::RLIKE, "`RLIKE`"),
    (Keyword::REGEXP, "`REGEXP`"),
    (Keyword::INTO, "`INTO`"),
    (Keyword::VALUES, "`VALUES`"),
    (Keyword::INSERT, "`INSERT`"),
    (Keyword::UPDATE, "`UPDATE`"),
    (Keyword::DELETE, "`DELETE`"),
    (Keyword::CREATE, "`CREATE`"),
    (Keyword::DROP, "`DROP`"),
    (Keyword::ALTER, "`ALTER`"),
];

pub(super) const HUB: &str = "the hub runs full SQL; in an agent a statement is `SELECT expression \
                              FROM latest WHERE predicate`, or `FROM samples` for a window";

/// Parses the outline of a statement.
pub(super) fn of(sql: &str) -> Result<Shape, Error> {
    if sql.len() > MAX_SQL_BYTES {
        return Err(Error::TooLong(sql.len()));
    }
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location().map_err(|error| {
        let at = Position { line: error.location.line, column: error.location.column };
        Error::Syntax { at, message: error.message }
    })?;
    let start = look_for_words(&tokens)?;
    let mut parser =
        Parser::new(&dialect).with_recursion_limit(MAX_DEPTH).with_tokens_with_locations(tokens);
    let query = parser.parse_query().map_err(|error| syntax(error, sql))?;
    while parser.consume_token(&Token::SemiColon) {}
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        let message = format!("expected the end of the statement, found: {}", rest.token);
        return Err(Error::Syntax { at: position(&rest), message });
    }
    shape(*query, start)
}

fn position(token: &TokenWithSpan) -> Position {
    Position { line: token.span.start.line, column: token.span.start.column }
}

/// Refuses keywords outside of the subset, and returns the position of the statement's first word.
fn look_for_words(tokens: &[TokenWithSpan]) -> Result<Position, Error> {
    let words: Vec<&TokenWithSpan> =
        tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let keyword = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let mut selects = 0;
    for (before, token) in [None].into_iter().chain(words.iter().map(Some)).zip(&words) {
        let found = keyword(token);
        // After `AS`, the user may choose any name.
        if before.is_some_and(|before| keyword(before) == Keyword::AS) {
            continue;
        }
        selects += usize::from(found == Keyword::SELECT);
        let what = match OUTSIDE.iter().find(|(outside, _)| *outside == found) {
            Some((_, what)) => (*what).to_owned(),
            None if selects > 1 => "a second `SELECT`".to_owned(),
            None => continue,
        };
        return Err(Error::Refused { at: position(token), what, hint: HUB });
    }
    let start = words.first().map_or(Position { line: 1, column: 1 }, |token| position(token));
    match words.first() {
        Some(first) if keyword(first) == Keyword::SELECT => Ok(start),
        Some(first) => Err(Error::Syntax {
            at: start,
            message: format!("expected SELECT, found: {}", first.token),
        }),
        None => Err(Error::Syntax { at: start, message: "the statement is empty".to_owned() }),
    }
}

/// Converts an error of the library, which has the position at the end of its message, or no position at
/// the end of the text.
fn syntax(error: ParserError, sql: &str) -> Error {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => {
            let at = Position { line: 1, column: 1 };
            return Error::TooMany { at, what: "nested expressions", most: MAX_DEPTH };
        }
    };
    let located = message.rsplit_once(" at Line: ").and_then(|(text, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        let at = Position { line: line.parse().ok()?, column: column.trim().parse().ok()? };
        // Zero stands for the end of the text.
        (at.line > 0).then(|| (text.to_owned(), at))
    });
    let (message, at) = located.unwrap_or_else(|| (message, end(sql)));
    Error::Syntax { at, message }
}

fn end(sql: &str) -> Position {
    let line = sql.matches('\n').count() as u64 + 1;
    let last = sql.rsplit('\n').next().unwrap_or_default();
    Position { line, column: last.chars().count() as u64 + 1 }
}

fn shape(mut query: Query, at: Position) -> Result<Shape, Error> {
    let SetExpr::Select(select) = &mut *query.body else {
        return Err(Error::Refused {
            at,
            what: "a statement other than one SELECT".to_owned(),
            hint: HUB,
        });
    };
    let projection = take(&mut select.projection);
    let from = take(&mut select.from);
    let selection = select.selection.take();
    // The rest must equal the rest of the simplest statement.
    if Some(&query) != plain().as_ref() {
        return Err(Error::Refused {
            at,
            what: "a clause other than SELECT, FROM and WHERE".to_owned(),
            hint: HUB,
        });
    }
    Ok(Shape { projection, selection, ..table(from, at)? })
}

fn plain() -> Option<Query> {
    let mut query =
        *Parser::new(&GenericDialect {}).try_with_sql("SELECT 1").ok()?.parse_query().ok()?;
    let select: &mut Select = match &mut *query.body {
        SetExpr::Select(select) => select,
        _ => return None,
    };
    (select.projection, select.from, select.selection) = (Vec::new(), Vec::new(), None);
    Some(query)
}

fn table(mut from: Vec<TableWithJoins>, start: Position) -> Result<Shape, Error> {
    let refused = |what: &str, at| Error::Refused { at, what: what.to_owned(), hint: HUB };
    let tables = from.len();
    let (Some(table), 1) = (from.pop(), tables) else {
        let what = if tables == 0 { "a statement without a table" } else { "more than one table" };
        return Err(refused(what, start));
    };
    let TableWithJoins { relation, joins } = table;
    let TableFactor::Table {
        name,
        alias,
        args: None,
        with_hints,
        version: None,
        with_ordinality: false,
        partitions,
        json_path: None,
        sample: None,
        index_hints,
    } = relation
    else {
        return Err(refused("a table that is not a plain name", start));
    };
    let ident = match name.0.as_slice() {
        [part] => part.as_ident(),
        _ => None,
    };
    let Some(ident) = ident else { return Err(refused("a table name of several parts", start)) };
    let at = match ident.span.start {
        // A name in single quotes has no position.
        place if place.line == 0 => start,
        place => Position { line: place.line, column: place.column },
    };
    let columns =
        alias.as_ref().is_some_and(|alias| !alias.columns.is_empty() || alias.at.is_some());
    if !joins.is_empty()
        || !with_hints.is_empty()
        || !partitions.is_empty()
        || !index_hints.is_empty()
        || columns
    {
        return Err(refused("anything beside the table's name", at));
    }
    let name = ident.value.to_lowercase();
    let samples = match name.as_str() {
        "latest" => false,
        "samples" => true,
        _ => return Err(unknown("table", &ident.value, at, &["latest", "samples"])),
    };
    let alias = alias.map(|alias| alias.name.value.to_lowercase());
    Ok(Shape {
        projection: Vec::new(),
        samples,
        table_names: [Some(name), alias].into_iter().flatten().collect(),
        selection: None,
        at,
    })
}
