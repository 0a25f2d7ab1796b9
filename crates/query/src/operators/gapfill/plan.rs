//! Recognises gap filling in a logical plan.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::functions::datetime::date_bin;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, Between, BinaryExpr, Cast, Expr, ExprSchemable as _, Filter, LogicalPlan, Operator,
    Projection,
};

use crate::column::time_type;
use crate::functions::placeholders::{GAP_FILL, INTERPOLATE, LOCF, arguments_of};
use crate::operators::node::{Carried, GapFill, OperatorKind, OperatorNode};

/// Replaces a projection over an aggregation that is grouped by the placeholder by the operator.
pub(crate) fn planned(projection: Projection) -> Result<Transformed<LogicalPlan>> {
    let (aggregate, filters) = below(&projection.input);
    let position = |a: &Aggregate| a.group_expr.iter().position(is_gap_fill);
    let Some((aggregate, time)) = aggregate.and_then(|a| Some((a, position(a)?))) else {
        return Ok(Transformed::no(LogicalPlan::Projection(projection)));
    };
    let Some(call) = Call::of(&aggregate.group_expr[time]) else {
        return plan_err!(
            "{GAP_FILL} takes a constant width and a time, as in {GAP_FILL}('1m', time)"
        );
    };
    // HAVING selects among the rows of the aggregation, before gaps are filled.
    let mut input = with_plain_buckets(aggregate, time, &call)?;
    for filter in filters.iter().rev() {
        input = LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(input))?);
    }
    let (mut carried, mut values) = (Vec::new(), Vec::new());
    let expr = projection.expr.into_iter().map(|expr| carry(expr, &mut carried, &mut values));
    let expr = expr.collect::<Result<Vec<_>>>()?;
    let bounds = Bounds::of(&call, &aggregate.input);
    // Every column is NULL in a gap, also one that the aggregation never makes NULL.
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
    let is_closed = bounds.is_closed;
    let gaps = GapFill { time, groups, step: call.step, carried, begins, is_closed };
    values.extend(bounds.begins.into_iter().chain(bounds.ends).map(as_time));
    let operator = OperatorKind::GapFill(gaps);
    let node = OperatorNode { operator, inputs: vec![(input, values)], schema };
    let plan = Projection::try_new(expr, Arc::new(node.plan()))?;
    Ok(Transformed::yes(LogicalPlan::Projection(plan)))
}

/// Returns the aggregation below the conditions of a `HAVING`, and these conditions.
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

fn is_gap_fill(expr: &Expr) -> bool {
    arguments_of(expr, GAP_FILL).is_some()
}

/// The arguments of a call of `time_bucket_gapfill`.
struct Call {
    width: Expr,
    /// The width in nanoseconds.
    step: i64,
    time: Expr,
    now: Expr,
    /// Beginning and end, if the call names them.
    range: Option<(Expr, Expr)>,
}

impl Call {
    fn of(expr: &Expr) -> Option<Self> {
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
        (step > 0 && interval.months == 0).then_some(Self { width, step, time, now, range })
    }
}

/// Returns the aggregation with plain buckets under the same names.
fn with_plain_buckets(aggregate: &Aggregate, time: usize, call: &Call) -> Result<LogicalPlan> {
    let mut groups = aggregate.group_expr.clone();
    let name = groups[time].schema_name().to_string();
    let arguments = vec![call.width.clone(), call.time.clone()];
    groups[time] = Expr::ScalarFunction(ScalarFunction::new_udf(date_bin(), arguments)).alias(name);
    let (input, expr) = (aggregate.input.clone(), aggregate.aggr_expr.clone());
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, groups, expr)?))
}

fn name_of(at: usize) -> String {
    format!("__carried_{at}")
}

/// Replaces `locf(x)` and `interpolate(x)` by columns that the operator makes.
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
    Expr::Cast(Cast::new(Box::new(expr), time_type()))
}

/// Bounds of the buckets: they begin at the latest of `begins` and end at the earliest of `ends`.
#[derive(Default)]
struct Bounds {
    begins: Vec<Expr>,
    ends: Vec<Expr>,
    is_closed: Vec<bool>,
}

impl Bounds {
    fn of(call: &Call, input: &LogicalPlan) -> Self {
        let mut bounds = Self::default();
        if let Some((from, to)) = &call.range {
            bounds.begins.push(from.clone());
            bounds.end(to, false);
            return bounds;
        }
        if let LogicalPlan::Filter(filter) = input {
            for condition in split_conjunction(&filter.predicate) {
                bounds.add(condition, &call.time);
            }
        }
        if bounds.ends.is_empty() {
            bounds.end(&call.now, true);
        }
        bounds
    }

    fn end(&mut self, at: &Expr, is_closed: bool) {
        self.ends.push(at.clone());
        self.is_closed.push(is_closed);
    }

    fn add(&mut self, condition: &Expr, time: &Expr) {
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
