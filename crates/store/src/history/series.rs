//! Series, and their samples as columns.

use std::ops::Range;

use skopos_model::{Kind, Origin, Sample, Structured, Timestamp, Topic, Unit, Value, ValueType};

use super::column::Column;

/// A vertex from its registration to its end. Times of one series never go back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    /// Topic of the vertex.
    pub topic: Topic,
    /// Unit of its values.
    pub unit: Unit,
    /// Kind of its values: counter, gauge or state.
    pub kind: Kind,
    /// Type of its values.
    pub value_type: ValueType,
    /// Time of its registration. A vertex that is registered again is another series.
    pub since: Timestamp,
}

/// Names of the numbers in the column of origins.
pub const ORIGINS: [&str; 3] = ["measured", "predicted", "unknown"];

/// The origin of a sample as a number: an index of [`ORIGINS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OriginCode {
    Measured,
    Predicted,
    Unknown,
}

impl OriginCode {
    pub(super) fn of(origin: Origin) -> Self {
        match origin {
            Origin::Measured => Self::Measured,
            Origin::Predicted { .. } => Self::Predicted,
            Origin::Unknown => Self::Unknown,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        [Self::Measured, Self::Predicted, Self::Unknown].get(usize::from(code)).copied()
    }
}

/// Samples as columns, those of one series the oldest first. A value is a double as in SQL; it is null if it is
/// unknown, not finite or not a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// Times at which the values held, in nanoseconds of UNIX time.
    pub times: Vec<i64>,
    /// The numbers; NaN for null.
    pub values: Vec<f64>,
    /// Integers whose doubles are not exact, with their rows: the two's complement of an unsigned one.
    pub integers: Vec<(usize, i64)>,
    /// Indices of [`ORIGINS`].
    pub origins: Vec<u8>,
    /// Bounds of predicted samples, with their rows.
    pub bounds: Vec<(usize, f64)>,
    /// JSON of structured values, with their rows.
    pub texts: Vec<(usize, String)>,
}

impl Samples {
    /// Appends a sample.
    // Hot, and called from other crates: `push`, `push_measured`, `len` and `is_empty`.
    #[inline]
    pub fn push(&mut self, sample: &Sample) {
        let at = self.times.len();
        self.times.push(sample.time.as_nanos());
        let is_known = sample.origin != Origin::Unknown;
        let number = sample.value.as_f64().filter(|v| is_known && v.is_finite());
        self.values.push(number.unwrap_or(f64::NAN));
        if let Some(integer) = inexact(&sample.value).filter(|_| is_known) {
            self.integers.push((at, integer));
        }
        self.origins.push(OriginCode::of(sample.origin) as u8);
        if let Origin::Predicted { bound } = sample.origin {
            self.bounds.push((at, bound));
        }
        if let Value::Structured(structured) = &sample.value {
            self.texts.push((at, structured.to_string()));
        }
    }

    /// Appends a measured number.
    #[inline]
    pub fn push_measured(&mut self, time: Timestamp, value: f64) {
        self.times.push(time.as_nanos());
        self.values.push(if value.is_finite() { value } else { f64::NAN });
        self.origins.push(OriginCode::Measured as u8);
    }

    /// Appends all samples of `other`.
    pub(super) fn append(&mut self, other: &Self) {
        let at = self.len();
        self.append_rows(other, 0..other.len(), at, &Column::ALL);
    }

    /// Appends rows of some columns of `other`, which become the rows from `at` on.
    pub(super) fn append_rows(
        &mut self,
        other: &Self,
        rows: Range<usize>,
        at: usize,
        columns: &[Column],
    ) {
        for column in columns {
            match column {
                Column::Time => self.times.extend_from_slice(&other.times[rows.clone()]),
                Column::Value => self.values.extend_from_slice(&other.values[rows.clone()]),
                Column::Integer => {
                    let moved = |(row, integer): &(usize, i64)| (row - rows.start + at, *integer);
                    self.integers.extend(within(&other.integers, &rows).iter().map(moved));
                }
                Column::Origin => self.origins.extend_from_slice(&other.origins[rows.clone()]),
                Column::Bound => {
                    let moved = |(row, bound): &(usize, f64)| (row - rows.start + at, *bound);
                    self.bounds.extend(within(&other.bounds, &rows).iter().map(moved));
                }
                Column::Text => {
                    let moved =
                        |(row, text): &(usize, String)| (row - rows.start + at, text.clone());
                    self.texts.extend(within(&other.texts, &rows).iter().map(moved));
                }
            }
        }
    }

    /// Returns the sample of a row, if all columns are here, and values of the series have this type. A double that is
    /// null is NaN.
    pub fn sample(&self, row: usize, value_type: ValueType) -> Option<Sample> {
        let at = row..row + 1;
        let bound = within(&self.bounds, &at).first().map_or(f64::NAN, |(_, bound)| *bound);
        let origin = match OriginCode::from_code(*self.origins.get(row)?)? {
            OriginCode::Measured => Origin::Measured,
            OriginCode::Predicted => Origin::Predicted { bound },
            OriginCode::Unknown => Origin::Unknown,
        };
        let text = within(&self.texts, &at).first().map(|(_, text)| Structured::from_json(text));
        let value = match text {
            Some(Ok(structured)) => Value::Structured(structured),
            _ => self.number(row, value_type)?,
        };
        Some(Sample { time: Timestamp::from_nanos(*self.times.get(row)?), value, origin })
    }

    fn number(&self, row: usize, value_type: ValueType) -> Option<Value> {
        let value = *self.values.get(row)?;
        let integer = within(&self.integers, &(row..row + 1)).first().map(|(_, integer)| *integer);
        Some(match (value_type, integer) {
            (ValueType::U64, Some(integer)) => Value::U64(integer.cast_unsigned()),
            (ValueType::I64, Some(integer)) => Value::I64(integer),
            // These doubles are exact, or null: then the sample is unknown, and its value zero.
            (ValueType::U64, None) => Value::U64(value as u64),
            (ValueType::I64, None) => Value::I64(value as i64),
            _ => Value::F64(value),
        })
    }

    /// Returns the number of samples.
    #[inline]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns true if there are no samples.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }
}

/// Returns an integer whose double is not exact, as its two's complement.
#[inline]
fn inexact(value: &Value) -> Option<i64> {
    match value {
        // `as` saturates, so the greatest integers are compared in 128 bits.
        Value::U64(v) if (*v as f64) as u128 != u128::from(*v) => Some(v.cast_signed()),
        Value::I64(v) if (*v as f64) as i128 != i128::from(*v) => Some(*v),
        _ => None,
    }
}

/// Returns the values of some rows, of a column that has a value in few rows.
pub(super) fn within<'v, V>(values: &'v [(usize, V)], rows: &Range<usize>) -> &'v [(usize, V)] {
    let from = values.partition_point(|(row, _)| *row < rows.start);
    let to = values.partition_point(|(row, _)| *row < rows.end);
    &values[from..to]
}
