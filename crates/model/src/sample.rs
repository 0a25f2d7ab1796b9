use crate::{Structured, Timestamp, Value, ValueType};

/// Where a sample comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Origin {
    /// Read from its source at the sample's time.
    Measured,
    /// Computed for that time from earlier samples.
    Predicted {
        /// Half the width of the interval around the value that holds the true one with the
        /// predictor's stated coverage; in the value's unit, never negative.
        bound: f64,
    },
    /// There was no value from that time on: an insight whose inputs are missing. The sample's value
    /// is then NaN, or zero of an integer, or the reason as a text of a structured vertex.
    Unknown,
}

/// One value at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When it held.
    pub time: Timestamp,
    /// What it was.
    pub value: Value,
    /// Measured, predicted or unknown.
    pub origin: Origin,
}

impl Sample {
    /// A measured sample.
    pub fn measured(time: Timestamp, value: impl Into<Value>) -> Self {
        Self { time, value: value.into(), origin: Origin::Measured }
    }

    /// There is no value from `time` on, because of `reason`: a sample for a vertex of `value_type`.
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
