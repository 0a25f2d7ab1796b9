//! Statements that are answered from memory, without a planner:
//!
//! - the paper's resource query, `SELECT MAX(timestamp), metric FROM t UNION …`, of any length;
//! - `SELECT columns FROM latest WHERE topic =`, `IN` or `LIKE` a text;
//! - numbers over `latest`, with the evaluator that the agents' SQL insights use.
//!
//! The answer is the planner's to the last type and name. What would differ goes to the planner.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier, Statement,
    TableFactor,
};
use skopos_eval::{Like, Unknown};
use skopos_model::{Origin, Sample, Structured, Timestamp, Topic, Unit};

use crate::ast::{Extreme, extreme, folded, name_of, text};
use crate::doubles;
use crate::functions::ESCAPE;
use crate::inputs::{Fits, Inputs, Read};
use crate::source::{Described, Row, Source, Wanted, When};
use crate::tables::columns::{Batch, Column, value};
use crate::tables::latest::LATEST;
use crate::tables::samples::OF_A_TOPIC;
use crate::tables::{Tables, pushdown};

/// A statement that was understood.
#[derive(Debug)]
pub(crate) enum Point {
    /// The latest tuple of each of some topics.
    Tuples(Tuples),
    /// Rows of `latest`.
    Rows(Rows),
    /// Numbers over `latest`.
    Numbers(Numbers),
}

impl Point {
    /// Reads a statement; `None` if the planner has to.
    pub(crate) fn compile(sql: &str, statement: &Parsed, tables: &Tables) -> Option<Self> {
        let query = plain_query(statement)?;
        if let Some(tuples) = Tuples::compile(&query.body, tables) {
            return Some(Self::Tuples(tuples));
        }
        if let Some(rows) = Rows::compile(&query.body) {
            return Some(Self::Rows(rows));
        }
        Numbers::compile(sql, &query.body).map(Self::Numbers)
    }

    /// The answer; `None` if the planner has to find it after all.
    pub(crate) fn read(&self, source: &dyn Source) -> Option<RecordBatch> {
        match self {
            Self::Tuples(tuples) => tuples.read(source),
            Self::Rows(rows) => rows.read(source),
            Self::Numbers(numbers) => numbers.read(source),
        }
    }

    /// What the answer depends on.
    pub(crate) fn inputs(&self) -> Inputs {
        match self {
            Self::Tuples(tuples) => {
                Inputs::of(tuples.selects.iter().cloned().map(Read::from).collect(), false)
            }
            Self::Rows(rows) => {
                let is_timed = |c: &Column| matches!(c, Column::Age | Column::CheckedAt);
                let read = Read::new(rows.wanted.clone(), rows.like.clone().map(Fits::Like));
                Inputs::of(vec![read], rows.columns.iter().any(is_timed))
            }
            Self::Numbers(Numbers { statement, wanted, .. }) => {
                let read = Read::new(wanted.clone(), [Fits::Statement(statement.clone())]);
                Inputs::of(vec![read], statement.is_timed())
            }
        }
    }
}

/// A query without any clause around its selects.
fn plain_query(statement: &Parsed) -> Option<&Query> {
    let Parsed::Statement(inner) = statement else { return None };
    let Statement::Query(query) = &**inner else { return None };
    let is_plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty();
    is_plain.then_some(query)
}

/// The table of a select that has no clause but `FROM` one table and `WHERE`.
fn plain_table(select: &Select) -> Option<String> {
    let is_plain = select.distinct.is_none()
        && select.top.is_none()
        && select.exclude.is_none()
        && select.into.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty()
        && matches!(&select.group_by, GroupByExpr::Expressions(by, with) if by.is_empty() && with.is_empty())
        && select.cluster_by.is_empty()
        && select.distribute_by.is_empty()
        && select.sort_by.is_empty()
        && select.having.is_none()
        && select.named_window.is_empty()
        && select.qualify.is_none()
        && select.value_table_mode.is_none();
    let [from] = select.from.as_slice() else { return None };
    let TableFactor::Table { name, alias: None, args: None, sample: None, version: None, .. } =
        &from.relation
    else {
        return None;
    };
    let [part] = name.0.as_slice() else { return None };
    (is_plain && from.joins.is_empty()).then(|| part.as_ident().map(folded)).flatten()
}

/// The columns of a projection without functions, and what they are called.
fn columns_of(select: &Select, known: &[Column]) -> Option<(Vec<Column>, Vec<String>)> {
    let mut found = (Vec::new(), Vec::new());
    for item in &select.projection {
        let (expression, name) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, name_of(expr)),
            SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
            SelectItem::Wildcard(options)
                if options.opt_exclude.is_none()
                    && options.opt_except.is_none()
                    && options.opt_replace.is_none()
                    && options.opt_rename.is_none()
                    && options.opt_ilike.is_none() =>
            {
                found.0.extend(known);
                found.1.extend(known.iter().map(|c| c.name().to_owned()));
                continue;
            }
            _ => return None,
        };
        let Expr::Identifier(ident) = expression else { return None };
        let wanted = folded(ident);
        found.0.push(*known.iter().find(|c| c.name() == wanted)?);
        found.1.push(name);
    }
    // The planner refuses two columns of one name.
    let is_distinct = found.1.iter().enumerate().all(|(at, name)| !found.1[..at].contains(name));
    is_distinct.then_some(found)
}

/// The latest tuples of some topics.
#[derive(Debug)]
pub(crate) struct Tuples {
    /// Of each select, whom it asks for.
    selects: Vec<Wanted>,
    columns: Vec<Column>,
    names: Vec<String>,
    is_distinct: bool,
}

/// A tuple that was read; none of a topic without any.
type Tuple = Option<(Sample, Unit)>;

impl Tuples {
    fn compile(body: &SetExpr, tables: &Tables) -> Option<Self> {
        // A loop, because a union is as deep as it is long.
        let (mut rights, mut quantifiers, mut left) = (Vec::new(), Vec::new(), body);
        while let SetExpr::SetOperation { op, set_quantifier, left: before, right } = left {
            let SetExpr::Select(select) = &**right else { return None };
            if *op != SetOperator::Union {
                return None;
            }
            quantifiers.push(match set_quantifier {
                SetQuantifier::All => false,
                SetQuantifier::None | SetQuantifier::Distinct => true,
                _ => return None,
            });
            rights.push(select);
            left = before;
        }
        let SetExpr::Select(first) = left else { return None };
        let mut all = Self::one(first, tables)?;
        // `a UNION b UNION ALL c` keeps what the last one adds twice.
        all.is_distinct = quantifiers.first().copied().unwrap_or_default();
        if quantifiers.iter().any(|is_distinct| *is_distinct != all.is_distinct) {
            return None;
        }
        for select in rights.into_iter().rev() {
            let one = Self::one(select, tables)?;
            if one.columns != all.columns {
                return None;
            }
            all.selects.extend(one.selects);
        }
        Some(all)
    }

    fn one(select: &Select, tables: &Tables) -> Option<Self> {
        let table = plain_table(select)?;
        let Extreme { at, is_max, by } = extreme(select)?;
        if !is_max || folded(by) != Column::PaperTimestamp.name() || select.selection.is_some() {
            return None;
        }
        let topic: Topic = tables.topic(&table)?;
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        for (other, item) in select.projection.iter().enumerate() {
            let (expression, name) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, name_of(expr)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
                _ => return None,
            };
            let found = match expression {
                _ if other == at => Column::PaperTimestamp,
                Expr::Identifier(ident) => {
                    let wanted = folded(ident);
                    *OF_A_TOPIC.iter().find(|c| c.name() == wanted)?
                }
                _ => return None,
            };
            if names.contains(&name) {
                return None;
            }
            columns.push(found);
            names.push(name);
        }
        Some(Self { selects: vec![Wanted::These(vec![topic])], columns, names, is_distinct: false })
    }

    fn read(&self, source: &dyn Source) -> Option<RecordBatch> {
        let mut tuples: Vec<(Tuple, &Topic)> = Vec::with_capacity(self.selects.len());
        for wanted in &self.selects {
            let Wanted::These(topics) = wanted else { return None };
            let topic = topics.first()?;
            let mut tuple = None;
            source.latest(wanted, &mut |row: &Row<'_>| {
                if row.of.topic == topic {
                    tuple = Some((row.sample.clone(), row.of.unit));
                }
            });
            if tuple.is_none() && may_be_kept(source, wanted) {
                return None;
            }
            let is_new = |(other, _): &(Tuple, &Topic)| !self.are_same(other, &tuple);
            if !self.is_distinct || tuples.iter().all(is_new) {
                tuples.push((tuple, topic));
            }
        }
        let mut batch = Batch::named(&self.columns, &self.names, source.now());
        for (tuple, topic) in &tuples {
            match tuple {
                Some((sample, unit)) => batch.push(&row_of(topic, *unit, sample)),
                None => batch.push_nothing(),
            }
        }
        batch.take().ok()
    }

    /// Whether two tuples are one row of the answer: in what is shown of them.
    fn are_same(&self, one: &Tuple, other: &Tuple) -> bool {
        let (Some(one), Some(other)) = (one, other) else {
            return one.is_none() && other.is_none();
        };
        self.columns.iter().all(|column| match column {
            Column::PaperTimestamp => one.0.time == other.0.time,
            Column::Unit => one.1 == other.1,
            Column::Text => as_text(one) == as_text(other),
            Column::PaperMetric => as_number(one) == as_number(other),
            Column::Bound => as_bound(one) == as_bound(other),
            _ => discriminant(&one.0.origin) == discriminant(&other.0.origin),
        })
    }
}

fn as_number((sample, _): &(Sample, Unit)) -> Option<f64> {
    let is_known = sample.origin != Origin::Unknown;
    sample.value.as_f64().filter(|v| is_known && v.is_finite())
}

fn as_text((sample, _): &(Sample, Unit)) -> Option<&Structured> {
    match &sample.value {
        skopos_model::Value::Structured(text) => Some(text),
        _ => None,
    }
}

/// As bits, because a bound may be no number, and is then one like any other.
fn as_bound((sample, _): &(Sample, Unit)) -> Option<u64> {
    match sample.origin {
        Origin::Predicted { bound } => Some(bound.to_bits()),
        _ => None,
    }
}

/// Whether there may be samples of a topic that has no latest one: on disk, or on its own node.
fn may_be_kept(source: &dyn Source, wanted: &Wanted) -> bool {
    let always = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
    let asked = || source.elsewhere(wanted, &When::During(always), Instant::now());
    source.has_history() || asked().is_some()
}

fn row_of<'a>(topic: &'a Topic, unit: Unit, sample: &'a Sample) -> Row<'a> {
    let kind = skopos_model::Kind::Gauge;
    let value_type = sample.value.value_type();
    let of = Described { topic, unit, kind, value_type, publisher: "" };
    Row { of, sample, checked_at: sample.time, ahead: 0 }
}

/// Rows of `latest`.
#[derive(Debug)]
pub(crate) struct Rows {
    wanted: Wanted,
    like: Option<Like>,
    columns: Vec<Column>,
    names: Vec<String>,
}

impl Rows {
    fn compile(body: &SetExpr) -> Option<Self> {
        let SetExpr::Select(select) = body else { return None };
        if plain_table(select)? != "latest" {
            return None;
        }
        let (wanted, like) = predicate(select.selection.as_ref()?)?;
        let (columns, names) = columns_of(select, LATEST)?;
        Some(Self { wanted, like, columns, names })
    }

    fn read(&self, source: &dyn Source) -> Option<RecordBatch> {
        let mut batch = Batch::named(&self.columns, &self.names, source.now());
        source.latest(&self.wanted, &mut |row: &Row<'_>| {
            let topic = row.of.topic.as_str();
            let is_like = self.like.as_ref().is_none_or(|like| like.matches(topic));
            if is_like && self.wanted.selects(topic) {
                batch.push(row);
            }
        });
        batch.take().ok()
    }
}

/// `topic = 'a'`, `topic IN ('a', 'b')` or `topic LIKE 'a%'`.
fn predicate(expression: &Expr) -> Option<(Wanted, Option<Like>)> {
    let is_topic = |expr: &Expr| matches!(expr, Expr::Identifier(i) if folded(i) == "topic");
    match expression {
        Expr::BinaryOp { left, op: datafusion::sql::sqlparser::ast::BinaryOperator::Eq, right }
            if is_topic(left) =>
        {
            Some((these([&**right])?, None))
        }
        Expr::InList { expr, list, negated: false } if is_topic(expr) => Some((these(list)?, None)),
        Expr::Like { negated: false, any: false, expr, pattern, escape_char: None }
            if is_topic(expr) =>
        {
            let pattern = text(pattern)?;
            let like = Like::new(pattern, ESCAPE.chars().next())?;
            Some((pushdown::beginning(pattern), Some(like)))
        }
        _ => None,
    }
}

/// Each once; what is no topic is nobody's.
fn these<'e>(list: impl IntoIterator<Item = &'e Expr>) -> Option<Wanted> {
    let mut topics = Vec::new();
    for expression in list {
        if let Ok(topic) = Topic::new(text(expression)?)
            && !topics.contains(&topic)
        {
            topics.push(topic);
        }
    }
    Some(Wanted::These(topics))
}

/// Numbers over `latest`.
#[derive(Debug)]
pub(crate) struct Numbers {
    statement: skopos_eval::Statement,
    wanted: Wanted,
    schema: Arc<Schema>,
    /// Which of them the planner counts in integers.
    are_counts: Vec<bool>,
}

impl Numbers {
    fn compile(sql: &str, body: &SetExpr) -> Option<Self> {
        let SetExpr::Select(select) = body else { return None };
        // `rate` and `ema` over `latest` need a history that a point read does not have.
        if plain_table(select)? != "latest" || !doubles::suffice(select) {
            return None;
        }
        let statement = skopos_eval::Statement::new(sql).ok().filter(|s| !s.reads_history())?;
        let (mut names, mut are_counts) = (Vec::<String>::new(), Vec::new());
        for item in &select.projection {
            let (expression, name) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, name_of(expr)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
                _ => return None,
            };
            let Expr::Function(function) = expression else { return None };
            if names.contains(&name) || !doubles::is_aggregate(function) {
                return None;
            }
            are_counts.push(function.name.to_string().eq_ignore_ascii_case("count"));
            names.push(name);
        }
        let field = |(name, is_count): (&String, &bool)| {
            Field::new(name, if *is_count { DataType::Int64 } else { DataType::Float64 }, true)
        };
        let fields: Vec<Field> = names.iter().zip(&are_counts).map(field).collect();
        let starts = statement
            .topics()
            .iter()
            .map(|pattern| pattern.as_str().split('*').next().unwrap_or_default().to_owned());
        let wanted = Wanted::Starting(starts.collect());
        Some(Self { statement, wanted, schema: Arc::new(Schema::new(fields)), are_counts })
    }

    fn read(&self, source: &dyn Source) -> Option<RecordBatch> {
        let now = source.now();
        let mut evaluator = skopos_eval::Evaluator::new(&self.statement);
        let mut key = 0;
        source.latest(&self.wanted, &mut |row: &Row<'_>| {
            evaluator.row_added(key, row.of.topic, row.of.unit, row.of.kind);
            // Only ages depend on times.
            evaluator.row_changed(key, row.here(row.sample.time), value(row));
            evaluator.row_held(key, row.here(row.checked_at));
            key = key.saturating_add(1);
        });
        let mut columns: Vec<ArrayRef> = Vec::new();
        for (output, is_count) in self.are_counts.iter().enumerate() {
            let number = match evaluator.value(output, now) {
                Ok(number) => Some(number),
                Err(Unknown::NoTopic | Unknown::NoRow { .. }) => is_count.then_some(0.0),
                // An engine has its own way with these.
                Err(_) => return None,
            };
            columns.push(match is_count {
                true => Arc::new(Int64Array::from(vec![number.map(|n| n as i64)])),
                false => Arc::new(Float64Array::from(vec![number])),
            });
        }
        RecordBatch::try_new(self.schema.clone(), columns).ok()
    }
}
