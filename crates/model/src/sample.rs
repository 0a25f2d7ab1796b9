use crate::{Timestamp, Value};

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
}

/// One value at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When it held.
    pub time: Timestamp,
    /// What it was.
    pub value: Value,
    /// Measured or predicted.
    pub origin: Origin,
}

impl Sample {
    /// A measured sample.
    pub fn measured(time: Timestamp, value: impl Into<Value>) -> Self {
        Self { time, value: value.into(), origin: Origin::Measured }
    }
}
