//! Devices, arrays, energy and what file systems are, from recorded trees.

use skopos_sense::calibration::{Calibration, Calibrations, Load, Measure, Method};
use skopos_sense::disk::Disk;

use crate::recorded::check;
use crate::support::{Table, Tree};

/// Compares texts: `topic text` a line, `-` for one that must not be there.
fn check_texts(table: &Table, expected: &str) {
    for line in expected.lines() {
        let (topic, text) = line.trim().split_once(' ').expect("`topic text`");
        assert_eq!(table.text(topic), (text != "-").then_some(text), "{topic}");
    }
}

#[test]
fn devices() {
    let tree = Tree::of("modern");
    let mut host = tree.host();
    let table = host.poll(1.0);
    check(
        table,
        "device/vda/size_bytes 274877906944
         device/vda/logical_block_bytes 512
         device/vda/physical_block_bytes 4096
         device/vda/rotational 1
         device/vda/readonly 0
         device/vda/concurrency 128
         device/nvme0n1/size_bytes 1000204886016
         device/nvme0n1/rotational 0
         device/nvme0n1/concurrency 4092
         device/sda/concurrency 32
         device/md0/concurrency -
         device/md0/size_bytes 2000263577600
         device/dm-0/concurrency -
         device/vda/max_read_bytes_per_second -
         device/vda/calibrated_at_seconds -",
    );
    check_texts(
        table,
        "device/vda/kind virtio
         device/vda/model -
         device/nvme0n1/kind nvme
         device/nvme0n1/model Samsung SSD 970 EVO Plus 1TB
         device/sda/kind hdd
         device/sda/model ST3500418AS
         device/md0/kind md
         device/dm-0/kind dm
         device/dm-0/model vg0-root",
    );
    assert_eq!(
        table.instances("device/"),
        ["dm-0", "md0", "nvme0n1", "sda", "vda"],
        "no partition"
    );
}

#[test]
fn devices_that_come_go_and_change() {
    let tree = Tree::of("modern");
    let mut host = tree.host();
    host.poll(1.0);
    tree.write("proc/partitions", "major minor  #blocks  name\n\n 254 0 268435456 vda\n");
    tree.write("sys/block/vda/ro", "1\n");
    let table = host.poll(1.0);
    assert_eq!(table.instances("device/"), ["vda"]);
    assert_eq!(table.value("device/vda/readonly"), 1.0);
    // It grew.
    tree.write("proc/partitions", "major minor  #blocks  name\n\n 254 0 536870912 vda\n");
    tree.write("sys/block/vda/size", "1073741824\n");
    assert_eq!(host.poll(1.0).value("device/vda/size_bytes"), 549_755_813_888.0);
    // The queue of a SCSI device shrinks while it is congested.
    tree.write("sys/block/vda/device/queue_depth", "7\n");
    tree.write("proc/partitions", "major minor  #blocks  name\n\n 254 0 536870913 vda\n");
    assert_eq!(host.poll(1.0).value("device/vda/concurrency"), 7.0);
    tree.write("sys/block/vda/device/queue_depth", "3\n");
    assert_eq!(host.poll(1.0).value("device/vda/concurrency"), 3.0);
}

fn calibration(tree: &Tree, name: &str, read: f64, write: f64) -> Calibration {
    let measure = |median: f64| Measure::of(vec![median]).expect("a run");
    Calibration {
        disk: Disk::look(&tree.root(), name).expect("in the tree"),
        measured_at_seconds: 1.8e9,
        kernel: "6.18".to_owned(),
        method: Method {
            reads_from: "a file".to_owned(),
            writes_to: "a file".to_owned(),
            direct: true,
            file_bytes: 1 << 28,
            block_bytes: 1 << 20,
            in_flight: 8,
            runs: 1,
        },
        load: Load { device_busy_ratio: None, load_1m: None },
        read_bytes_per_second: measure(read),
        write_bytes_per_second: measure(write),
        read_requests_per_second: measure(1e5),
        idle_read_latency_seconds: measure(1e-4),
    }
}

#[test]
fn calibrations_are_taken_when_they_come_and_left_when_they_are_of_another_device() {
    let tree = Tree::of("modern");
    let file = tree.path("calibration.json");
    let mut host = tree.host();
    host.poll(1.0);
    Calibrations::store(&file, &calibration(&tree, "nvme0n1", 3e9, 2e9)).expect("writable");
    let expected = "device/nvme0n1/max_read_bytes_per_second 3000000000
         device/nvme0n1/max_write_bytes_per_second 2000000000
         device/nvme0n1/max_bandwidth_bytes_per_second 3000000000
         device/nvme0n1/max_read_requests_per_second 100000
         device/nvme0n1/idle_read_latency_seconds 0.0001
         device/nvme0n1/calibrated_at_seconds 1800000000
         device/vda/max_read_bytes_per_second -";
    check(host.poll(1.0), expected);
    // A later one, better at writing.
    Calibrations::store(&file, &calibration(&tree, "nvme0n1", 3e9, 4e9)).expect("writable");
    assert_eq!(host.poll(1.0).value("device/nvme0n1/max_bandwidth_bytes_per_second"), 4e9);
    // Another disk under the same name.
    tree.write("sys/block/nvme0n1/device/serial", "another\n");
    tree.write("proc/partitions", "major minor  #blocks  name\n\n 259 0 976762584 nvme0n1\n");
    assert_eq!(host.poll(1.0).get("device/nvme0n1/max_bandwidth_bytes_per_second"), None);
    let reason = host.skip("device/nvme0n1/max_*").expect("told");
    assert!(reason.contains("S4EVNF0M000001") && reason.contains("another"), "{reason}");
    assert!(reason.contains("skopos calibrate nvme0n1"), "{reason}");
    // A damaged file.
    tree.write("calibration.json", "{");
    host.poll(1.0);
    assert!(host.skip("device/*/max_*").expect("told").contains("calibration.json"));
    // And none.
    std::fs::remove_file(&file).expect("there");
    host.poll(1.0);
    assert_eq!(host.skip("device/*/max_*"), None);
}
