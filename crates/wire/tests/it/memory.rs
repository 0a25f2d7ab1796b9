//! The memory that a mirror takes for each fact.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use skopos_model::{Kind, Origin, SplitMix64, Timestamp, Topic, Unit, ValueType};
use skopos_wire::{Batch, Checked, Content, Description, IndexedSample, Interest, Mirror};

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: usize, freed: usize) {
    BYTES.set(BYTES.get() + bytes.cast_signed() - freed.cast_signed());
}

// SAFETY: every call is passed to `System` unchanged; counting touches only a thread-local `Cell`
// that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promises are those that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The facts of a usual node.
const FACTS: u32 = 300;

/// The most bytes of a mirror for each of its facts. The rest of 800 bytes is for the connection of the node.
const MOST: isize = 560;

fn description(index: u32) -> Description {
    // Two of three facts are counters; every fifth one is a double.
    let topic = Topic::new(&format!("node0001/block/nvme0n{index}/read_bytes_total"));
    let value_type = if index.is_multiple_of(5) { ValueType::F64 } else { ValueType::U64 };
    let (topic, unit) = (topic.expect("a topic"), Unit::new("bytes").expect("a unit"));
    Description { index, topic, unit, kind: Kind::Counter, value_type }
}

#[test]
fn a_mirrored_fact_takes_few_bytes() {
    let mut mirror = Mirror::of_node("node0001", Interest::default());
    let before = BYTES.get();
    let described: Vec<_> = (0..FACTS).map(description).collect();
    mirror.reset(vec![Batch { sequence: 1, described, ..Batch::default() }], &mut ());
    let (mut random, mut values) = (SplitMix64::new(7), vec![1e9; FACTS as usize]);
    // Long enough that each fact has as many samples as a mirror keeps.
    for sequence in 2..300u64 {
        // Once a second, some microseconds late.
        let time = sequence * 1_000_000_000 + random.bits() % 200_000;
        let at = Timestamp::from_nanos(time.cast_signed());
        let mut samples = Vec::new();
        for index in 0..FACTS {
            if random.unit() < 0.3 {
                let value = &mut values[index as usize];
                *value += random.unit() * 1e7;
                let is_double = index % 5 == 0;
                let bits = if is_double { value.to_bits() } else { *value as u64 };
                let (origin, value) = (Origin::Measured, Content::Bits(bits));
                samples.push(IndexedSample { index, time: at, origin, value });
            }
        }
        let checked = vec![Checked { at, runs: vec![(0, FACTS)] }];
        mirror.take(Batch { sequence, sent_at: at, samples, checked, ..Batch::default() }, &mut ());
    }
    let kept: usize = mirror.vertices().map(|vertex| vertex.recent.iter().count()).sum();
    assert_eq!(kept, 32 * FACTS as usize);
    let each = (BYTES.get() - before) / FACTS as isize;
    assert!(each <= MOST, "{each} bytes for each fact");
    println!("{each} bytes for each fact");
    drop(mirror);
}
