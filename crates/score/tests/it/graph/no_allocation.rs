//! Setting facts and running insights allocates nothing once every insight has run.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use skopos_model::Scalar;
use skopos_score::{Graph, VertexId};

use super::support::{at, known, sum};

thread_local! {
    /// Per thread, so that concurrent tests do not count.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of allocations of this thread.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

struct Counting;

// SAFETY: every call is handed on to `System` unchanged; counting touches only a thread-local
// `Cell` that needs no allocation and no destructor.
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

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_run_allocates_nothing() {
    let mut graph = Graph::default();
    let facts: Vec<VertexId> =
        (0..100).map(|n| known(&mut graph, &format!("n/{n}/x"), 1, 1.0)).collect();
    sum(&mut graph, "l/0", &["n/*/x"]);
    for layer in 1..20 {
        sum(&mut graph, &format!("l/{layer}"), &[&format!("l/{}", layer - 1), "n/7/x"]);
    }
    let mut evaluated = 0;
    for second in 1..40 {
        let before = ALLOCATIONS.get();
        for (place, &fact) in facts.iter().enumerate() {
            // Some vertices stand still, some change in every round, some in some rounds.
            let value = (second * (place as i64 % 3)) as u64;
            graph.set(fact, at(second), Scalar::U64(value)).expect("a fact");
        }
        let ran = graph.run(at(second), &mut |_| {});
        let allocations = ALLOCATIONS.get() - before;
        evaluated += ran.evaluated;
        // The first rounds allocate.
        assert!(second < 4 || allocations == 0, "{allocations} allocations in round {second}");
    }
    assert!(evaluated > 700, "{evaluated} evaluations");
}
