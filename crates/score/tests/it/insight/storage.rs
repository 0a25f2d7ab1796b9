//! Insights about file systems, tiers and blocks.

use super::support::{check, check_with_tiers, value};

#[test]
fn fs_performance() {
    let check = |facts: &str, expected: &str| check("fs_performance", "vda1", facts, expected);
    let ext4 = r#"
        fsinfo/vda1/type "ext4"
        fsinfo/vda1/compression "none"
        fsinfo/vda1/block_bytes 4096
        fsinfo/vda1/raid_level "none"
        fsinfo/vda1/device_count 1
        fsinfo/vda1/device "vda"
    "#;
    check(
        &format!(
            "{ext4}\ndevice/vda/max_bandwidth_bytes_per_second 2.5e9\ndevice/vdb/max_bandwidth_bytes_per_second 1"
        ),
        r#"{"type": "ext4", "compression": "none", "block_bytes": 4096, "raid_level": "none",
            "devices": 1, "device": "vda", "max_bandwidth_bytes_per_second": 2.5e9}"#,
    );
    check(
        ext4,
        r#"{"type": "ext4", "compression": "none", "block_bytes": 4096, "raid_level": "none",
            "devices": 1, "device": "vda", "max_bandwidth_bytes_per_second": null, "unknown":
            {"max_bandwidth_bytes_per_second": "no calibration: run `skopos calibrate vda`"}}"#,
    );
    check(
        "fsinfo/vda1/type \"tmpfs\"\nfsinfo/vda1/block_bytes 4096\nfsinfo/vda1/compression -",
        r#"{"type": "tmpfs", "compression": null, "block_bytes": 4096, "raid_level": null,
            "devices": null, "device": null, "max_bandwidth_bytes_per_second": null, "unknown": {
            "compression": "neither the file system nor its mount reports its compression",
            "raid_level": "neither the file system nor its mount reports the RAID level",
            "devices": "neither the file system nor its mount reports the number of devices",
            "device": "no block device holds it",
            "max_bandwidth_bytes_per_second": "no block device holds it"}}"#,
    );
    check("fsinfo: no /proc", "unknown: no n01/fsinfo/vda1/type: no /proc");
}

#[test]
fn block_hotness() {
    let check = |facts: &str, expected: &str| check("block_hotness", "vda", facts, expected);
    let block = "device/vda/logical_block_bytes 512";
    let hot = r#"block_access/vda/hot_blocks [
        {"start_byte":1048576,"bytes":1048576,"accesses":10,"rate":0.5},
        {"start_byte":0,"bytes":1000,"accesses":90,"rate":4.5}]"#
        .replace('\n', " ");
    check(
        &format!("{hot}\n{block}"),
        r#"{"block_bytes": 512, "truncated": 0, "regions": [
            {"block": 0, "blocks": 2, "accesses_per_second": 4.5},
            {"block": 2048, "blocks": 2048, "accesses_per_second": 0.5}]}"#,
    );
    check(
        &format!("block_access/vda/hot_blocks []\n{block}"),
        r#"{"block_bytes": 512, "truncated": 0, "regions": []}"#,
    );
    check(&hot, "unknown: vda does not report the size of its blocks");
    check(
        &format!("{hot}\ndevice/vda/logical_block_bytes 0"),
        "unknown: the device reports a block size of zero",
    );
    for (garbage, reason) in [
        ("{}", "the hot blocks are not a list"),
        ("[7]", "a hot block is not a record of start_byte, bytes and rate"),
        (
            r#"[{"start_byte":-1,"bytes":5,"rate":1}]"#,
            "a hot block is not a record of start_byte, bytes and rate",
        ),
        (
            r#"[{"start_byte":1,"bytes":5,"rate":-1}]"#,
            "a hot block is not a record of start_byte, bytes and rate",
        ),
    ] {
        let facts = format!("block_access/vda/hot_blocks {garbage}\n{block}");
        check(&facts, &format!("unknown: {reason}"));
    }
    check(
        "block_access: not permitted",
        "unknown: no n01/block_access/vda/hot_blocks: not permitted",
    );
}

#[test]
fn block_hotness_is_cut_and_says_so() {
    let regions: Vec<_> = (0..20)
        .map(|i| format!(r#"{{"start_byte":{},"bytes":4096,"rate":{i}}}"#, i * 4096))
        .collect();
    let facts = format!(
        "block_access/vda/hot_blocks [{}]\ndevice/vda/logical_block_bytes 4096",
        regions.join(",")
    );
    let json = value("block_hotness", "vda", "", &facts).expect("known").to_json();
    assert_eq!(json["regions"].as_array().map(Vec::len), Some(16));
    assert_eq!(json["truncated"], 4);
    assert_eq!(json["regions"][0]["block"], 19);
}

const MOUNTS: &str = r#"
    fs/vda1/available_bytes 227521167360
    fs/vda1/readonly 0
    fsinfo/vda1/mount_point "/"
    fsinfo/vda1/type "ext4"
    fsinfo/vda1/device "vda"
    fs/nvme0n1p1/available_bytes 1000
    fsinfo/nvme0n1p1/mount_point "/scratch"
    fsinfo/nvme0n1p1/type "xfs"
    fsinfo/nvme0n1p1/device "nvme0n1"
    fs/nvme1n1/available_bytes 500
    fsinfo/nvme1n1/mount_point "/scratch2"
    fsinfo/nvme1n1/type "xfs"
    fsinfo/nvme1n1/device "nvme1n1"
    fs/loop3/available_bytes 77
    fsinfo/loop3/mount_point "/image"
    fsinfo/loop3/type "ext4"
    fsinfo/loop3/device "loop3"
    fs/dev:shm/available_bytes 25276514304
    fsinfo/dev:shm/mount_point "/dev/shm"
    fsinfo/dev:shm/type "tmpfs"
    fs/run/available_bytes 5000
    fsinfo/run/mount_point "/run"
    fsinfo/run/type "tmpfs"
    mem/available_bytes 30000000000
    device/vda/kind "virtio"
    device/nvme0n1/kind "nvme"
    device/nvme1n1/kind "nvme"
    device/loop3/kind "loop"
"#;

#[test]
fn tier_remaining_capacity_by_the_file() {
    let tiers = r#"
        [[tier]]
        name = "fast"
        mounts = ["/scratch", "/scratch2"]
        [[tier]]
        name = "slow"
        mounts = ["/", "/archive"]
    "#;
    let check = |tier: &str, facts: &str, expected: &str| {
        check_with_tiers("tier_remaining_capacity_bytes", tier, tiers, facts, expected);
    };
    check("fast", MOUNTS, "1500");
    check(
        "slow",
        MOUNTS,
        "unknown: no file system is mounted at /archive; the mounts are /dev/shm, /image, \
         /scratch, /scratch2, /run, /",
    );
    check("gone", MOUNTS, "unknown: the tiers file has no tier gone");
    check("fast", "fs: hung", "unknown: no n01/fs/*/available_bytes: hung");
    let mounted = MOUNTS.replace("\"/scratch2\"", "\"/archive\"");
    check("slow", &mounted, "227521167860");
    // A read-only file system has no room, whatever it reports.
    check("fast", &format!("{MOUNTS}\nfs/nvme1n1/readonly 1"), "1000");
    // A mount without a measured space makes the sum unknown.
    let unmeasured = MOUNTS.replace("fs/nvme1n1/available_bytes 500", "");
    check("fast", &unmeasured, "unknown: the space of nvme1n1 is not measured");
    let unknown = MOUNTS.replace("available_bytes 500", "available_bytes ?statvfs hangs");
    check("fast", &unknown, "unknown: n01/fs/nvme1n1/available_bytes is unknown: statvfs hangs");
    check(
        "fast",
        "fs/vda1/available_bytes 5\nfsinfo: no mounts",
        "unknown: no n01/fsinfo/*/mount_point: no mounts",
    );
}

const SERVED: &str = r#"
    remote_fs/lustre/mount_point "/lustre"
    remote_fs/lustre/type "lustre"
    remote_fs/lustre/responding 1
    remote_fs/lustre/available_bytes 90000
    remote_fs/lustre/readonly 0
    remote_fs/home/mount_point "/home"
    remote_fs/home/type "nfs4"
    remote_fs/home/responding 1
    remote_fs/home/available_bytes 300
    remote_fs/old/mount_point "/old"
    remote_fs/old/type "nfs"
    remote_fs/old/available_bytes 20
    remote_fs/software/mount_point "/software"
    remote_fs/software/type "nfs"
    remote_fs/software/available_bytes 7
    remote_fs/software/readonly 1
    remote_fs/mnt:me/mount_point "/mnt/me"
    remote_fs/mnt:me/type "fuse.sshfs"
"#;

#[test]
fn tiers_of_remote_file_systems() {
    let facts = format!("{MOUNTS}{SERVED}");
    let hung = facts.replace("lustre/responding 1", "lustre/responding 0");
    let by_type = |tier: &str, facts: &str, expected: &str| {
        check("tier_remaining_capacity_bytes", tier, facts, expected);
    };
    by_type("lustre", &facts, "90000");
    by_type("nfs", &facts, "320");
    by_type("fuse", &facts, "unknown: the space of mnt:me is not measured");
    by_type("lustre", &hung, "unknown: the server of lustre does not answer");
    by_type("nfs", &hung, "320");
    by_type("nvme", &hung, "1500");

    let tiers = r#"
        [[tier]]
        name = "campaign"
        mounts = ["/lustre", "/home", "/scratch2"]
        [[tier]]
        name = "fast"
        mounts = ["/scratch"]
    "#;
    let check = |tier: &str, facts: &str, expected: &str| {
        check_with_tiers("tier_remaining_capacity_bytes", tier, tiers, facts, expected);
    };
    check("campaign", &facts, "90800");
    check("campaign", &hung, "unknown: the server of lustre does not answer");
    check("fast", &hung, "1000");
    check(
        "campaign",
        &facts.replace("\"/home\"", "\"/home2\""),
        "unknown: no file system is mounted at /home; the mounts are /dev/shm, /image, /scratch, \
         /scratch2, /run, /, /home2, /lustre",
    );
}

#[test]
fn tier_remaining_capacity_by_kind() {
    let check = |tier: &str, facts: &str, expected: &str| {
        check("tier_remaining_capacity_bytes", tier, facts, expected);
    };
    check("nvme", MOUNTS, "1500");
    check("virtio", MOUNTS, "227521167360");
    check("memory", MOUNTS, "25276519304");
    check("loop", MOUNTS, "unknown: no file system lies on a device of kind loop");
    check("hdd", MOUNTS, "unknown: no file system lies on a device of kind hdd");
    // The limits of file systems in memory exceed the available memory.
    let memory = "mem/available_bytes 30000000000";
    let full = MOUNTS.replace(memory, "mem/available_bytes 4000000000");
    check("memory", &full, "4000000000");
    let unmeasured = MOUNTS.replace(memory, "mem: no /proc/meminfo");
    check("memory", &unmeasured, "unknown: no n01/mem/available_bytes: no /proc/meminfo");
}
