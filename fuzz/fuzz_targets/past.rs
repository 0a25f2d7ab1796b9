//! Any messages as a node's answer to a question about its history: two bytes with the length stand before
//! each message. A part that a hub makes of them can be read like any other part.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_store::history::{Column, Selection};
use skopos_wire::Batch;

#[path = "../../crates/hub/src/past/part.rs"]
mod part;

const NODE: &str = "n01";

fuzz_target!(|bytes: &[u8]| {
    let (mut rest, mut batches) = (bytes, Vec::new());
    while let [low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (message, more) = after.split_at(length);
        rest = more;
        if let Ok(batch) = Batch::decode(message) {
            batches.push(batch);
        }
    }
    let samples: usize = batches.iter().map(|batch| batch.samples.len()).sum();
    let Some(part) = part::part(NODE, batches) else { return };
    assert_eq!(part.rows(), samples as u64);
    assert!(part.stretches().iter().all(|stretch| stretch.series.topic.node() == NODE));
    let selection = Selection {
        stretches: (0..part.stretches().len()).map(|at| (at, i64::MAX)).collect(),
        times: i64::MIN..=i64::MAX,
    };
    let mut rows = 0;
    for group in (0..part.groups()).filter(|group| part.may_have(*group, &selection)) {
        for chunk in part.read(group, &Column::ALL, &selection).expect("it is in memory") {
            let chunk = chunk.expect("it is in memory");
            for run in &chunk.runs {
                let stretch = &part.stretches()[run.stretch];
                assert!(stretch.first <= stretch.last);
                assert!(run.start + run.rows <= chunk.batch.num_rows());
                rows += run.rows;
            }
        }
    }
    // A sample at the very end of time is not below `i64::MAX`, and so not selected.
    assert!(rows <= samples);
});
