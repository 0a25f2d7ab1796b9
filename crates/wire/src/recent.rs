//! The last samples of one vertex, stored compactly: a hub has hundreds of thousands of vertices.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde_json::Value as Json;
use skopos_model::{Sample, Timestamp, Value, ValueType};

use crate::batch::Content;
use crate::packed::{Packed, Slot};

/// Number of samples that are kept of each vertex: some seconds to minutes of its changes. Older samples
/// are in the history on disk.
const RECENT: u8 = 32;

/// The last samples of a vertex, in the order of their times.
#[derive(Clone, Debug)]
pub struct Recent(Samples);

#[derive(Clone, Debug)]
enum Samples {
    Numbers(Packed),
    /// With the memory that their values take: see [`structured_bytes`].
    Structured {
        samples: VecDeque<Sample>,
        bytes: usize,
    },
}

impl Recent {
    pub(crate) fn new(value_type: ValueType) -> Self {
        Self(match value_type {
            ValueType::Structured => Samples::Structured { samples: VecDeque::new(), bytes: 0 },
            _ => Samples::Numbers(Packed::new(value_type)),
        })
    }

    /// Appends a sample, which is later than the last one and has the vertex's type. Evicts the oldest
    /// sample if there are too many.
    pub(crate) fn push(&mut self, sample: Sample) {
        match &mut self.0 {
            Samples::Structured { samples, bytes } => {
                *bytes += structured_bytes(&sample.value);
                let oldest = push_last(samples, sample);
                *bytes -= oldest.map_or(0, |oldest| structured_bytes(&oldest.value));
            }
            Samples::Numbers(packed) => {
                let Content::Bits(bits) = Content::from(&sample.value) else { return };
                packed.push(Slot::new(sample.time, bits, sample.origin), RECENT);
            }
        }
    }

    /// Makes room for a structured value: evicts the oldest samples until it fits beside the rest in `all` bytes of memory,
    /// or no other is left. Returns false, and evicts nothing, if it takes more than `latest` bytes itself. A number
    /// always fits.
    pub(crate) fn make_room(&mut self, value: &Value, latest: usize, all: usize) -> bool {
        let Samples::Structured { samples, bytes } = &mut self.0 else { return true };
        let new = structured_bytes(value);
        if new > latest {
            return false;
        }
        while *bytes + new > all {
            let Some(oldest) = samples.pop_front() else { break };
            *bytes -= structured_bytes(&oldest.value);
        }
        true
    }

    /// Returns the memory that its structured values take: see [`structured_bytes`].
    #[inline]
    pub(crate) fn structured_bytes(&self) -> usize {
        match &self.0 {
            Samples::Structured { bytes, .. } => *bytes,
            Samples::Numbers(_) => 0,
        }
    }

    /// Returns the time of the oldest sample.
    // Hot, and called from other crates: `first_time`, `last_time` and `last`.
    #[inline]
    pub fn first_time(&self) -> Option<Timestamp> {
        match &self.0 {
            Samples::Numbers(packed) => packed.first().map(|slot| slot.time),
            Samples::Structured { samples, .. } => samples.front().map(|sample| sample.time),
        }
    }

    /// Returns the time of the latest sample.
    #[inline]
    pub fn last_time(&self) -> Option<Timestamp> {
        match &self.0 {
            Samples::Numbers(packed) => packed.last().map(|slot| slot.time),
            Samples::Structured { samples, .. } => samples.back().map(|sample| sample.time),
        }
    }

    /// Returns the latest sample.
    #[inline]
    pub fn last(&self) -> Option<Cow<'_, Sample>> {
        match &self.0 {
            Samples::Numbers(packed) => packed.last()?.sample(packed.value_type()).map(Cow::Owned),
            Samples::Structured { samples, .. } => samples.back().map(Cow::Borrowed),
        }
    }

    /// Returns all samples, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Cow<'_, Sample>> {
        let (numbers, structured) = match &self.0 {
            Samples::Numbers(packed) => (Some(packed), None),
            Samples::Structured { samples, .. } => (None, Some(samples)),
        };
        let numbers = numbers.into_iter().flat_map(|packed| {
            packed.iter().filter_map(|slot| slot.sample(packed.value_type())).map(Cow::Owned)
        });
        numbers.chain(structured.into_iter().flatten().map(Cow::Borrowed))
    }
}

/// Appends an item. Returns the oldest one, which gives way to it if there are too many.
fn push_last<T>(all: &mut VecDeque<T>, item: T) -> Option<T> {
    let oldest = if all.len() >= usize::from(RECENT) { all.pop_front() } else { None };
    all.push_back(item);
    oldest
}

/// The fewest items for which a list has room once it has any, as the standard library reserves it.
const LEAST_ROOM: usize = 4;

/// The room of a node of a map's tree, in fields, and the fewest that each node has except the first one.
const NODE_ROOM: usize = 11;
const NODE_LEAST: usize = 5;

/// Returns an upper bound of the memory that a structured value takes, in bytes; 0 for a number. A list of small values
/// takes up to 32 times its text, and a list of small records about a hundred times.
fn structured_bytes(value: &Value) -> usize {
    match value {
        Value::Structured(structured) => size_of::<Json>() + json_bytes(structured.as_json()),
        Value::F64(_) | Value::I64(_) | Value::U64(_) => 0,
    }
}

/// Returns an upper bound of the memory that JSON takes on the heap.
fn json_bytes(json: &Json) -> usize {
    match json {
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
        Json::String(text) => text.len(),
        Json::Array(items) => {
            // A list that grows doubles its room.
            let room = (!items.is_empty()).then(|| (2 * items.len()).max(LEAST_ROOM));
            let items: usize = items.iter().map(json_bytes).sum();
            room.unwrap_or_default() * size_of::<Json>() + items
        }
        Json::Object(fields) => {
            let nodes = (!fields.is_empty()).then(|| 1 + fields.len() / NODE_LEAST);
            let node = NODE_ROOM * (size_of::<String>() + size_of::<Json>() + size_of::<usize>());
            let fields = fields.iter().map(|(name, value)| name.len() + json_bytes(value));
            nodes.unwrap_or_default() * node + fields.sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use skopos_model::{Origin, Structured};

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
            for n in 2..i64::from(RECENT) + 2 {
                recent.push(Sample { time: at(n), ..sample.clone() });
            }
            let times: Vec<i64> = recent.iter().map(|sample| sample.time.as_nanos()).collect();
            assert!(times.into_iter().eq(2..i64::from(RECENT) + 2));
            assert_eq!(recent.first_time(), Some(at(2)));
            assert_eq!(recent.last_time(), Some(at(i64::from(RECENT) + 1)));
        }
    }

    #[test]
    fn structured_values_count_as_much_memory_as_they_take() {
        let value = |json: &str| Value::Structured(Structured::from_json(json).expect("JSON"));
        let bytes = |json: &str| structured_bytes(&value(json));
        let (numbers, records) = (vec!["0"; 2000].join(","), vec!["{\"\":0}"; 500].join(","));
        assert!(bytes(&format!("[{numbers}]")) >= 2000 * size_of::<Json>());
        assert!(
            bytes(&format!("[{records}]")) >= 500 * 600,
            "a record of one field has room for 11"
        );
        assert!((1000..1200).contains(&bytes(&format!("\"{}\"", "x".repeat(1000)))));
        assert_eq!(structured_bytes(&Value::U64(7)), 0);

        let mut recent = Recent::new(ValueType::Structured);
        let (short, long) = (value("\"x\""), value("[1,2,3]"));
        for n in 0..3 * i64::from(RECENT) {
            let value = if n % 3 == 0 { long.clone() } else { short.clone() };
            let (time, origin) = (Timestamp::from_nanos(n), Origin::Measured);
            recent.push(Sample { time, value, origin });
            let kept: usize = recent.iter().map(|sample| structured_bytes(&sample.value)).sum();
            assert_eq!(recent.structured_bytes(), kept);
        }
        let (all, new) = (recent.structured_bytes(), structured_bytes(&short));
        assert!(!recent.make_room(&short, new - 1, 0), "it is too long");
        assert!(recent.make_room(&short, new, all + new) && recent.structured_bytes() == all);
        assert!(recent.make_room(&short, new, all + new - 1), "the oldest one gives way");
        assert_eq!(recent.iter().count(), usize::from(RECENT) - 1);
        assert!(recent.make_room(&short, new, 0), "all give way");
        assert_eq!((recent.structured_bytes(), recent.last_time()), (0, None));
    }
}
