//! What a node says that it has kept, as a part. All of it is checked here, for those who scan it rely on
//! it: a fuzz target hands over whatever decodes.

use std::collections::BTreeMap;

use skopos_model::{Sample, Timestamp};
use skopos_store::history::{Part, Samples, Series};
use skopos_wire::{Batch, Description, IndexedSample};

/// What a node said as a part; `None` if it says what cannot be.
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
            // Whoever reads them relies on it.
            if last.insert(index, time).is_some_and(|before| before > time) {
                return None;
            }
            samples.push(&Sample { time, value, origin });
        }
    }
    Part::of_samples(all.into_values().collect()).ok()
}
