//! `rate(x)` and `delta(x)`: the change of values over time.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray as _, Float64Array, Int64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

/// Name of the aggregate behind `rate`.
pub(crate) const RATE: &str = "rate_of_counter";
/// Name of the aggregate behind `delta`.
pub(crate) const DELTA: &str = "difference";

/// Returns the change per second of a counter. A counter that falls was restarted, and its count meanwhile is
/// not known, so that step and its time are left out; so are steps from or to an unknown value. Insights
/// compute the same.
pub(crate) fn of_counter() -> AggregateUDF {
    AggregateUDF::from(Change::new(RATE))
}

/// Returns the last known value less the first.
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

/// The samples of one group. They may come in any order, so all of them are collected first.
#[derive(Debug)]
struct Changes {
    of_counter: bool,
    /// Times in nanoseconds, values.
    samples: Vec<(i64, f64)>,
}

impl Changes {
    fn take(&mut self, values: &Float64Array, times: &Int64Array) {
        let both = times.iter().zip(values.iter());
        let both = both.filter_map(|(time, value)| Some((time?, value.unwrap_or(f64::NAN))));
        self.samples.extend(both);
    }

    fn result(&mut self) -> Option<f64> {
        self.samples.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let result = if self.of_counter { self.rate() } else { self.difference() };
        result.filter(|number| number.is_finite())
    }

    fn rate(&self) -> Option<f64> {
        let (mut increase, mut nanos) = (0.0, 0_i128);
        for pair in self.samples.windows(2) {
            let (change, took) =
                (pair[1].1 - pair[0].1, i128::from(pair[1].0) - i128::from(pair[0].0));
            if change.is_finite() && change >= 0.0 {
                increase += change;
                nanos += took;
            }
        }
        (nanos > 0).then(|| increase / (nanos as f64 / 1e9))
    }

    /// Needs known values at two different times.
    fn difference(&self) -> Option<f64> {
        let mut known = self.samples.iter().filter(|(_, value)| value.is_finite());
        let (from, first) = *known.next()?;
        let (to, last) = *known.next_back()?;
        (from != to).then_some(last - first)
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
        let values: Vec<_> = samples().map(|s| ScalarValue::Float64(known(s.1))).collect();
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

fn known(value: f64) -> Option<f64> {
    (!value.is_nan()).then_some(value)
}
