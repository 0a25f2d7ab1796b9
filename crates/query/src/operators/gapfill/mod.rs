//! `time_bucket_gapfill('10s', time)`: a bucket for every time, also for times without a row.
//!
//! The rules are TimescaleDB's. The call stands in `GROUP BY`. A bucket without rows has the columns that
//! are grouped by, and `NULL` for every aggregate. In the projection, `locf(x)` is the value of the bucket
//! before, and `interpolate(x)` lies on the straight line between the buckets around. A bucket with rows of
//! unknown value is not a gap: it stays unknown, and no value is carried over it.
//!
//! The buckets reach from the lower bound of the time in `WHERE`, else from the first row, to its upper
//! bound, else to now. Two more arguments of the call set both bounds.

mod plan;
mod fill;

pub(super) use fill::fill;
pub(super) use plan::planned;
