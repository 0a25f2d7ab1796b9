//! `time_bucket_gapfill('10s', time)`: a bucket for every time, also where there is no row.
//!
//! As in TimescaleDB: it stands in `GROUP BY`; a bucket without rows has the columns that are grouped by
//! and `NULL` for whatever is brought together. Above that, `locf(x)` is the value of the bucket before,
//! and `interpolate(x)` lies on the straight line between the buckets around. A bucket in which the value
//! is unknown has rows: it stays unknown, and nothing is carried over it.
//!
//! The buckets reach from the time that `WHERE` begins with, else from the first row, to the time that it
//! ends with, else to now; or as two more arguments say.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray as _, Float64Array, RecordBatch, TimestampNanosecondArray, UInt32Array,
};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit, TimestampNanosecondType};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::functions::datetime::date_bin;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, Between, BinaryExpr, Expr, ExprSchemable as _, Filter, LogicalPlan, Operator,
    Projection,
};

use super::{Input, What, Whole};
use crate::functions::marks::{GAP_FILL, INTERPOLATE, LOCF, arguments_of};
use crate::tables::columns::UTC;

/// The most buckets that are made where there is no row. Whoever needs more means other buckets.
const MAX_FILLED: usize = 1_000_000;

/// Filling the gaps between the rows of an aggregation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GapFill {
    /// Which of the columns is the time.
    time: usize,
    /// The columns before this one are grouped by.
    groups: usize,
    /// Between two buckets, in nanoseconds.
    step: i64,
    /// How each value that was computed is carried into gaps.
    carried: Vec<Carried>,
    /// Of the values after those, how many are a time to begin at; the others are one to end at.
    begins: usize,
    /// Whether the end itself is in.
    is_closed: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Carried {
    Last,
    Straight,
}

/// A projection over an aggregation that fills gaps, if it is one.
pub(super) fn planned(projection: Projection) -> Result<Transformed<LogicalPlan>> {
    let (aggregate, filters) = below(&projection.input);
    let marked = aggregate.and_then(|a| Some((a, a.group_expr.iter().position(is_marked)?)));
    let Some((aggregate, time)) = marked else {
        return Ok(Transformed::no(LogicalPlan::Projection(projection)));
    };
    let Some(found) = marks(&aggregate.group_expr[time]) else {
        return plan_err!("time_bucket_gapfill takes a width and a time");
    };
    let filled = binned(aggregate, time, &found)?;
    // HAVING is about rows that there are.
    let mut input = filled;
    for filter in filters.iter().rev() {
        input = LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(input))?);
    }
    let (mut carried, mut values) = (Vec::new(), Vec::new());
    let expr = projection.expr.into_iter().map(|expr| carry(expr, &mut carried, &mut values));
    let expr = expr.collect::<Result<Vec<_>>>()?;
    let bounds = Bounds::of(&found, &aggregate.input);
    // In a gap there is nothing, whatever the aggregation would say of no rows.
    let nullable = |f: &Arc<Field>| Arc::new(f.as_ref().clone().with_nullable(true));
    let mut fields: Vec<_> =
        input.schema().iter().map(|(q, f)| (q.cloned(), nullable(f))).collect();
    for (at, (way, value)) in carried.iter().zip(&values).enumerate() {
        let value_type = match way {
            Carried::Last => value.get_type(input.schema())?,
            Carried::Straight => DataType::Float64,
        };
        fields.push((None, Arc::new(Field::new(name_of(at), value_type, true))));
    }
    let metadata = input.schema().metadata().clone();
    let schema = Arc::new(DFSchema::new_with_metadata(fields, metadata)?);
    let (groups, begins) = (aggregate.group_expr.len(), bounds.begins.len());
    let what =
        GapFill { time, groups, step: found.step, carried, begins, is_closed: bounds.is_closed };
    values.extend(bounds.begins.into_iter().chain(bounds.ends).map(as_time));
    let whole = Whole { what: What::GapFill(what), inputs: vec![(input, values)], schema };
    let plan = Projection::try_new(expr, Arc::new(whole.plan()))?;
    Ok(Transformed::yes(LogicalPlan::Projection(plan)))
}

/// The aggregation under the conditions of a `HAVING`.
fn below(mut plan: &LogicalPlan) -> (Option<&Aggregate>, Vec<&Filter>) {
    let mut filters = Vec::new();
    loop {
        match plan {
            LogicalPlan::Filter(filter) => {
                filters.push(filter);
                plan = &filter.input;
            }
            LogicalPlan::Aggregate(aggregate) => return (Some(aggregate), filters),
            _ => return (None, filters),
        }
    }
}

fn is_marked(expr: &Expr) -> bool {
    arguments_of(expr, GAP_FILL).is_some()
}

/// What `time_bucket_gapfill` was told.
struct Marked {
    width: Expr,
    step: i64,
    time: Expr,
    now: Expr,
    range: Option<(Expr, Expr)>,
}

fn marks(expr: &Expr) -> Option<Marked> {
    let (width, time, now, range) = match arguments_of(expr, GAP_FILL)? {
        [width, time, now] => (width, time, now, None),
        [width, time, now, from, to] => (width, time, now, Some((from.clone(), to.clone()))),
        _ => return None,
    };
    let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) = width else {
        return None;
    };
    let days = i64::from(interval.days).checked_mul(86_400_000_000_000)?;
    let step = days.checked_add(interval.nanoseconds)?;
    let (width, time, now) = (width.clone(), time.clone(), now.clone());
    (step > 0 && interval.months == 0).then_some(Marked { width, step, time, now, range })
}

/// The aggregation with plain buckets, by the names that it had.
fn binned(aggregate: &Aggregate, time: usize, found: &Marked) -> Result<LogicalPlan> {
    let mut groups = aggregate.group_expr.clone();
    let name = groups[time].schema_name().to_string();
    let arguments = vec![found.width.clone(), found.time.clone()];
    groups[time] = Expr::ScalarFunction(ScalarFunction::new_udf(date_bin(), arguments)).alias(name);
    let (input, expr) = (aggregate.input.clone(), aggregate.aggr_expr.clone());
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, groups, expr)?))
}

fn name_of(at: usize) -> String {
    format!("__carried_{at}")
}

/// `locf(x)` and `interpolate(x)` as columns that are made where gaps are filled.
fn carry(expr: Expr, carried: &mut Vec<Carried>, values: &mut Vec<Expr>) -> Result<Expr> {
    let replaced = expr.transform_down(|expr| {
        let (way, value) = match (arguments_of(&expr, LOCF), arguments_of(&expr, INTERPOLATE)) {
            (Some([value]), _) => (Carried::Last, value.clone()),
            (_, Some([value])) => (Carried::Straight, value.clone()),
            _ => return Ok(Transformed::no(expr)),
        };
        let column = Expr::Column(Column::from_name(name_of(carried.len())));
        carried.push(way);
        values.push(value);
        let column = column.alias(expr.schema_name().to_string());
        Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
    })?;
    Ok(replaced.data)
}

fn as_time(expr: Expr) -> Expr {
    let to = DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()));
    Expr::Cast(datafusion::logical_expr::Cast::new(Box::new(expr), to))
}

/// Where the buckets begin and end: the latest of the ones, the earliest of the others.
#[derive(Default)]
struct Bounds {
    begins: Vec<Expr>,
    ends: Vec<Expr>,
    is_closed: Vec<bool>,
}

impl Bounds {
    fn of(found: &Marked, input: &LogicalPlan) -> Self {
        let mut bounds = Self::default();
        if let Some((from, to)) = &found.range {
            bounds.begins.push(from.clone());
            bounds.end(to, false);
            return bounds;
        }
        if let LogicalPlan::Filter(filter) = input {
            for condition in split_conjunction(&filter.predicate) {
                bounds.learn(condition, &found.time);
            }
        }
        if bounds.ends.is_empty() {
            bounds.end(&found.now, true);
        }
        bounds
    }

    fn end(&mut self, at: &Expr, is_closed: bool) {
        self.ends.push(at.clone());
        self.is_closed.push(is_closed);
    }

    fn learn(&mut self, condition: &Expr, time: &Expr) {
        let is_time = |expr: &Expr| without_cast(expr) == without_cast(time);
        let is_constant = |expr: &Expr| expr.column_refs().is_empty();
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let (at, op) = match (is_time(left), is_time(right)) {
                    (true, false) if is_constant(right) => (right, *op),
                    (false, true) if is_constant(left) => (left, op.swap().unwrap_or(*op)),
                    _ => return,
                };
                match op {
                    Operator::Gt | Operator::GtEq => self.begins.push((**at).clone()),
                    Operator::Lt => self.end(at, false),
                    Operator::LtEq => self.end(at, true),
                    _ => {}
                }
            }
            Expr::Between(Between { expr, negated: false, low, high })
                if is_time(expr) && is_constant(low) && is_constant(high) =>
            {
                self.begins.push((**low).clone());
                self.end(high, true);
            }
            _ => {}
        }
    }
}

fn without_cast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => without_cast(&cast.expr),
        other => other,
    }
}

/// The rows of the answer, in the making.
#[derive(Default)]
struct Filled {
    /// Of each the row that was there.
    rows: Vec<Option<u32>>,
    /// Of each a row of its group.
    groups: Vec<u32>,
    times: Vec<Option<i64>>,
}

impl GapFill {
    pub(super) fn fill(
        &self,
        input: &Input,
        schema: SchemaRef,
        memory: &MemoryReservation,
    ) -> Result<RecordBatch> {
        if input.rows.num_rows() == 0 {
            return Ok(RecordBatch::new_empty(schema));
        }
        let filled = self.filled(input, memory)?;
        let rows = UInt32Array::from(filled.rows.clone());
        let groups = UInt32Array::from(filled.groups.clone());
        let mut columns: Vec<ArrayRef> = Vec::new();
        for (at, column) in input.rows.columns().iter().enumerate() {
            columns.push(match at {
                at if at == self.time => {
                    let times = TimestampNanosecondArray::from(filled.times.clone());
                    cast(&times, column.data_type())?
                }
                at if at < self.groups => take(column, &groups, None)?,
                _ => take(column, &rows, None)?,
            });
        }
        for (carried, value) in self.carried.iter().zip(&input.values) {
            columns.push(match carried {
                Carried::Last => take(value, &filled.last(), None)?,
                Carried::Straight => Arc::new(filled.straight(value)?),
            });
        }
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    fn filled(&self, input: &Input, memory: &MemoryReservation) -> Result<Filled> {
        let times = as_nanos(input.rows.column(self.time))?;
        let keys = self.keys(input)?;
        let mut order: Vec<u32> = (0..input.rows.num_rows() as u32).collect();
        let place = |row: &u32| {
            let row = *row as usize;
            (keys.row(row), times.is_valid(row).then(|| times.value(row)))
        };
        order.sort_by(|a, b| place(a).cmp(&place(b)));
        let (from, to) = self.range(input, &times)?;
        let buckets =
            if to < from { 0 } else { (to.abs_diff(from) / self.step as u64) as usize + 1 };
        let groups = order.chunk_by(|a, b| keys.row(*a as usize) == keys.row(*b as usize));
        let most = groups.clone().count().saturating_mul(buckets);
        if most > MAX_FILLED {
            return exec_err!(
                "time_bucket_gapfill would make {most} buckets, and the most is {MAX_FILLED}: ask for wider ones, or for less time"
            );
        }
        memory.try_grow(most.saturating_add(order.len()) * 3 * size_of::<u64>())?;
        let mut filled = Filled::default();
        for group in groups {
            let mut rows = group.iter().map(|row| (place(row).1, *row)).peekable();
            let mut push = |time, row| {
                filled.rows.push(row);
                filled.groups.push(group[0]);
                filled.times.push(time);
            };
            for bucket in 0..buckets {
                let time = Some(from + bucket as i64 * self.step);
                while let Some((before, row)) = rows.next_if(|(other, _)| *other < time) {
                    push(before, Some(row));
                }
                let here = rows.next_if(|(other, _)| *other == time);
                push(time, here.map(|(_, row)| row));
            }
            rows.for_each(|(time, row)| push(time, Some(row)));
        }
        Ok(filled)
    }

    /// What tells groups apart.
    fn keys(&self, input: &Input) -> Result<datafusion::arrow::row::Rows> {
        let is_key = |(at, _): &(usize, &ArrayRef)| *at < self.groups && *at != self.time;
        let mut keys: Vec<ArrayRef> = input
            .rows
            .columns()
            .iter()
            .enumerate()
            .filter(is_key)
            .map(|(_, column)| column.clone())
            .collect();
        if keys.is_empty() {
            let same = vec![true; input.rows.num_rows()];
            keys.push(Arc::new(datafusion::arrow::array::BooleanArray::from(same)));
        }
        let fields = keys.iter().map(|key| SortField::new(key.data_type().clone())).collect();
        Ok(RowConverter::new(fields)?.convert_columns(&keys)?)
    }

    /// The first bucket and the last.
    fn range(&self, input: &Input, times: &TimestampNanosecondArray) -> Result<(i64, i64)> {
        let bounds = &input.values[self.carried.len()..];
        let at = |bound: &ArrayRef| -> Result<Option<i64>> {
            let bound = as_nanos(bound)?;
            Ok(bound.is_valid(0).then(|| bound.value(0)))
        };
        let (mut from, mut to) = (None, None);
        for bound in &bounds[..self.begins] {
            from = from.max(at(bound)?);
        }
        for (bound, is_closed) in bounds[self.begins..].iter().zip(&self.is_closed) {
            let last = at(bound)?.map(|at| if *is_closed { at } else { at.saturating_sub(1) });
            to = [to, last].into_iter().flatten().min();
        }
        let bucket = |at: i64| at.div_euclid(self.step) * self.step;
        let first = from.or_else(|| times.iter().flatten().min());
        match (first, to) {
            (Some(from), Some(to)) => Ok((bucket(from), bucket(to))),
            _ => exec_err!("time_bucket_gapfill needs times to begin and to end at"),
        }
    }
}

fn as_nanos(column: &ArrayRef) -> Result<TimestampNanosecondArray> {
    let nanos = cast(column, &DataType::Timestamp(TimeUnit::Nanosecond, None))?;
    Ok(nanos.as_primitive::<TimestampNanosecondType>().clone())
}

impl Filled {
    /// Of each row the last one of its group that was there.
    fn last(&self) -> UInt32Array {
        let mut last: Option<(u32, u32)> = None;
        let carried = self.rows.iter().zip(&self.groups).map(|(row, group)| {
            if let Some(row) = row {
                last = Some((*group, *row));
            }
            last.filter(|(of, _)| of == group).map(|(_, row)| row)
        });
        carried.collect()
    }

    /// Of each row the one after it of its group that is there, and where that is.
    fn next(&self) -> Vec<Option<usize>> {
        let mut next: Option<usize> = None;
        let mut found: Vec<Option<usize>> = (0..self.rows.len())
            .rev()
            .map(|at| {
                if self.rows[at].is_some() {
                    next = Some(at);
                }
                next.filter(|next| self.groups[*next] == self.groups[at])
            })
            .collect();
        found.reverse();
        found
    }

    fn straight(&self, value: &ArrayRef) -> Result<Float64Array> {
        let numbers = cast(value, &DataType::Float64)?;
        let numbers = numbers.as_primitive::<datafusion::arrow::datatypes::Float64Type>();
        let number = |at: usize| {
            let row = self.rows[at]? as usize;
            numbers.is_valid(row).then(|| numbers.value(row))
        };
        let next = self.next();
        let mut before: Option<usize> = None;
        let straight = (0..self.rows.len()).map(|at| {
            if self.rows[at].is_some() {
                before = Some(at);
                return number(at);
            }
            let before = before.filter(|before| self.groups[*before] == self.groups[at])?;
            let after = next[at]?;
            let (from, here, to) = (self.times[before]?, self.times[at]?, self.times[after]?);
            let share = (here - from) as f64 / (to - from) as f64;
            let (low, high) = (number(before)?, number(after)?);
            Some(low + (high - low) * share)
        });
        Ok(straight.collect())
    }
}
