//! Known accesses to a loop device of this test, compared with the counts of the kernel.

use std::path::Path;
use std::time::Duration;

use skopos_sense::Root;

use crate::loop_device::{Loop, MIB, run, skipped};
use crate::support::{Host, Tree};

const TRACING: &str = "/sys/kernel/tracing";

/// tracefs at its usual place. It is unmounted at the end if the test mounted it.
struct Tracefs {
    is_ours: bool,
}

impl Tracefs {
    fn mount() -> Result<Self, String> {
        if Path::new(TRACING).join("events").exists() {
            return Ok(Self { is_ours: false });
        }
        run("mount", &["-t", "tracefs", "tracefs", TRACING]).map(|_| Self { is_ours: true })
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(e) = run("umount", &["--lazy", TRACING])
        {
            eprintln!("{e}");
        }
    }
}

/// Returns everything that the test needs, or the reason why something is missing.
fn open() -> Result<(Tracefs, Loop, Host), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("BPF and loop devices need root".to_owned());
    }
    let (tracefs, disk) = (Tracefs::mount()?, Loop::new(64 * MIB)?);
    let mut host = Host::open(&Root::default());
    host.sensors.retain(|s| s.family().name == "block_access");
    match host.sensors.len() {
        1 => Ok((tracefs, disk, host)),
        _ => Err(host.skip("block_access").expect("a reason")),
    }
}

/// The mebibytes that the test accesses. Other programs (blkid, lsblk) may look at a new disk at any
/// time; they read its first and its last mebibyte.
const OWN: [u64; 4] = [5, 12, 40, 50];

/// Returns `start_byte` and `accesses` of the test's own regions, hottest first.
fn hottest(host: &Host, device: &str) -> Vec<(u64, u64)> {
    let topic = format!("block_access/{device}/hot_blocks");
    let list = host.table.json(&topic).and_then(|list| list.as_array()).expect("a list");
    let number = |record: &serde_json::Value, name: &str| record[name].as_u64().expect("a number");
    let pair = |r: &serde_json::Value| (number(r, "start_byte"), number(r, "accesses"));
    assert!(list.iter().all(|record| number(record, "bytes") == MIB));
    list.iter().map(pair).filter(|(start, _)| OWN.contains(&(start / MIB))).collect()
}

#[test]
fn the_regions_that_were_accessed_are_the_hot_ones() {
    let (_tracefs, disk, mut host) = match open() {
        Ok(opened) => opened,
        Err(reason) => return skipped(reason),
    };
    host.poll(1.0);
    let total = |host: &Host, metric: &str| {
        host.table.get(&format!("block_access/{}/{metric}", disk.name())).unwrap_or(0.0)
    };
    let before = total(&host, "accesses_total");
    disk.access(false, 5, 200);
    disk.access(true, 40, 100);
    disk.access(false, 12, 50);
    host.poll(1.0);
    let expected = [(5 * MIB, 200), (40 * MIB, 100), (12 * MIB, 50)];
    assert_eq!(hottest(&host, disk.name()), expected);
    assert!(
        total(&host, "accesses_total") - before >= 350.0,
        "other programs may read a new disk, too"
    );
    // A request of another program may be counted in part on each processor while the poll reads.
    let under_way = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let unsampled = total(&host, "accesses_total") - total(&host, "sampled_total");
    assert!((0.0..=under_way).contains(&unsampled), "{unsampled} accesses are not sampled");
    // Rows are shared with other devices, on which other programs may be busy.
    let unplaced = total(&host, "unplaced_total");
    assert!(unplaced <= total(&host, "accesses_total") / 10.0, "{unplaced} accesses have no row");
    // Later accesses are hotter than earlier ones, and both tables are read.
    for _ in 0..5 {
        host.poll(60.0);
        disk.access(true, 50, 30);
    }
    host.poll(60.0);
    assert_eq!(hottest(&host, disk.name())[..2], [(50 * MIB, 150), (5 * MIB, 200)]);
    // A loop device without its file still exists, but cannot be accessed.
    let facts = format!("block_access/{}/", disk.name());
    drop(disk);
    // The kernel detaches it when no other program has it open any more.
    for _ in 0..1000 {
        host.poll(1.0);
        if host.table.topics(&facts).is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("facts of a device without a file: {:?}", host.table.topics(&facts));
}

#[test]
fn a_machine_without_tracefs_says_what_to_mount() {
    let reason = Tree::empty().host().skip("block_access").expect("a reason");
    let is_root = rustix::process::geteuid().is_root();
    let expected = if is_root { "mount -t tracefs" } else { "needs root" };
    assert!(reason.contains(expected), "{reason}");
}
