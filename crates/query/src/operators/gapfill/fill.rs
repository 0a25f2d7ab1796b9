//! Fills the gaps between the rows of an aggregation.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, Float64Array, RecordBatch,
    TimestampNanosecondArray, UInt32Array,
};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{
    DataType, Float64Type, SchemaRef, TimeUnit, TimestampNanosecondType,
};
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;

use crate::functions::placeholders::GAP_FILL;
use crate::operators::node::{Carried, GapFill, Input};

/// Number of buckets of one answer, with and without rows: a plot of a thousand series with a thousand
/// points fits.
const MAX_BUCKETS: usize = 1_000_000;

/// The rows of the answer, column by column.
#[derive(Default)]
struct Filled {
    /// The row of the input; `None` in a gap.
    rows: Vec<Option<u32>>,
    /// Some row of the input of the same group.
    groups: Vec<u32>,
    times: Vec<Option<i64>>,
}

/// Returns the rows of an aggregation with a row for every bucket of every group.
pub(crate) fn fill(
    gaps: &GapFill,
    input: &Input,
    schema: SchemaRef,
    memory: &MemoryReservation,
) -> Result<RecordBatch> {
    if input.rows.num_rows() == 0 {
        return Ok(RecordBatch::new_empty(schema));
    }
    let filled = filled(gaps, input, memory)?;
    let rows = UInt32Array::from(filled.rows.clone());
    let groups = UInt32Array::from(filled.groups.clone());
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (at, column) in input.rows.columns().iter().enumerate() {
        columns.push(match at {
            at if at == gaps.time => {
                let times = TimestampNanosecondArray::from(filled.times.clone());
                cast(&times, column.data_type())?
            }
            at if at < gaps.groups => take(column, &groups, None)?,
            _ => take(column, &rows, None)?,
        });
    }
    for (carried, value) in gaps.carried.iter().zip(&input.values) {
        columns.push(match carried {
            Carried::Last => take(value, &filled.last(), None)?,
            Carried::Straight => Arc::new(filled.straight(value)?),
        });
    }
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn filled(gaps: &GapFill, input: &Input, memory: &MemoryReservation) -> Result<Filled> {
    let times = as_nanos(input.rows.column(gaps.time))?;
    let keys = keys(gaps, input)?;
    let mut order: Vec<u32> = (0..input.rows.num_rows() as u32).collect();
    let place = |row: &u32| {
        let row = *row as usize;
        (keys.row(row), times.is_valid(row).then(|| times.value(row)))
    };
    order.sort_by(|a, b| place(a).cmp(&place(b)));
    let (from, to) = range(gaps, input, &times)?;
    let buckets = if to < from { 0 } else { (to.abs_diff(from) / gaps.step as u64) as usize + 1 };
    let groups = order.chunk_by(|a, b| keys.row(*a as usize) == keys.row(*b as usize));
    let most = groups.clone().count().saturating_mul(buckets);
    if most > MAX_BUCKETS {
        return exec_err!(
            "{GAP_FILL} would make {most} buckets, and {MAX_BUCKETS} are the most: ask for wider ones, or for less time"
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
            let time = Some(from + bucket as i64 * gaps.step);
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

/// Returns the columns that tell groups apart, in a comparable form.
fn keys(gaps: &GapFill, input: &Input) -> Result<Rows> {
    let is_key = |(at, _): &(usize, &ArrayRef)| *at < gaps.groups && *at != gaps.time;
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
        keys.push(Arc::new(BooleanArray::from(same)));
    }
    let fields = keys.iter().map(|key| SortField::new(key.data_type().clone())).collect();
    Ok(RowConverter::new(fields)?.convert_columns(&keys)?)
}

/// Returns the first bucket and the last one.
fn range(gaps: &GapFill, input: &Input, times: &TimestampNanosecondArray) -> Result<(i64, i64)> {
    let bounds = &input.values[gaps.carried.len()..];
    let at = |bound: &ArrayRef| -> Result<Option<i64>> {
        let bound = as_nanos(bound)?;
        Ok(bound.is_valid(0).then(|| bound.value(0)))
    };
    let (mut from, mut to) = (None, None);
    for bound in &bounds[..gaps.begins] {
        from = from.max(at(bound)?);
    }
    for (bound, is_closed) in bounds[gaps.begins..].iter().zip(&gaps.is_closed) {
        let last = at(bound)?.map(|at| if *is_closed { at } else { at.saturating_sub(1) });
        to = [to, last].into_iter().flatten().min();
    }
    let bucket = |at: i64| at.div_euclid(gaps.step) * gaps.step;
    let first = from.or_else(|| times.iter().flatten().min());
    match (first, to) {
        (Some(from), Some(to)) => Ok((bucket(from), bucket(to))),
        _ => exec_err!("{GAP_FILL} needs a time to begin at and one to end at: add them to WHERE"),
    }
}

fn as_nanos(column: &ArrayRef) -> Result<TimestampNanosecondArray> {
    let nanos = cast(column, &DataType::Timestamp(TimeUnit::Nanosecond, None))?;
    Ok(nanos.as_primitive::<TimestampNanosecondType>().clone())
}

impl Filled {
    /// Returns for each row the last row of the input of its group up to it.
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

    /// Returns for each row the place of the next row of its group that the input has.
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
        let numbers = numbers.as_primitive::<Float64Type>();
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
