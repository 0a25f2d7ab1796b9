//! Any bytes as a message of the live plane. What decodes is taken in by a mirror, as a batch and as a
//! snapshot; and what is a batch comes out of its own message as it went in.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_wire::{Batch, Mirror};

fuzz_target!(|bytes: &[u8]| {
    let Ok(batch) = Batch::decode(bytes) else { return };
    let again = Batch::decode(&batch.encode()).expect("what was encoded decodes");
    // A bound may be NaN, which equals nothing: the text is compared.
    assert_eq!(format!("{batch:?}"), format!("{again:?}"));
    let mut mirror = Mirror::default();
    mirror.reset(vec![batch.clone()], &mut ());
    mirror.take(batch.clone(), &mut ());
    mirror.freshen(batch.clone(), &mut ());
    mirror.take(Batch { sequence: batch.sequence.wrapping_add(2), ..batch.clone() }, &mut ());
    mirror.reset(batch.split(), &mut ());
    let known = mirror.vertices().all(|v| mirror.find(&v.description.topic).is_some());
    assert!(known);
});
