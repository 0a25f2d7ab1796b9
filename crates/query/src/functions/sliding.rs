//! `sum` and `avg` of doubles in a window, from a sum without rounding.

use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray as _};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{ScalarValue, not_impl_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use skopos_eval::Exact;

/// Returns the sum.
pub(crate) fn sum() -> AggregateUDF {
    AggregateUDF::from(Sliding::new("sum", false))
}

/// Returns the average.
pub(crate) fn average() -> AggregateUDF {
    AggregateUDF::from(Sliding::new("avg", true))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sliding {
    name: &'static str,
    is_average: bool,
    signature: Signature,
}

impl Sliding {
    fn new(name: &'static str, is_average: bool) -> Self {
        let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
        Self { name, is_average, signature }
    }
}

impl AggregateUDFImpl for Sliding {
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
        Ok(Box::new(Window {
            is_average: self.is_average,
            finite: Exact::new(),
            count: 0,
            others: [0; 3],
        }))
    }

    fn state_fields(&self, _: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new("sum", DataType::Float64, true))])
    }
}

/// The numbers in the window.
#[derive(Debug)]
struct Window {
    is_average: bool,
    finite: Exact,
    /// All of them that are known.
    count: i64,
    /// Numbers of NaN, of infinity and of minus infinity.
    others: [i64; 3],
}

impl Window {
    fn each(&mut self, values: &[ArrayRef], mut change: impl FnMut(&mut Self, f64)) {
        let numbers = values[0].as_primitive::<Float64Type>();
        numbers.iter().flatten().for_each(|number| change(self, number));
    }

    fn count(&mut self, number: f64, times: i64) {
        self.count += times;
        let other = match number {
            _ if number.is_nan() => 0,
            f64::INFINITY => 1,
            f64::NEG_INFINITY => 2,
            _ => return,
        };
        self.others[other] += times;
    }

    fn sum(&self) -> f64 {
        match self.others {
            [0, 0, 0] => self.finite.value(),
            [0, _, 0] => f64::INFINITY,
            [0, 0, _] => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }
}

impl Accumulator for Window {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(values, |window, number| {
            window.count(number, 1);
            if number.is_finite() {
                window.finite.add(number);
            }
        });
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(values, |window, number| {
            window.count(number, -1);
            if number.is_finite() {
                window.finite.take(number);
            }
        });
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let divisor = if self.is_average { self.count as f64 } else { 1.0 };
        Ok(ScalarValue::Float64((self.count > 0).then(|| self.sum() / divisor)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        not_impl_err!("a window is not computed in parts")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        not_impl_err!("a window is not computed in parts")
    }
}
