//! Block hotness (Table 1, row 4): the number of accesses to each block.
//!
//! ```text
//! (BlockID, frequency of access)
//! ```
//!
//! A device has billions of blocks, so the insight lists only the hottest, with neighbours
//! together, as `block_access` counts them. It is a record:
//!
//! - `block_bytes`: the size of a logical block of the device, the unit of `block`.
//! - `regions`: the hottest first, at most [`MAX_REGIONS`], each with `block`, the number of its
//!   first block, `blocks`, the number of its blocks, and `accesses_per_second`.
//! - `truncated`: the number of regions that are left out.
//!
//! An empty list means that no block was accessed. The insight is unknown if accesses are not
//! traced, or if the list is malformed.

use serde_json::{Value as Json, json};
use skopos_model::schema::{block_access, device, insight};

use super::definition::number_or;
use super::record::Record;
use super::*;

/// The most regions in the record: the number that `block_access` lists.
const MAX_REGIONS: usize = 16;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::BLOCK_HOTNESS,
    row: 4,
    name: "block hotness",
    formula: "(start_byte / block_bytes, accesses per second) of the hottest of hot_blocks",
    source: "Apollo, Table 1, row 4: (BlockID, frequency of access)",
    instances: Instances::Devices,
    inputs: &[
        InputSpec::needed("hot_blocks", FactSelector::Own(&block_access::HOT_BLOCKS)),
        InputSpec::optional("block_bytes", FactSelector::Own(&device::LOGICAL_BLOCK_BYTES)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let hot_blocks = inputs.structured(0)?.as_json().as_array();
    let hot_blocks = hot_blocks.ok_or_else(|| Unknown::new("the hot blocks are not a list"))?;
    let block_bytes = number_or(inputs, 1, || {
        format!("{} does not report the size of its blocks", subject.instance)
    })?;
    if block_bytes < 1.0 {
        return Err(Unknown::new("the device reports a block size of zero"));
    }
    let mut regions = hot_blocks.iter().map(Region::read).collect::<Result<Vec<_>, _>>()?;
    regions.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    let cut = regions.len().saturating_sub(MAX_REGIONS);
    regions.truncate(MAX_REGIONS);
    let mut record = Record::default();
    let block_bytes = block_bytes as u64;
    record.put("block_bytes", block_bytes);
    record.put_list("regions", cut, regions.iter().map(|r| r.record(block_bytes)).collect());
    record.finish()
}

struct Region {
    start_byte: u64,
    bytes: u64,
    rate: f64,
}

impl Region {
    fn read(json: &Json) -> Result<Self, Unknown> {
        let region = || {
            let rate = json["rate"].as_f64().filter(|rate| *rate >= 0.0)?;
            Some(Self {
                start_byte: json["start_byte"].as_u64()?,
                bytes: json["bytes"].as_u64()?,
                rate,
            })
        };
        region().ok_or_else(|| {
            Unknown::new("a hot block is not a record of start_byte, bytes and rate")
        })
    }

    fn record(&self, block_bytes: u64) -> Json {
        json!({
            "block": self.start_byte / block_bytes,
            "blocks": self.bytes.div_ceil(block_bytes),
            "accesses_per_second": self.rate,
        })
    }
}
