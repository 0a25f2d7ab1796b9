//! Turns a node's answer about its history into a part. Scans rely on the invariants of a part, so all of them are
//! checked here. A fuzz target passes any batches that decode.

use std::collections::BTreeMap;

use skopos_model::{Sample, Timestamp};
use skopos_store::history::{Part, Samples, Series};
use skopos_wire::{Batch, Description, IndexedSample};

/// Returns a node's answer as a part; `None` if the answer breaks an invariant of parts.
pub(super) fn part(node: &str, batches: Vec<Batch>) -> Option<Part> {
    let mut all: BTreeMap<u32, (Series, Samples)> = BTreeMap::new();
    let mut last: BTreeMap<u32, Timestamp> = BTreeMap::new();
    for batch in batches {
        for Description { index, topic, unit, kind, value_type } in batch.described {
            let since = Timestamp::default();
            let series = Series { topic, unit, kind, value_type, since };
            let is_own = series.topic.node() == node;
            if !is_own || all.insert(index, (series, Samples::default())).is_some() {
                return None;
            }
        }
        for IndexedSample { index, time, origin, value } in batch.samples {
            let (series, samples) = all.get_mut(&index)?;
            let value = value.value(series.value_type)?;
            // Times within a series never go back.
            if last.insert(index, time).is_some_and(|before| before > time) {
                return None;
            }
            samples.push(&Sample { time, value, origin });
        }
    }
    Some(Part::of_samples(all.into_values().collect()))
}
