//! `rate(x)` and `delta(x)`: how much values changed over the times at which they held.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray as _, Float64Array, Int64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

/// The name behind `rate`.
pub(crate) const RATE: &str = "rate_of_counter";
/// The name behind `delta`.
pub(crate) const DELTA: &str = "difference";

/// Change per second of a counter. One that falls was restarted, and has counted from zero since.
pub(crate) fn of_counter() -> AggregateUDF {
    AggregateUDF::from(Change::new(RATE))
}

/// The last value less the first.
pub(crate) fn difference() -> AggregateUDF {
    AggregateUDF::from(Change::new(DELTA))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Change {
    name: &'static str,
    signature: Signature,
}

impl Change {
    fn new(name: &'static str) -> Self {
        let types = vec![DataType::Float64, DataType::Int64];
        Self { name, signature: Signature::exact(types, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for Change {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Changes { of_counter: self.name == RATE, samples: Vec::new() }))
    }

    fn state_fields(&self, _: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let list = |name, item| {
            let item = Field::new_list_field(item, true);
            Arc::new(Field::new(name, DataType::List(Arc::new(item)), true))
        };
        Ok(vec![list("values", DataType::Float64), list("times", DataType::Int64)])
    }
}

/// The samples of one group. They may come in any order, so all are kept until the end.
#[derive(Debug)]
struct Changes {
    of_counter: bool,
    /// Times in nanoseconds, values.
    samples: Vec<(i64, f64)>,
}

impl Changes {
    fn take(&mut self, values: &Float64Array, times: &Int64Array) {
        let both = times.iter().zip(values.iter());
        self.samples.extend(both.filter_map(|(time, value)| Some((time?, value?))));
    }

    fn result(&mut self) -> Option<f64> {
        self.samples.sort_unstable_by_key(|(time, _)| *time);
        let ((from, first), (to, last)) = (*self.samples.first()?, *self.samples.last()?);
        if from == to {
            return None;
        }
        if !self.of_counter {
            return Some(last - first);
        }
        let step = |pair: &[(i64, f64)]| match pair[1].1 - pair[0].1 {
            fallen if fallen < 0.0 => pair[1].1,
            risen => risen,
        };
        let increase: f64 = self.samples.windows(2).map(step).sum();
        Some(increase / ((to - from) as f64 / 1e9))
    }
}

impl Accumulator for Changes {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (numbers, times) = (values[0].as_primitive::<Float64Type>(), &values[1]);
        self.take(numbers, times.as_primitive::<Int64Type>());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.result()))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.samples.capacity() * size_of::<(i64, f64)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let samples = || self.samples.iter();
        let values: Vec<_> = samples().map(|s| ScalarValue::Float64(Some(s.1))).collect();
        let times: Vec<_> = samples().map(|s| ScalarValue::Int64(Some(s.0))).collect();
        Ok(vec![
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float64)),
            ScalarValue::List(ScalarValue::new_list_nullable(&times, &DataType::Int64)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (values, times) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for (values, times) in values.iter().zip(times.iter()) {
            if let (Some(values), Some(times)) = (values, times) {
                self.take(values.as_primitive::<Float64Type>(), times.as_primitive::<Int64Type>());
            }
        }
        Ok(())
    }
}
