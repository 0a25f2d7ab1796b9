//! Whose samples they are, and samples as columns.

use skopos_model::{Kind, Origin, Sample, Timestamp, Topic, Unit, Value, ValueType};

/// A vertex from when it was registered until it went: samples of one series never go back in time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    /// Its topic.
    pub topic: Topic,
    /// The unit of its values.
    pub unit: Unit,
    /// How they move.
    pub kind: Kind,
    /// Their type.
    pub value_type: ValueType,
    /// When the vertex was registered: one that comes again is another series.
    pub since: Timestamp,
}

/// What the numbers in the column of origins stand for.
pub const ORIGINS: [&str; 3] = ["measured", "predicted", "unknown"];

/// Where a sample comes from, as a column has it: a place in [`ORIGINS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Measured,
    Predicted,
    Unknown,
}

impl From {
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

/// Samples of one series as columns of one length, the oldest first. Values are as SQL has them: a
/// double, or none where it is unknown, not finite or no number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    pub(super) times: Vec<i64>,
    /// NaN for none.
    pub(super) values: Vec<f64>,
    pub(super) origins: Vec<u8>,
    /// Of predicted ones, with their places.
    pub(super) bounds: Vec<(usize, f64)>,
    /// Of structured ones, with their places.
    pub(super) texts: Vec<(usize, String)>,
}

impl Samples {
    /// Appends one.
    pub fn push(&mut self, sample: &Sample) {
        let at = self.times.len();
        self.times.push(sample.time.as_nanos());
        let is_known = sample.origin != Origin::Unknown;
        let number = sample.value.as_f64().filter(|v| is_known && v.is_finite());
        self.values.push(number.unwrap_or(f64::NAN));
        self.origins.push(From::of(sample.origin) as u8);
        if let Origin::Predicted { bound } = sample.origin {
            self.bounds.push((at, bound));
        }
        if let Value::Structured(structured) = &sample.value {
            self.texts.push((at, structured.to_string()));
        }
    }

    /// Appends a measured number.
    pub fn push_measured(&mut self, time: Timestamp, value: f64) {
        self.times.push(time.as_nanos());
        self.values.push(if value.is_finite() { value } else { f64::NAN });
        self.origins.push(From::Measured as u8);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }
}
