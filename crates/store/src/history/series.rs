//! Series, and their samples as columns.

use skopos_model::{Kind, Origin, Sample, Timestamp, Topic, Unit, Value, ValueType};

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

/// Samples of one series as columns of one length, the oldest first. A value is a double as in SQL; it is
/// null if it is unknown, not finite or not a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    pub(super) times: Vec<i64>,
    /// NaN for null.
    pub(super) values: Vec<f64>,
    pub(super) origins: Vec<u8>,
    /// Bounds of predicted samples, with their rows.
    pub(super) bounds: Vec<(usize, f64)>,
    /// JSON of structured values, with their rows.
    pub(super) texts: Vec<(usize, String)>,
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
