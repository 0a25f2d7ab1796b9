//! Publishing numbers and lists allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use skopos_model::{Scalar, Timestamp, Topic, ValueType};
use skopos_shm::{Publisher, VertexSpec};

thread_local! {
    /// Per thread, so that tests in other threads do not count.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed to `System` unchanged; counting touches only a thread-local `Cell`
// that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are those that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_tick_with_a_list_of_256_numbers_allocates_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let publisher = Publisher::builder("lists").dir(folder.path()).create().expect("a segment");
    let mut group = publisher.group("cpu").expect("room");
    let topic: Topic = "n01/cpu/per_cpu/busy_ratio".parse().expect("a topic");
    let spec = VertexSpec::new(topic, ValueType::Structured).slots(16);
    let vertex = group.register(spec).expect("room");
    let mut values = vec![Some(Scalar::F64(0.0)); 256];
    values[3] = None;
    let mut worst = 0;
    for tick in 1..100 {
        values[2] = Some(Scalar::F64(0.0001 * tick as f64));
        let before = ALLOCATIONS.get();
        let mut open = group.tick(Timestamp::from_nanos(tick));
        open.publish_list(&vertex, &values).expect("published");
        drop(open);
        // The first ticks make the buffers.
        worst = worst.max(if tick > 3 { ALLOCATIONS.get() - before } else { 0 });
    }
    assert_eq!(worst, 0);
    let host = skopos_shm::Host::open_dirs(vec![folder.path().to_owned()]).expect("readable");
    let read = host.find(vertex.topic()).expect("it is there").latest().expect("a sample");
    let text = read.sample.value.to_string();
    assert!(text.starts_with("[0,0,0.0099,null,0,"), "{text}");
}

#[test]
fn a_list_that_is_too_long_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let publisher = Publisher::builder("lists").dir(folder.path()).create().expect("a segment");
    let mut group = publisher.group("cpu").expect("room");
    let topic: Topic = "n01/cpu/per_cpu/x".parse().expect("a topic");
    let vertex = group.register(VertexSpec::new(topic, ValueType::Structured)).expect("room");
    let values = vec![Some(Scalar::U64(u64::MAX)); 256];
    let refused = group.tick(Timestamp::from_nanos(1)).publish_list(&vertex, &values);
    assert!(refused.expect_err("4,096 bytes are the most").to_string().contains("4096"));
}
