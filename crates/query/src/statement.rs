//! Parses statements, and turns this project's SQL into standard SQL for the planner.
//!
//! - `SELECT MAX(timestamp), metric FROM t`: a column beside one `MAX` or `MIN` is taken from the row that
//!   has the extreme, as in SQLite. Apollo's queries read the latest tuple of a vertex this way.
//! - `topic LIKE '…_bytes'`: `_` matches any character but `/`, as in insights.
//! - Functions of this project, such as `time_bucket`, and `ASOF` joins; see `functions`.
//! - A column without an alias has its text in the statement as a name.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::{DFParserBuilder, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{
    Expr, JoinConstraint, JoinOperator, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr,
    Statement, TableFactor, TableWithJoins, UnaryOperator, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Tokenizer;
use skopos_eval::Position;

use crate::ast::{Extreme, column, extreme, name_columns, parse_expression, position_of};
use crate::depth::{self, Depth, PLANNED, POINT};
use crate::error::Error;
use crate::functions::placeholders::AS_OF;
use crate::functions::{self, ESCAPE, TOPIC_LIKE};
use crate::limits::MAX_SQL_BYTES;
use crate::parameters::number_parameters;
use crate::precedence;

/// Parses one query without parameters.
pub(crate) fn parse(sql: &str) -> Result<Parsed, Error> {
    without_parameters(read(sql, PLANNED)?)
}

/// Parses one query without parameters for a point read, on any thread: it may have more branches than can be
/// planned, and fewer parentheses.
pub(crate) fn parse_for_point(sql: &str) -> Result<Parsed, Error> {
    without_parameters(read(sql, POINT)?)
}

fn without_parameters(read: (Parsed, usize)) -> Result<Parsed, Error> {
    match read {
        (statement, 0) => Ok(statement),
        (_, wanted) => Err(Error::Parameters { wanted, given: 0 }),
    }
}

/// Parses one query, in which every parameter becomes `$n`, and returns the number of parameters.
pub(crate) fn parse_with_parameters(sql: &str) -> Result<(Parsed, usize), Error> {
    read(sql, PLANNED)
}

fn read(sql: &str, most: Depth) -> Result<(Parsed, usize), Error> {
    if sql.len() > MAX_SQL_BYTES {
        return Err(Error::TooLong(sql.len()));
    }
    let dialect = GenericDialect {};
    let failed = |e: ParserError| syntax(e.into(), sql);
    let mut tokens = Tokenizer::new(&dialect, sql)
        .tokenize_with_location()
        .map_err(|e| failed(ParserError::from(e)))?;
    depth::check(&tokens, most)?;
    let parameters = number_parameters(&mut tokens)?;
    let mut statements = DFParserBuilder::new(tokens)
        .with_dialect(&dialect)
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|e| syntax(e, sql))?;
    let count = statements.len();
    let (Some(mut statement), 1) = (statements.pop_front(), count) else {
        let at = Position { line: 1, column: 1 };
        let message = format!("expected one statement, found {count}");
        return Err(Error::Syntax { at, message });
    };
    check(&mut statement)?;
    Ok((statement, parameters))
}

fn check(statement: &mut Parsed) -> Result<(), Error> {
    match statement {
        Parsed::Explain(explain) => check(&mut explain.statement),
        Parsed::Statement(inner) => match &**inner {
            Statement::Query(_)
            | Statement::ShowTables { .. }
            | Statement::ShowColumns { .. }
            | Statement::ExplainTable { .. }
            | Statement::Explain { .. } => Ok(()),
            other => Err(not_a_query(&other.to_string())),
        },
        other => Err(not_a_query(&other.to_string())),
    }
}

fn not_a_query(text: &str) -> Error {
    Error::NotAQuery(text.split_whitespace().next().unwrap_or_default().to_owned())
}

fn syntax(error: datafusion::error::DataFusionError, sql: &str) -> Error {
    let message = match error.find_root() {
        datafusion::error::DataFusionError::SQL(error, _) => match &**error {
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
                message.clone()
            }
            ParserError::RecursionLimitExceeded => "nested too deeply".to_owned(),
        },
        other => other.strip_backtrace(),
    };
    let place = message.rsplit_once(" at Line: ").and_then(|(text, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        let at = Position { line: line.parse().ok()?, column: column.trim().parse().ok()? };
        // The parser writes zero for the end.
        (at.line > 0).then(|| (text.to_owned(), at))
    });
    let (message, at) = place.unwrap_or_else(|| {
        let line = sql.matches('\n').count() as u64 + 1;
        let last = sql.rsplit('\n').next().unwrap_or_default();
        (message, Position { line, column: last.chars().count() as u64 + 1 })
    });
    Error::Syntax { at, message }
}

/// Replaces this project's SQL by standard SQL.
///
/// # Errors
/// A function or a join of this project has the wrong form.
pub(crate) fn to_standard(statement: &mut Parsed) -> Result<(), Error> {
    if let Parsed::Explain(explain) = statement {
        return to_standard(&mut explain.statement);
    }
    let Parsed::Statement(inner) = statement else { return Ok(()) };
    precedence::correct(inner);
    if let Statement::Query(query) = &mut **inner {
        name_columns(&mut query.body);
    }
    match inner.visit(&mut Standard) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Standard;

impl VisitorMut for Standard {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        rows_of_extremes(&mut query.body);
        sort_once(query);
        match as_of_joins(&mut query.body) {
            Err(error) => ControlFlow::Break(error),
            Ok(()) => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        if let Some(better) = topic_like(expression) {
            *expression = better;
        }
        if let Expr::Function(function) = expression {
            match functions::standard(function) {
                Err(error) => return ControlFlow::Break(error),
                Ok(Some(standard)) => *expression = standard,
                Ok(None) => {}
            }
        }
        ControlFlow::Continue(())
    }
}

/// Removes repeated keys of `ORDER BY`, which change nothing: with `DISTINCT ON` they end DataFusion's task.
fn sort_once(query: &mut Query) {
    if let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = &mut query.order_by {
        let mut known = HashSet::new();
        keys.retain(|key| known.insert(key.expr.clone()));
    }
}

/// Returns `topic LIKE 'text'` as the function with the meaning of insights.
fn topic_like(expression: &Expr) -> Option<Expr> {
    let Expr::Like { negated, any: false, expr, pattern, escape_char } = expression else {
        return None;
    };
    let Expr::Value(text) = &**pattern else { return None };
    let is_text = matches!(text.value, Value::SingleQuotedString(_) | Value::Placeholder(_));
    if !is_text || !column(expr)?.value.eq_ignore_ascii_case("topic") {
        return None;
    }
    let escape =
        escape_char.as_ref().map_or_else(|| format!("'{ESCAPE}'"), |escape| escape.to_string());
    let call = parse_expression(&format!("{TOPIC_LIKE}({expr}, {pattern}, {escape})"))?;
    Some(match negated {
        true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(call) },
        false => call,
    })
}

fn rows_of_extremes(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => row_of_extreme(select),
        SetExpr::SetOperation { left, right, .. } => {
            rows_of_extremes(left);
            rows_of_extremes(right);
        }
        _ => {}
    }
}

fn row_of_extreme(select: &mut Select) {
    let Some(Extreme { at, is_max, by }) = extreme(select) else { return };
    let by = by.clone();
    for (other, item) in select.projection.iter_mut().enumerate() {
        if other == at {
            continue;
        }
        let (expression, name) = match item {
            SelectItem::UnnamedExpr(expr) => (expr.clone(), column(expr).cloned()),
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), Some(alias.clone())),
            _ => continue,
        };
        let function = if is_max { "last_value" } else { "first_value" };
        let found =
            parse_expression(&format!("{function}({expression} ORDER BY {by} NULLS FIRST)"));
        if let (Some(expr), Some(alias)) = (found, name) {
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

/// Replaces `ASOF` joins by joins with a placeholder, for `operators::asof`.
fn as_of_joins(body: &mut SetExpr) -> Result<(), Error> {
    match body {
        SetExpr::Select(select) => select.from.iter_mut().try_for_each(as_of_join),
        SetExpr::SetOperation { left, right, .. } => {
            as_of_joins(left)?;
            as_of_joins(right)
        }
        _ => Ok(()),
    }
}

fn as_of_join(tables: &mut TableWithJoins) -> Result<(), Error> {
    let nested = std::iter::once(&mut tables.relation);
    for relation in nested.chain(tables.joins.iter_mut().map(|join| &mut join.relation)) {
        if let TableFactor::NestedJoin { table_with_joins, .. } = relation {
            as_of_join(table_with_joins)?;
        }
    }
    for join in &mut tables.joins {
        let JoinOperator::AsOf { match_condition, constraint } = &join.join_operator else {
            continue;
        };
        let at = position_of(match_condition);
        let wrong = |message: &str| Error::Syntax { at, message: message.to_owned() };
        let text = match constraint {
            JoinConstraint::None => format!("{AS_OF}({match_condition})"),
            JoinConstraint::On(on) => format!("({on}) AND {AS_OF}({match_condition})"),
            _ => {
                return Err(wrong(
                    "an ASOF JOIN takes MATCH_CONDITION, and after it ON or nothing",
                ));
            }
        };
        let on = parse_expression(&text)
            .ok_or_else(|| wrong("MATCH_CONDITION takes one comparison of two columns"))?;
        join.join_operator = JoinOperator::Left(JoinConstraint::On(on));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard(sql: &str) -> String {
        let mut statement = parse(sql).expect("a statement");
        to_standard(&mut statement).expect("standard");
        statement.to_string()
    }

    #[test]
    fn sql_of_this_project_becomes_standard_sql() {
        for (sql, expected) in [
            (
                "SELECT MAX(timestamp), metric FROM t",
                "SELECT MAX(timestamp) AS \"MAX(timestamp)\", last_value(metric ORDER BY timestamp NULLS FIRST) AS metric FROM t",
            ),
            (
                "SELECT metric AS m, min(t.timestamp) AS first FROM t WHERE metric > 3",
                "SELECT first_value(metric ORDER BY timestamp NULLS FIRST) AS m, min(t.timestamp) AS first FROM t WHERE metric > 3",
            ),
            (
                "SELECT max(value), node FROM t GROUP BY node",
                "SELECT max(value) AS \"max(value)\", node FROM t GROUP BY node",
            ),
            (
                "SELECT max(value), sum(value) FROM t",
                "SELECT max(value) AS \"max(value)\", sum(value) AS \"sum(value)\" FROM t",
            ),
            (
                "SELECT quantile(value, 0.5) AS q FROM latest WHERE topic NOT LIKE 'a_%'",
                "SELECT percentile_cont(value, 0.5) AS q FROM latest WHERE NOT topic_like(topic, 'a_%', '\\')",
            ),
            (
                "SELECT help FROM topics WHERE help LIKE 'a_%'",
                "SELECT help FROM topics WHERE help LIKE 'a_%'",
            ),
        ] {
            assert_eq!(standard(sql), expected);
        }
    }

    #[test]
    fn statements_that_are_not_queries_are_refused() {
        for sql in [
            "DROP TABLE latest",
            "CREATE TABLE a (b INT)",
            "INSERT INTO a VALUES (1)",
            "COPY latest TO 'x'",
            "SET a = 1",
        ] {
            assert!(matches!(parse(sql), Err(Error::NotAQuery(_))), "{sql}");
        }
        for (sql, line, column) in
            [("SELEC 1", 1, 1), ("SELECT 1 +", 1, 11), ("SELECT 1\n FROM )", 2, 7)]
        {
            let at = parse(sql).expect_err("an error").position();
            assert_eq!(at, Some(Position { line, column }), "{sql}");
        }
        assert!(parse("SELECT 1; SELECT 2").is_err() && parse("").is_err());
    }
}
