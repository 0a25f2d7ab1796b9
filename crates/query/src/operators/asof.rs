//! `a ASOF JOIN b MATCH_CONDITION (a.time >= b.time) ON a.node = b.node`: joins each row of `a` with the
//! nearest row of `b` before it.
//!
//! The rules are Snowflake's: each row of `a` appears once, beside `NULL` if no row of `b` matches. Among
//! rows of `b` with the same time the greatest matches. `NULL` equals nothing and precedes nothing.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{BinaryExpr, Expr, Join, LogicalPlan, Operator, lit};

use crate::functions::placeholders::{AS_OF, arguments_of};
use crate::operators::node::{AsOf, Input, OperatorKind, OperatorNode};

/// Replaces a join by an `ASOF` join if its condition has the placeholder of one.
pub(super) fn planned(join: Join) -> Result<Transformed<LogicalPlan>> {
    let Some(filter) = &join.filter else { return Ok(Transformed::no(LogicalPlan::Join(join))) };
    let (mut matched, mut conditions) = (None, Vec::new());
    for condition in split_conjunction_owned(filter.clone()) {
        match arguments_of(&condition, AS_OF) {
            Some([comparison]) if matched.is_none() => matched = Some(comparison.clone()),
            _ => conditions.push(condition),
        }
    }
    let Some(matched) = matched else { return Ok(Transformed::no(LogicalPlan::Join(join))) };
    let (left, right) = (join.left.schema(), join.right.schema());
    let Some((before, op, after)) = sides(&matched, left, right) else {
        return plan_err!(
            "MATCH_CONDITION has to compare a column of the left table with one of the right"
        );
    };
    let (is_before, or_same) = match op {
        Operator::GtEq => (true, true),
        Operator::Gt => (true, false),
        Operator::LtEq => (false, true),
        Operator::Lt => (false, false),
        _ => return plan_err!("MATCH_CONDITION takes >=, >, <= or <, and not {op}"),
    };
    let (mut lefts, mut rights): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    for condition in &conditions {
        match sides(condition, left, right) {
            Some((one, Operator::Eq, other)) => {
                lefts.push(one);
                rights.push(other);
            }
            _ => {
                return plan_err!(
                    "ON of an ASOF JOIN takes equalities of columns: move `{condition}` to WHERE"
                );
            }
        }
    }
    if lefts.is_empty() {
        // Without keys all rows have the same constant key.
        lefts.push(lit(true));
        rights.push(lit(true));
    }
    lefts.push(before);
    rights.push(after);
    let inputs =
        vec![(Arc::unwrap_or_clone(join.left), lefts), (Arc::unwrap_or_clone(join.right), rights)];
    let operator = OperatorKind::AsOf(AsOf { is_before, or_same });
    Ok(Transformed::yes(OperatorNode { operator, inputs, schema: join.schema }.plan()))
}

/// Returns a comparison with its left operand from the left side and its right operand from the right one.
fn sides(condition: &Expr, left: &DFSchema, right: &DFSchema) -> Option<(Expr, Operator, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left: one, op, right: other }) = condition else {
        return None;
    };
    let is_from = |expr: &Expr, schema: &DFSchema| {
        let columns = expr.column_refs();
        !columns.is_empty() && columns.iter().all(|column| schema.has_column(column))
    };
    if is_from(one, left) && is_from(other, right) {
        return Some(((**one).clone(), *op, (**other).clone()));
    }
    (is_from(other, left) && is_from(one, right))
        .then(|| Some(((**other).clone(), op.swap()?, (**one).clone())))?
}

/// Joins two inputs whose last value is the time, and whose other values are the keys.
pub(super) fn join(
    condition: AsOf,
    left: &Input,
    right: &Input,
    schema: SchemaRef,
) -> Result<RecordBatch> {
    let (left_keys, right_keys) = compared(left, right, |all| &all[..all.len() - 1])?;
    let (left_times, right_times) = compared(left, right, |all| &all[all.len() - 1..])?;
    let is_complete = |input: &Input, row: usize| input.values.iter().all(|v| v.is_valid(row));
    let place = |row: u32| (right_keys.row(row as usize), right_times.row(row as usize));
    let mut sorted: Vec<u32> =
        (0..right.rows.num_rows() as u32).filter(|row| is_complete(right, *row as usize)).collect();
    sorted.sort_by(|a, b| place(*a).cmp(&place(*b)));
    settle(&mut sorted, &right.rows, |a, b| place(a) == place(b))?;
    let found = (0..left.rows.num_rows()).map(|row| {
        if !is_complete(left, row) {
            return None;
        }
        let (key, time) = (left_keys.row(row), left_times.row(row));
        // The rows before a backward match are earlier, or of the same time if that matches. The
        // rows before a forward match are those that do not match.
        let is_earlier = |other: &u32| match place(*other).cmp(&(key, time)) {
            Ordering::Less => true,
            Ordering::Equal => condition.is_before == condition.or_same,
            Ordering::Greater => false,
        };
        let at = sorted.partition_point(is_earlier);
        let nearest =
            if condition.is_before { *sorted.get(at.checked_sub(1)?)? } else { *sorted.get(at)? };
        if right_keys.row(nearest as usize) != key {
            return None;
        }
        // Among equally near rows the greatest matches, in either direction.
        let is_as_near = |other: &u32| place(*other) <= place(nearest);
        sorted.get(sorted.partition_point(is_as_near).checked_sub(1)?).copied()
    });
    let found: UInt32Array = found.collect();
    let beside = right.rows.columns().iter().map(|column| take(column, &found, None));
    let beside = beside.collect::<std::result::Result<Vec<_>, _>>()?;
    let columns = left.rows.columns().iter().cloned().chain(beside).collect();
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// Orders rows of the same key and time by their other columns, so that the answer does not depend on the
/// order in which threads read them.
fn settle(
    sorted: &mut [u32],
    rows: &RecordBatch,
    is_same: impl Fn(u32, u32) -> bool,
) -> Result<()> {
    let fields = rows.columns().iter().map(|c| SortField::new(c.data_type().clone()));
    let fields: Vec<SortField> = fields.collect();
    let is_settled = !sorted.windows(2).any(|pair| is_same(pair[0], pair[1]));
    // Rows of a type without an order stay in the order in which they came.
    if is_settled || fields.is_empty() || !RowConverter::supports_fields(&fields) {
        return Ok(());
    }
    let all = RowConverter::new(fields)?.convert_columns(rows.columns())?;
    for run in sorted.chunk_by_mut(|a, b| is_same(*a, *b)) {
        run.sort_by(|a, b| all.row(*a as usize).cmp(&all.row(*b as usize)));
    }
    Ok(())
}

/// Returns a part of the values of both sides in a comparable form.
fn compared(
    left: &Input,
    right: &Input,
    part: impl Fn(&[ArrayRef]) -> &[ArrayRef],
) -> Result<(Rows, Rows)> {
    let fields = part(&left.values).iter().map(|v| SortField::new(v.data_type().clone()));
    let converter = RowConverter::new(fields.collect())?;
    let rows = |input: &Input| converter.convert_columns(part(&input.values));
    Ok((rows(left)?, rows(right)?))
}
