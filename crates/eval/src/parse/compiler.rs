//! The state of the compiler, and arithmetic.

use skopos_model::{TopicPattern, Unit};
use sqlparser::ast::{BinaryOperator, Expr, Ident, UnaryOperator, Value};
use sqlparser::tokenizer::Span;

use crate::error::{Error, Position};
use crate::expression::{Condition, Expression, Leaf, Operator};
use crate::limits::{MAX_AGGREGATES, MAX_DEPTH, MAX_EMAS, MAX_TEXT_TESTS};
use crate::parse::literal;
use crate::parse::names::{COLUMNS, unknown};
use crate::parse::shape::{HUB, Shape};
use crate::program::{Aggregate, Ema, Function, Program, TextTest, Window};

/// The context of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// In the SELECT list: aggregates and expressions of them.
    Output,
    /// In an aggregate or a predicate: columns of one row.
    Row,
}

pub(super) struct Compiler<'a> {
    pub(super) samples: bool,
    table_names: &'a [String],
    table_at: Position,
    /// The position of the expression that is being compiled.
    at: Position,
    pub(super) aggregates: Vec<Aggregate>,
    pub(super) texts: Vec<TextTest>,
    pub(super) emas: Vec<Ema>,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(shape: &'a Shape) -> Self {
        Self {
            samples: shape.samples,
            table_names: &shape.table_names,
            table_at: shape.at,
            at: shape.at,
            aggregates: Vec::new(),
            texts: Vec::new(),
            emas: Vec::new(),
        }
    }

    /// Compiles a number: arithmetic, functions, columns.
    pub(super) fn expression(
        &mut self,
        expression: &Expr,
        scope: Scope,
        depth: usize,
    ) -> Result<Expression, Error> {
        self.look_at(expression);
        if depth == MAX_DEPTH {
            return Err(self.too_many("nested expressions", MAX_DEPTH));
        }
        let below = depth + 1;
        match expression {
            Expr::Nested(inner) => self.expression(inner, scope, below),
            Expr::Value(value) => match (&value.value, literal::number(expression)) {
                (_, Some(number)) => Ok(Expression::Number(number, None)),
                (Value::Null, None) => Ok(Expression::Null),
                (Value::Number(..), None) => {
                    Err(self.meaningless("a number beyond the largest double", ""))
                }
                _ => Err(self.meaningless(
                    "a text where a number is expected",
                    "compare texts with topic, node, unit or kind, in WHERE",
                )),
            },
            Expr::Interval(interval) => match literal::interval(interval) {
                Some(length) => Ok(Expression::Number(length.as_secs_f64(), Some(Unit::SECONDS))),
                None => Err(self.bad_interval()),
            },
            Expr::Identifier(ident) => self.column(ident, scope),
            Expr::CompoundIdentifier(parts) => self.qualified_column(parts, scope),
            Expr::UnaryOp { op: UnaryOperator::Plus, expr } => self.expression(expr, scope, below),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
                Ok(Expression::Negate(Box::new(self.expression(expr, scope, below)?)))
            }
            Expr::BinaryOp { left, op, right } => {
                let Some(operator) = arithmetic(op) else { return Err(self.not_arithmetic(op)) };
                let left = self.expression(left, scope, below)?;
                let right = self.expression(right, scope, below)?;
                Ok(Expression::Binary(operator, Box::new(left), Box::new(right)))
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), scope, below)
            }
            _ => self.function(expression, scope, below),
        }
    }

    fn column(&mut self, ident: &Ident, scope: Scope) -> Result<Expression, Error> {
        let name = if ident.quote_style.is_some() {
            ident.value.clone()
        } else {
            ident.value.to_lowercase()
        };
        let leaf = match name.as_str() {
            "value" => Leaf::Value,
            "age" if !self.samples => Leaf::Age,
            "age" | "time" | "timestamp" if self.samples => {
                return Err(self.refused(
                    &format!("`{name}` here"),
                    "in `samples`, use `time` once, as in `AND time > now() - INTERVAL '60 s'`",
                ));
            }
            "time" | "timestamp" => {
                return Err(self.refused(
                    &format!("`{name}` in `latest`"),
                    "`age` is the time since the last poll of a value, in seconds",
                ));
            }
            "topic" | "node" | "unit" | "kind" => {
                return Err(self.meaningless(
                    format!("`{name}` is a text where a number is expected"),
                    "test texts in WHERE; `count(*)` counts rows",
                ));
            }
            _ => return Err(unknown("column", &ident.value, self.at, COLUMNS)),
        };
        self.leaf(leaf, scope)
    }

    /// Compiles `latest.value`, also with the alias of the table.
    fn qualified_column(&mut self, parts: &[Ident], scope: Scope) -> Result<Expression, Error> {
        match parts {
            [table, column] if self.is_table(table) => self.column(column, scope),
            [table, ..] => Err(self.refused(&format!("a column of `{}`", table.value), HUB)),
            [] => Err(self.refused("a column without a name", HUB)),
        }
    }

    /// Returns the name of a column in lower case, written with or without its table.
    pub(super) fn column_name(&self, expression: &Expr) -> Option<String> {
        let name = match expression {
            Expr::Identifier(name) => name,
            Expr::CompoundIdentifier(names) => match names.as_slice() {
                [table, name] if self.is_table(table) => name,
                _ => return None,
            },
            _ => return None,
        };
        Some(name.value.to_lowercase())
    }

    fn is_table(&self, ident: &Ident) -> bool {
        self.table_names.contains(&ident.value.to_lowercase())
    }

    /// Compiles a column or function of one row. Outside of an aggregate there must be only one row.
    pub(super) fn leaf(&mut self, leaf: Leaf, scope: Scope) -> Result<Expression, Error> {
        match scope {
            Scope::Row => Ok(Expression::Leaf(leaf)),
            Scope::Output if self.samples => Err(self.meaningless(
                "`value` is ambiguous: a window has many values",
                "choose one: `last(value)`, `avg(value)`, `max(value)`",
            )),
            Scope::Output => {
                self.add(Function::Only, Expression::Leaf(leaf), Condition::Always(true))
            }
        }
    }

    /// Adds an aggregate, or reuses an equal one.
    pub(super) fn add(
        &mut self,
        function: Function,
        argument: Expression,
        filter: Condition,
    ) -> Result<Expression, Error> {
        let mut timed = false;
        let emas = &self.emas;
        let mut visit = |leaf| timed |= Program::leaf_is_timed(emas, leaf);
        argument.leaves(&mut visit);
        filter.leaves(&mut visit);
        let aggregate = Aggregate { function, argument, filter, timed };
        match intern(&mut self.aggregates, aggregate, MAX_AGGREGATES) {
            Some(at) => Ok(Expression::Leaf(Leaf::Aggregate(at))),
            None => Err(self.too_many("aggregates", MAX_AGGREGATES)),
        }
    }

    pub(super) fn add_text(&mut self, test: TextTest) -> Result<Condition, Error> {
        match intern(&mut self.texts, test, MAX_TEXT_TESTS) {
            Some(at) => Ok(Condition::Text(at)),
            None => Err(self.too_many(
                "tests of topic, node, unit and kind (a list of IN is one)",
                MAX_TEXT_TESTS,
            )),
        }
    }

    pub(super) fn add_ema(&mut self, ema: Ema) -> Result<Leaf, Error> {
        match intern(&mut self.emas, ema, MAX_EMAS) {
            Some(at) => Ok(Leaf::Ema(at)),
            None => Err(self.too_many("different exponential means", MAX_EMAS)),
        }
    }

    /// Checks the requirements of the table on the whole statement.
    pub(super) fn check_table(
        &self,
        topics: &[TopicPattern],
        window: Option<Window>,
    ) -> Result<(), Error> {
        if !self.samples {
            return Ok(());
        }
        let one = matches!(topics, [topic] if topic.as_topic().is_some());
        let what = match (one, window) {
            (true, Some(_)) => return Ok(()),
            (false, _) => "a window over anything but one topic",
            (true, None) => "a window without a length",
        };
        Err(Error::Refused {
            at: self.table_at,
            what: what.to_owned(),
            hint: "in an agent: `FROM samples WHERE topic = 'n01/load/load1' AND time > now() - \
                   INTERVAL '60 s'`; the hub has the history of all topics",
        })
    }

    fn not_arithmetic(&self, operator: &BinaryOperator) -> Error {
        match operator {
            BinaryOperator::And | BinaryOperator::Or => self.a_condition("AND, OR"),
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq => self.a_condition("a comparison"),
            _ => self.refused(&format!("the operator `{operator}`"), HUB),
        }
    }

    fn a_condition(&self, what: &str) -> Error {
        self.meaningless(
            format!("{what} where a number is expected"),
            "`CASE WHEN condition THEN 1 ELSE 0 END` turns a condition into a number",
        )
    }

    pub(super) fn bad_interval(&self) -> Error {
        self.meaningless(
            "not an interval between a nanosecond and a year",
            "write `INTERVAL '60 s'`; the units are us, ms, s, min, h and d",
        )
    }

    /// Records the position of an expression, for errors.
    pub(super) fn look_at(&mut self, expression: &Expr) {
        if let Some(span) = begin(expression) {
            self.look_at_span(span);
        }
    }

    /// Records a position, if it is set.
    pub(super) fn look_at_span(&mut self, span: Span) {
        if span.start.line > 0 {
            self.at = Position { line: span.start.line, column: span.start.column };
        }
    }

    pub(super) fn at(&self) -> Position {
        self.at
    }

    pub(super) fn refused(&self, what: &str, hint: &'static str) -> Error {
        Error::Refused { at: self.at, what: what.to_owned(), hint }
    }

    pub(super) fn meaningless(&self, what: impl Into<String>, hint: &'static str) -> Error {
        Error::Meaningless { at: self.at, what: what.into(), hint }
    }

    pub(super) fn too_many(&self, what: &'static str, most: usize) -> Error {
        Error::TooMany { at: self.at, what, most }
    }
}

/// Returns the index of `item` in `items`, which it joins if it is new; `None` if there are `most` others.
fn intern<T: PartialEq>(items: &mut Vec<T>, item: T, most: usize) -> Option<usize> {
    if let Some(at) = items.iter().position(|other| *other == item) {
        return Some(at);
    }
    (items.len() < most).then(|| {
        items.push(item);
        items.len() - 1
    })
}

fn arithmetic(operator: &BinaryOperator) -> Option<Operator> {
    Some(match operator {
        BinaryOperator::Plus => Operator::Add,
        BinaryOperator::Minus => Operator::Subtract,
        BinaryOperator::Multiply => Operator::Multiply,
        BinaryOperator::Divide => Operator::Divide,
        BinaryOperator::Modulo => Operator::Remainder,
        _ => return None,
    })
}

/// Returns the position of an expression's first token. The library's own function recurses through the
/// whole expression, and a chain of operators is as deep as it is long.
fn begin(expression: &Expr) -> Option<Span> {
    let mut expression = expression;
    loop {
        expression = match expression {
            Expr::Identifier(ident) => return Some(ident.span),
            Expr::CompoundIdentifier(parts) => return parts.first().map(|ident| ident.span),
            Expr::Value(value) => return Some(value.span),
            Expr::Function(function) => {
                return function.name.0.first()?.as_ident().map(|ident| ident.span);
            }
            Expr::Case { case_token, .. } => return Some(case_token.0.span),
            Expr::Interval(interval) => &interval.value,
            Expr::BinaryOp { left: inner, .. }
            | Expr::Nested(inner)
            | Expr::UnaryOp { expr: inner, .. }
            | Expr::IsNull(inner)
            | Expr::IsNotNull(inner)
            | Expr::IsTrue(inner)
            | Expr::IsFalse(inner)
            | Expr::InList { expr: inner, .. }
            | Expr::Between { expr: inner, .. }
            | Expr::Like { expr: inner, .. }
            | Expr::ILike { expr: inner, .. }
            | Expr::Cast { expr: inner, .. }
            | Expr::Ceil { expr: inner, .. }
            | Expr::Floor { expr: inner, .. }
            | Expr::AtTimeZone { timestamp: inner, .. }
            | Expr::CompoundFieldAccess { root: inner, .. }
            | Expr::InSubquery { expr: inner, .. } => inner,
            _ => return None,
        };
    }
}
