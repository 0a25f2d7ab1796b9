//! Devices, arrays, energy and properties of file systems, from recorded trees.

use skopos_sense::calibration::{Calibration, Calibrations, Load, Measure, Measured, Method};
use skopos_sense::disk::Disk;

use crate::recorded::check;
use crate::support::{Table, Tree};

/// Compares texts: a line `topic text` for each, with `-` for a text that must be absent.
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
        "partitions are left out"
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
    // The device grew.
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

fn calibration(tree: &Tree, name: &str, read: f64, write: Option<f64>) -> Calibration {
    let measure = |median: f64| Measure::of(vec![median]).expect("a run");
    Calibration {
        disk: Disk::look(&tree.root(), name).expect("in the tree"),
        measured: Measured {
            measured_at_seconds: 1.8e9,
            kernel: "6.18".to_owned(),
            method: Method {
                reads_from: "a file".to_owned(),
                writes_to: None,
                direct: true,
                used_bytes: 1 << 28,
                block_bytes: 1 << 20,
                in_flight: 8,
                random_in_flight: 32,
                runs: 1,
            },
            load: Load { device_busy_ratio: None, load_1m: None },
            read_bytes_per_second: measure(read),
            write_bytes_per_second: write.map(measure),
            read_requests_per_second: measure(1e5),
            idle_read_latency_seconds: measure(1e-4),
        },
    }
}

#[test]
fn a_new_calibration_is_used_unless_it_is_of_another_device() {
    let tree = Tree::of("modern");
    let file = tree.path("calibration.json");
    let mut host = tree.host();
    host.poll(1.0);
    Calibrations::store(&file, &calibration(&tree, "nvme0n1", 3e9, Some(2e9))).expect("writable");
    let expected = "device/nvme0n1/max_read_bytes_per_second 3000000000
         device/nvme0n1/max_write_bytes_per_second 2000000000
         device/nvme0n1/max_bandwidth_bytes_per_second 3000000000
         device/nvme0n1/max_read_requests_per_second 100000
         device/nvme0n1/idle_read_latency_seconds 0.0001
         device/nvme0n1/calibrated_at_seconds 1800000000
         device/vda/max_read_bytes_per_second -";
    check(host.poll(1.0), expected);
    // A later calibration, with faster writes.
    Calibrations::store(&file, &calibration(&tree, "nvme0n1", 3e9, Some(4e9))).expect("writable");
    assert_eq!(host.poll(1.0).value("device/nvme0n1/max_bandwidth_bytes_per_second"), 4e9);
    // A calibration without a file system to write to.
    Calibrations::store(&file, &calibration(&tree, "nvme0n1", 3e9, None)).expect("writable");
    let expected = "device/nvme0n1/max_write_bytes_per_second -
         device/nvme0n1/max_bandwidth_bytes_per_second 3000000000";
    check(host.poll(1.0), expected);
    // Another disk under the same name.
    tree.write("sys/block/nvme0n1/device/serial", "another\n");
    tree.write("proc/partitions", "major minor  #blocks  name\n\n 259 0 976762584 nvme0n1\n");
    assert_eq!(host.poll(1.0).get("device/nvme0n1/max_bandwidth_bytes_per_second"), None);
    let reason = host.skip("device/nvme0n1/max_*").expect("a reason");
    assert!(reason.contains("S4EVNF0M000001") && reason.contains("another"), "{reason}");
    assert!(reason.contains("skopos calibrate nvme0n1"), "{reason}");
    // A calibration by this user comes before one by root.
    let own = tree.path("own/calibration.json");
    Calibrations::store(&own, &calibration(&tree, "nvme0n1", 5e8, None)).expect("writable");
    assert_eq!(host.poll(1.0).value("device/nvme0n1/max_read_bytes_per_second"), 5e8);
    assert_eq!(host.skip("device/nvme0n1/max_*"), None);
    std::fs::remove_file(&own).expect("there");
    assert_eq!(host.poll(1.0).get("device/nvme0n1/max_read_bytes_per_second"), None);
    // A damaged file.
    tree.write("calibration.json", "{");
    host.poll(1.0);
    assert!(host.skip("device/*/max_*").expect("a reason").contains("calibration.json"));
    // The file is removed.
    std::fs::remove_file(&file).expect("there");
    host.poll(1.0);
    assert_eq!(host.skip("device/*/max_*"), None);
}

/// From the RAID wiki of the kernel and from machines; an array for each state.
const MDSTAT: &str = "\
Personalities : [raid1] [raid6] [raid5] [raid4] [raid10] [linear] [raid0]
md127 : active raid5 sdh1[6] sdg1[4] sdf1[3] sde1[2] sdd1[1] sdc1[0]
      1464725760 blocks level 5, 64k chunk, algorithm 2 [6/5] [UUUUU_]
      [==>..................]  recovery = 12.6% (37043392/292945152) finish=127.5min speed=33440K/sec

md1 : active raid1 sdb2[1] sda2[0]
      136448 blocks [2/2] [UU]

md2 : active raid1 sdb3[1](F) sda3[0]
      129596288 blocks [2/1] [U_]

md3 : active (auto-read-only) raid6 sdf1[5](S) sde1[4] sdd1[3] sdc1[2] sdb1[1] sda1[0]
      46879616 blocks super 1.2 level 6, 64k chunk, algorithm 2 [5/5] [UUUUU]
      \tresync=PENDING

md4 : active raid0 sdb1[1] sda1[0]
      11720 blocks super 1.2 512k chunks

md5 : active raid10 sdf1[5] sde1[4] sdd1[3] sdc1[2] sdb1[1] sda1[0]
      3221225472 blocks super 1.2 512K chunks 3 near-copies [6/4] [UU_UU_]

md6 : inactive sda1[0](S) sdb1[1](S)
      1960883 blocks super 1.2

md7 : active raid1 nvme1n1p2[2] nvme0n1p2[0]
      976630464 blocks super 1.2 [2/2] [UU]
      [>....................]  check =  0.4% (4096000/976630464) finish=80.1min speed=202240K/sec
      bitmap: 0/8 pages [0KB], 65536KB chunk

unused devices: <none>
";

#[test]
fn arrays() {
    let tree = Tree::empty();
    let mut host = tree.write("proc/mdstat", MDSTAT).host();
    let table = host.poll(1.0);
    check(
        table,
        "raid/md127/size_bytes 1499879178240
         raid/md127/devices 6
         raid/md127/active 5
         raid/md127/degraded 1
         raid/md127/copies 1
         raid/md127/failures_tolerated 0
         raid/md127/sync_ratio 0.126
         raid/md127/sync_bytes_per_second 34242560
         raid/md1/devices 2
         raid/md1/degraded 0
         raid/md1/copies 2
         raid/md1/failures_tolerated 1
         raid/md1/sync_ratio -
         raid/md2/active 1
         raid/md2/failed 1
         raid/md2/copies 2
         raid/md2/failures_tolerated 0
         raid/md3/devices 5
         raid/md3/spares 1
         raid/md3/failures_tolerated 2
         raid/md3/sync_ratio -
         raid/md4/devices 2
         raid/md4/copies 1
         raid/md4/failures_tolerated 0
         raid/md5/copies 3
         raid/md5/degraded 2
         raid/md5/failures_tolerated 0
         raid/md6/copies -
         raid/md6/failures_tolerated -
         raid/md6/spares 2
         raid/md7/sync_ratio 0.004
         raid/md7/failures_tolerated 1",
    );
    check_texts(
        table,
        "raid/md127/level raid5
         raid/md3/level raid6
         raid/md4/level raid0
         raid/md5/level raid10
         raid/md6/level -",
    );
}

#[test]
fn an_array_is_rebuilt_and_another_goes() {
    let tree = Tree::empty();
    let mut host = tree.write("proc/mdstat", MDSTAT).host();
    host.poll(1.0);
    let whole = "Personalities : [raid6] [raid5] [raid4]\n\
        md127 : active raid5 sdh1[5] sdg1[4] sdf1[3] sde1[2] sdd1[1] sdc1[0]\n      \
        1464725760 blocks level 5, 64k chunk, algorithm 2 [6/6] [UUUUUU]\n      \n\
        unused devices: <none>\n";
    tree.write("proc/mdstat", whole);
    let table = host.poll(1.0);
    check(
        table,
        "raid/md127/degraded 0
         raid/md127/failures_tolerated 1
         raid/md127/sync_ratio -
         raid/md127/sync_bytes_per_second -",
    );
    assert_eq!(table.instances("raid/"), ["md127"]);
}

/// Two packages with memory, the board, and the same packages again through memory-mapped
/// registers, as on a server with Ice Lake processors.
fn rapl() -> Tree {
    let tree = Tree::empty();
    for (zone, name, energy) in [
        ("intel-rapl", "", None),
        ("intel-rapl:0", "package-0", Some(1_000_000u64)),
        ("intel-rapl:0:0", "dram", Some(500_000)),
        ("intel-rapl:0:1", "core", Some(300_000)),
        ("intel-rapl:1", "package-1", Some(262_143_000_000)),
        ("intel-rapl:2", "psys", Some(7_000_000)),
        ("intel-rapl-mmio:0", "package-0", Some(999)),
    ] {
        let folder = format!("sys/class/powercap/{zone}");
        tree.write(&format!("{folder}/enabled"), "1\n");
        if let Some(energy) = energy {
            tree.write(&format!("{folder}/name"), format!("{name}\n"))
                .write(&format!("{folder}/energy_uj"), format!("{energy}\n"))
                .write(&format!("{folder}/max_energy_range_uj"), "262143328850\n");
        }
    }
    tree
}

#[test]
fn energy_and_a_counter_that_wraps() {
    let tree = rapl();
    let mut host = tree.host();
    check(
        host.poll(1.0),
        "energy/package-0/energy_joules_total 0
         energy/total/energy_joules_total 0
         energy/package-0/power_watts -",
    );
    let energy = |zone: &str, microjoules: u64| {
        tree.write(&format!("sys/class/powercap/{zone}/energy_uj"), format!("{microjoules}\n"));
    };
    energy("intel-rapl:0", 41_000_000);
    energy("intel-rapl:0:0", 4_500_000);
    energy("intel-rapl:0:1", 20_300_000);
    // From 328,850 below its end to 1,671,150 beyond it.
    energy("intel-rapl:1", 1_671_150);
    let table = host.poll(2.0);
    check(
        table,
        "energy/package-0/energy_joules_total 40
         energy/package-0/power_watts 20
         energy/package-0:dram/energy_joules_total 4
         energy/package-0:core/energy_joules_total 20
         energy/package-1/energy_joules_total 2
         energy/package-1/power_watts 1
         energy/psys/energy_joules_total 0
         energy/total/energy_joules_total 46
         energy/total/power_watts 23",
    );
    assert_eq!(table.instances("energy/").len(), 6, "memory-mapped registers add no instance");
}

#[test]
fn batteries_have_power_and_no_energy() {
    let tree = Tree::empty();
    let supply = "sys/class/power_supply";
    tree.write(&format!("{supply}/AC/type"), "Mains\n")
        .write(&format!("{supply}/BAT0/type"), "Battery\n")
        .write(&format!("{supply}/BAT0/power_now"), "12500000\n")
        .write(&format!("{supply}/BAT1/type"), "Battery\n")
        .write(&format!("{supply}/BAT1/current_now"), "-1500000\n")
        .write(&format!("{supply}/BAT1/voltage_now"), "12000000\n")
        .write(&format!("{supply}/hidpp_battery_0/type"), "Battery\n")
        .write(&format!("{supply}/hidpp_battery_0/scope"), "Device\n")
        .write(&format!("{supply}/hidpp_battery_0/power_now"), "1\n");
    check(
        tree.host().poll(1.0),
        "energy/battery:bat0/power_watts 12.5
         energy/battery:bat1/power_watts 18
         energy/total/energy_joules_total -",
    );
}

#[test]
fn without_any_source_of_energy_there_is_a_reason() {
    let reason = Tree::empty().host().skip("energy").expect("a reason");
    assert!(reason.contains("intel_rapl_msr"), "{reason}");
}

/// Returns a tree with a table of mounts, each on an existing folder.
fn mounted(tree: Tree, mounts: &[(&str, &str, &str, &str)]) -> Tree {
    let folder = tree.folder.path().to_str().expect("UTF-8").to_owned();
    let mut table = String::new();
    for (at, (device, kind, source, options)) in mounts.iter().enumerate() {
        let point = format!("{folder}/mnt{at}");
        std::fs::create_dir(&point).expect("a new folder");
        table += &format!("{} 0 {device} / {point} rw - {kind} {source} {options}\n", at + 1);
    }
    tree.write("proc/self/mountinfo", table);
    tree
}

/// Returns a tree with a partition, an array, a volume on the array, btrfs on two disks, memory,
/// and zfs.
fn file_systems() -> Tree {
    let tree = Tree::of("modern");
    let folder = tree.folder.path().to_str().expect("UTF-8").to_owned();
    // In sysfs a partition lies below its disk.
    tree.write("sys/block/nvme0n1/nvme0n1p1/partition", "1\n")
        .link("sys/class/block/nvme0n1p1", &format!("{folder}/sys/block/nvme0n1/nvme0n1p1"))
        .link("sys/dev/block/259:1", &format!("{folder}/sys/block/nvme0n1/nvme0n1p1"));
    for (number, name) in [("9:0", "md0"), ("253:0", "dm-0"), ("254:0", "vda")] {
        tree.link(&format!("sys/dev/block/{number}"), &format!("{folder}/sys/block/{name}"));
    }
    tree.write("sys/block/dm-0/slaves/md0/size", "1\n");
    let uuid = "sys/fs/btrfs/0f1e2d3c-aaaa-bbbb-cccc-0123456789ab";
    for device in ["sda", "sdb"] {
        tree.write(&format!("{uuid}/devices/{device}/size"), "1\n");
    }
    tree.write(&format!("{uuid}/allocation/data/raid1/total_bytes"), "1\n")
        .write(&format!("{uuid}/allocation/metadata/raid1c3/total_bytes"), "1\n")
        .write(&format!("{uuid}/devinfo/1/missing"), "0\n")
        .write(&format!("{uuid}/devinfo/2/missing"), "0\n");
    mounted(
        tree,
        &[
            ("259:1", "ext4", "/dev/nvme0n1p1", "rw,errors=remount-ro"),
            ("9:0", "xfs", "/dev/md0", "rw,attr2"),
            ("253:0", "f2fs", "/dev/mapper/vg0-root", "rw,compress_algorithm=zstd:6"),
            ("0:52", "btrfs", "/dev/sda", "rw,compress=zstd:3,ssd"),
            ("0:60", "tmpfs", "tmpfs", "rw,size=1024k"),
            ("0:61", "zfs", "pool/data", "rw,xattr"),
        ],
    )
}

#[test]
fn properties_of_file_systems() {
    let tree = file_systems();
    let mut host = tree.host();
    let table = host.poll(1.0);
    check_texts(
        table,
        "fsinfo/nvme0n1p1/type ext4
         fsinfo/nvme0n1p1/device nvme0n1
         fsinfo/nvme0n1p1/compression none
         fsinfo/nvme0n1p1/raid_level none
         fsinfo/md0/type xfs
         fsinfo/md0/device md0
         fsinfo/md0/raid_level raid10
         fsinfo/dm-0/device dm-0
         fsinfo/dm-0/compression zstd:6
         fsinfo/dm-0/raid_level raid10
         fsinfo/sda/type btrfs
         fsinfo/sda/device sda
         fsinfo/sda/compression zstd:3
         fsinfo/sda/raid_level raid1",
    );
    let point = tree.folder.path().join("mnt0");
    check_texts(table, &format!("fsinfo/nvme0n1p1/mount_point {}", point.display()));
    check(
        table,
        "fsinfo/nvme0n1p1/device_count 1
         fsinfo/nvme0n1p1/copies 1
         fsinfo/nvme0n1p1/failures_tolerated 0
         fsinfo/md0/device_count 4
         fsinfo/md0/copies 2
         fsinfo/md0/failures_tolerated 1
         fsinfo/dm-0/device_count 4
         fsinfo/dm-0/failures_tolerated 1
         fsinfo/sda/device_count 2
         fsinfo/sda/copies 2
         fsinfo/sda/failures_tolerated 1",
    );
    let of_mount = |at: usize| {
        let ends = format!(":mnt{at}");
        let mut instances = table.instances("fsinfo/").into_iter();
        instances.find(|i| i.ends_with(&ends)).expect("by its mount point").to_owned()
    };
    let (memory, zfs) = (of_mount(4), of_mount(5));
    check(
        table,
        &format!(
            "fsinfo/{memory}/copies 1
             fsinfo/{memory}/failures_tolerated 0
             fsinfo/{memory}/device_count -
             fsinfo/{zfs}/copies -
             fsinfo/{zfs}/device_count -"
        ),
    );
    check_texts(
        table,
        &format!(
            "fsinfo/{memory}/type tmpfs
             fsinfo/{memory}/device -
             fsinfo/{memory}/compression none
             fsinfo/{zfs}/type zfs
             fsinfo/{zfs}/compression -
             fsinfo/{zfs}/raid_level -"
        ),
    );
}

#[test]
fn a_file_system_on_an_array_that_loses_a_disk() {
    let tree = file_systems();
    let mut host = tree.host();
    assert_eq!(host.poll(1.0).value("fsinfo/dm-0/failures_tolerated"), 1.0);
    tree.write(
        "proc/mdstat",
        "Personalities : [raid10]\nmd0 : active raid10 sdd1[3](F) sdc1[2] sdb1[1] sda1[0]\n      \
         1953382400 blocks super 1.2 512K chunks 2 near-copies [4/3] [UUU_]\n",
    );
    check(
        host.poll(1.0),
        "fsinfo/md0/failures_tolerated 0
         fsinfo/dm-0/failures_tolerated 0
         fsinfo/md0/copies 2
         raid/md0/degraded 1",
    );
}
