//! Any bytes as a message of the live plane. A batch that decodes survives encoding, and a mirror takes it
//! in as a batch, as a snapshot and as an answer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_wire::{Batch, Mirror};

fuzz_target!(|bytes: &[u8]| {
    let Ok(batch) = Batch::decode(bytes) else { return };
    let again = Batch::decode(&batch.encode()).expect("an encoded batch decodes");
    // A bound may be NaN, which is not equal to itself, so the texts are compared.
    assert_eq!(format!("{batch:?}"), format!("{again:?}"));
    let mut mirror = Mirror::default();
    mirror.reset(vec![batch.clone()], &mut ());
    mirror.take(batch.clone(), &mut ());
    mirror.refresh(batch.clone(), &mut ());
    mirror.take(Batch { sequence: batch.sequence.wrapping_add(2), ..batch.clone() }, &mut ());
    mirror.reset(batch.split(), &mut ());
    let known = mirror.vertices().all(|v| mirror.find(&v.description.topic).is_some());
    assert!(known);
});
