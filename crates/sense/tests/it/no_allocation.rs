//! Steady ticks allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use skopos_sense::{Root, Tick};

use crate::ports::free_port;
use crate::support::{Host, Tree};

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

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Enough for every cursor to go around and for the busiest interrupt lines to be chosen again.
const WARM_UP: u32 = 700;
const TICKS: u32 = 700;

/// Polls each sensor. Returns the sensors that allocated in a tick in which no fact came or went.
fn allocating(host: &mut Host) -> Vec<String> {
    let Host { sensors, table, .. } = host;
    let mut found = Vec::new();
    for sensor in sensors {
        let mut worst = 0;
        for n in 0..WARM_UP + TICKS {
            let changes = table.changes;
            let mut tick = Tick { monotonic: Duration::from_secs(n.into()), sink: table };
            let before = ALLOCATIONS.get();
            let outcome = sensor.poll(&mut tick);
            let allocations = ALLOCATIONS.get() - before;
            outcome.expect("readable");
            if n >= WARM_UP && table.changes == changes {
                worst = worst.max(allocations);
            }
        }
        if worst > 0 {
            found.push(format!("{}: {worst}", sensor.family().name));
        }
    }
    found
}

#[test]
fn allocations_are_counted() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}

#[test]
fn a_tick_on_recorded_files_allocates_nothing() {
    let tree = Tree::of("modern");
    let folder = tree.folder.path().to_str().expect("UTF-8").to_owned();
    let mounts = format!(
        "1 0 0:26 / {folder}/cg rw - cgroup2 cgroup2 rw\n2 0 0:40 / {folder}/sys rw - ext4 /dev/sda1 rw\n\
         3 0 0:41 / {folder}/proc rw - nfs4 server:/export rw\n"
    );
    tree.write("proc/self/mountinfo", mounts)
        .write("sys/class/hwmon/hwmon0/name", "coretemp\n")
        .write("sys/class/hwmon/hwmon0/temp1_input", "45500\n");
    for n in 0..150 {
        for file in ["cpu.stat", "memory.current", "memory.peak", "pids.current", "io.stat"] {
            tree.write(&format!("cg/slice/job{n}/{file}"), "1\n");
        }
    }
    let mut host = tree.host();
    assert_eq!(allocating(&mut host), Vec::<String>::new());
    assert_eq!(host.sensors.len(), 24, "every family was measured: {:?}", host.skips);
}

#[test]
fn a_tick_of_a_machine_with_256_cores_allocates_nothing() {
    let tree = Tree::large(256);
    let mut host = tree.host();
    host.sensors.retain(|s| ["cpu", "interrupts", "softirqs"].contains(&s.family().name));
    host.poll(1.0);
    // Time has passed, so that each core has a ratio from now on.
    crate::large::write(tree.folder.path(), 256, 2);
    assert_eq!(allocating(&mut host), Vec::<String>::new());
    assert_eq!(host.table.list("cpu/per_cpu/busy_ratio").len(), 256);
    assert_eq!(host.sensors.len(), 3, "{:?}", host.skips);
}

#[test]
fn a_tick_on_this_machine_allocates_nothing() {
    // Other programs start processes and make groups meanwhile, for which sensors may need memory.
    for attempts_left in (0..20).rev() {
        let mut host = Host::open(&Root::default());
        // These run a program at each poll, minutes or seconds apart.
        host.sensors.retain(|s| !["smart", "slurm"].contains(&s.family().name));
        let found = allocating(&mut host);
        if found.is_empty() {
            return;
        }
        eprintln!("allocated: {found:?}");
        assert!(attempts_left > 0, "{found:?}");
        std::thread::sleep(std::time::Duration::from_millis(250));
    }
}

#[test]
fn a_tick_of_nodes_that_probe_each_other_allocates_nothing() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
    let settings = skopos_sense::PeerSettings {
        listen: Some(address),
        peers: vec![("n".to_owned(), address)],
        interval: Duration::from_millis(10),
        timeout: Duration::from_millis(50),
        ..skopos_sense::PeerSettings::of_node("n")
    };
    let mut host = Host::of(skopos_sense::open_peers(&settings));
    assert_eq!(allocating(&mut host), Vec::<String>::new(), "{:?}", host.skips);
    assert_eq!(host.sensors.len(), 2);
}
