use crate::structured::Structured;
use crate::time::Timestamp;
use crate::value::Value;
use crate::value_type::ValueType;

/// The origin of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Origin {
    /// Read from its source at the sample's time.
    Measured,
    /// Computed for that time from earlier samples.
    Predicted {
        /// Half the width of the interval around the value that holds the true value with the
        /// predictor's stated coverage; in the value's unit, never negative.
        bound: f64,
    },
    /// There was no value from that time on: the inputs of an insight were missing. The value of the
    /// sample is then NaN for a double, zero for an integer, and the reason for a structured vertex.
    Unknown,
}

/// One value at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The time from which the value held.
    pub time: Timestamp,
    /// The value.
    pub value: Value,
    /// The origin: measured, predicted or unknown.
    pub origin: Origin,
}

impl Sample {
    /// Makes a measured sample.
    #[inline]
    pub fn measured(time: Timestamp, value: impl Into<Value>) -> Self {
        Self { time, value: value.into(), origin: Origin::Measured }
    }

    /// Makes a sample for a vertex of `value_type` without a value from `time` on, because of `reason`.
    pub fn unknown(time: Timestamp, value_type: ValueType, reason: &str) -> Self {
        let value = match value_type {
            ValueType::F64 => Value::F64(f64::NAN),
            ValueType::I64 => Value::I64(0),
            ValueType::U64 => Value::U64(0),
            ValueType::Structured => Value::Structured(Structured::text(reason)),
        };
        Self { time, value, origin: Origin::Unknown }
    }
}
