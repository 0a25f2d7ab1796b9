//! The last samples of one vertex, stored compactly: a hub has hundreds of thousands of vertices.

use std::borrow::Cow;
use std::collections::VecDeque;

use skopos_model::{Origin, Sample, Scalar, Timestamp, Value, ValueType};

use crate::batch::Content;

/// Number of samples that are kept of each vertex: some seconds to minutes of its changes. Older samples
/// are in the history on disk.
const RECENT: usize = 32;

/// The last samples of a vertex, in the order of their times.
#[derive(Clone, Debug)]
pub struct Recent(Samples);

#[derive(Clone, Debug)]
enum Samples {
    Numbers { value_type: ValueType, slots: VecDeque<Slot> },
    Structured(VecDeque<Sample>),
}

/// A sample of a number, in 24 bytes; a [`Sample`] takes more than twice as many.
#[derive(Clone, Copy, Debug)]
struct Slot {
    time: Timestamp,
    bits: u64,
    /// Half the width of a predicted value's interval, which is never negative, or one of the two
    /// constants below.
    bound: f64,
}

const MEASURED: f64 = -1.0;
const UNKNOWN: f64 = -2.0;

impl Slot {
    fn new(time: Timestamp, bits: u64, origin: Origin) -> Self {
        let bound = match origin {
            Origin::Measured => MEASURED,
            Origin::Unknown => UNKNOWN,
            // It came from another node and may be any number.
            Origin::Predicted { bound } => bound.max(0.0),
        };
        Self { time, bits, bound }
    }

    #[inline]
    fn sample(&self, value_type: ValueType) -> Option<Sample> {
        let origin = match self.bound {
            MEASURED => Origin::Measured,
            UNKNOWN => Origin::Unknown,
            bound => Origin::Predicted { bound },
        };
        let value = Value::from(Scalar::from_bits(value_type, self.bits)?);
        Some(Sample { time: self.time, value, origin })
    }
}

impl Recent {
    pub(crate) fn new(value_type: ValueType) -> Self {
        Self(match value_type {
            ValueType::Structured => Samples::Structured(VecDeque::new()),
            _ => Samples::Numbers { value_type, slots: VecDeque::new() },
        })
    }

    /// Appends a sample, which is later than the last one and has the vertex's type. Evicts the oldest
    /// sample if there are too many.
    pub(crate) fn push(&mut self, sample: Sample) {
        match &mut self.0 {
            Samples::Structured(samples) => push_last(samples, sample),
            Samples::Numbers { slots, .. } => {
                let Content::Bits(bits) = Content::from(&sample.value) else { return };
                push_last(slots, Slot::new(sample.time, bits, sample.origin));
            }
        }
    }

    /// Returns the time of the oldest sample.
    // Hot, and called from other crates: `first_time`, `last_time` and `last`.
    #[inline]
    pub fn first_time(&self) -> Option<Timestamp> {
        match &self.0 {
            Samples::Numbers { slots, .. } => slots.front().map(|slot| slot.time),
            Samples::Structured(samples) => samples.front().map(|sample| sample.time),
        }
    }

    /// Returns the time of the latest sample.
    #[inline]
    pub fn last_time(&self) -> Option<Timestamp> {
        match &self.0 {
            Samples::Numbers { slots, .. } => slots.back().map(|slot| slot.time),
            Samples::Structured(samples) => samples.back().map(|sample| sample.time),
        }
    }

    /// Returns the latest sample.
    #[inline]
    pub fn last(&self) -> Option<Cow<'_, Sample>> {
        match &self.0 {
            Samples::Numbers { value_type, slots } => {
                slots.back()?.sample(*value_type).map(Cow::Owned)
            }
            Samples::Structured(samples) => samples.back().map(Cow::Borrowed),
        }
    }

    /// Returns all samples, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Cow<'_, Sample>> {
        let (numbers, structured) = match &self.0 {
            Samples::Numbers { value_type, slots } => (Some((*value_type, slots)), None),
            Samples::Structured(samples) => (None, Some(samples)),
        };
        let numbers = numbers.into_iter().flat_map(|(value_type, slots)| {
            slots.iter().filter_map(move |slot| slot.sample(value_type)).map(Cow::Owned)
        });
        numbers.chain(structured.into_iter().flatten().map(Cow::Borrowed))
    }
}

fn push_last<T>(all: &mut VecDeque<T>, item: T) {
    if all.len() == RECENT {
        all.pop_front();
    }
    all.push_back(item);
}

#[cfg(test)]
mod tests {
    use skopos_model::Structured;

    use super::*;

    #[test]
    fn samples_come_back_unchanged_and_the_oldest_are_evicted() {
        let at = Timestamp::from_nanos;
        let predicted = Origin::Predicted { bound: 0.5 };
        let of = |value: Value, origin| Sample { time: at(1), value, origin };
        for sample in [
            of(Value::F64(-0.25), Origin::Measured),
            of(Value::I64(-3), predicted),
            of(Value::U64(u64::MAX), Origin::Unknown),
            of(Value::F64(2.0), Origin::Predicted { bound: 0.0 }),
            of(Value::Structured(Structured::text("a text")), Origin::Unknown),
        ] {
            let mut recent = Recent::new(sample.value.value_type());
            recent.push(sample.clone());
            assert_eq!(recent.last().as_deref(), Some(&sample));
            for n in 2..RECENT as i64 + 2 {
                recent.push(Sample { time: at(n), ..sample.clone() });
            }
            let times: Vec<i64> = recent.iter().map(|sample| sample.time.as_nanos()).collect();
            assert!(times.into_iter().eq(2..RECENT as i64 + 2));
            assert_eq!(recent.first_time(), Some(at(2)));
            assert_eq!(recent.last_time(), Some(at(RECENT as i64 + 1)));
        }
    }
}
