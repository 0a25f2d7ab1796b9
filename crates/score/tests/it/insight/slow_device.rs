//! The insight that names slow devices.

use serde_json::{Value as Json, json};

use super::support::{check, value};

/// Ten seconds of a device: share of busy time, accesses a second, and accesses at once.
fn device(name: &str, kind: &str, busy: f64, accesses: u64, in_flight: f64) -> String {
    let (requests, bytes) = (10 * accesses, 10 * accesses * 4096);
    let (busy_seconds, seconds) = (10.0 * busy, 10.0 * busy * in_flight);
    format!(
        "block/{name}/busy_seconds_total 0 | {busy_seconds}\nblock/{name}/read_requests_total 0 | {requests}\n\
         block/{name}/written_requests_total 5 | 5\nblock/{name}/read_seconds_total 0 | {seconds}\n\
         block/{name}/written_seconds_total 1 | 1\nblock/{name}/read_bytes_total 0 | {bytes}\n\
         block/{name}/written_bytes_total 0 | 0\ndevice/{name}/kind \"{kind}\"\n"
    )
}

fn check_node(facts: &str, expected: &str) {
    check("slow_device", "node", facts, expected);
}

/// Returns the text of the insight.
fn text(facts: &str) -> String {
    let record = value("slow_device", "node", "", facts).expect("a slow device").to_json();
    record["text"].as_str().expect("a text").to_owned()
}

#[test]
fn a_device_that_seeks_is_named_with_its_mount_point_and_the_reason() {
    let place = "fsinfo/loop0/device \"loop0\"\nfsinfo/loop0/mount_point \"/lab/bad\"\n\
                 fsinfo/vda1/device \"vda\"\nfsinfo/vda1/mount_point \"/\"\n";
    let slow = device("loop0", "loop", 1.0, 64, 1.0);
    let usual = device("vda", "virtio", 0.125, 1024, 1.0);
    check_node(
        &format!("{slow}{usual}{place}"),
        r#"{"time_ns": 1700000010000000000, "devices": [{"device": "loop0", "kind": "loop",
            "mount_points": ["/lab/bad"], "busy_ratio": 1.0, "accesses_per_second": 64.0,
            "access_seconds": 0.015625, "access_bytes": 4096.0, "in_flight": 1.0, "reason": "device"}],
            "truncated": 0,
            "text": "loop0 takes 16 ms an access; the device itself is slow (1.0 at once, 4.1 kB each, at /lab/bad)"}"#,
    );
}

#[test]
fn a_device_is_compared_with_those_of_its_kind() {
    let bad = device("sdb", "hdd", 1.0, 64, 1.0);
    let others = ["sda", "sdc", "sdd"].map(|name| device(name, "hdd", 0.0625, 64, 1.0)).concat();
    let faster = device("nvme0n1", "nvme", 0.25, 8192, 1.0);
    assert_eq!(
        text(&format!("{bad}{others}{faster}")),
        "sdb takes 16 ms an access, 16 times its peers; the device itself is slow (1.0 at once, 4.1 kB each)"
    );
}

#[test]
fn a_device_with_many_accesses_at_once_is_not_blamed_itself() {
    assert_eq!(
        text(&device("vda", "virtio", 1.0, 64, 16.0)),
        "vda takes 250 ms an access; it serves many (16 at once, 4.1 kB each)"
    );
}

#[test]
fn a_device_that_completes_nothing_comes_first() {
    let stuck = device("sdb", "hdd", 1.0, 0, 0.0);
    let slow = device("sda", "hdd", 0.5, 16, 1.0);
    let place = "fsinfo/sdb/device \"sdb\"\nfsinfo/sdb/mount_point \"/data\"\n";
    let facts = format!("{slow}{stuck}{place}");
    assert_eq!(text(&facts), "sdb is busy and completes no access (at /data); also slow: sda");
    let record = value("slow_device", "node", "", &facts).expect("two slow devices").to_json();
    let first = &record["devices"][0];
    assert_eq!((&first["reason"], &first["device"]), (&json!("none_completes"), &json!("sdb")));
    assert_eq!(first.get("access_seconds"), None::<&Json>, "nothing is made up");
}

#[test]
fn many_slow_devices_and_long_mount_points_fit_the_record() {
    let all: String = (0..40)
        .map(|at| {
            let facts = device(&format!("sd{at}"), "hdd", 1.0, 64, 1.0);
            let point = format!("/{}", "ä".repeat(300));
            let place = |n: u32| {
                format!(
                    "fsinfo/sd{at}p{n}/device \"sd{at}\"\nfsinfo/sd{at}p{n}/mount_point \"{point}\"\n"
                )
            };
            facts + &(0..6).map(place).collect::<String>()
        })
        .collect();
    let record = value("slow_device", "node", "", &all).expect("it fits").to_json();
    let listed = record["devices"].as_array().expect("a list").len() as u64;
    assert!((1..=4).contains(&listed), "{record}");
    assert_eq!(record["truncated"].as_u64(), Some(40 - listed));
}

#[test]
fn a_node_without_a_slow_device_says_so() {
    let calm = "unknown: no device is busy and takes 1 ms or more for an access";
    // Idle, slow and rarely used, busy and quick.
    for (busy, accesses) in [(0.0, 0), (0.25, 16), (1.0, 4096)] {
        check_node(&device("vda", "virtio", busy, accesses, 1.0), calm);
    }
    // Arrays and memory are not judged, and partitions have no kind.
    for kind in ["md", "dm", "zram", "ram"] {
        check_node(&device("md0", kind, 1.0, 64, 1.0), calm);
    }
    let partition = device("vda1", "virtio", 1.0, 64, 1.0).replace("device/vda1/", "device/vda/");
    check_node(&partition, calm);
    check_node(
        "block: no /proc/diskstats",
        "unknown: no n01/block/*/busy_seconds_total: no /proc/diskstats",
    );
    let first = device("vda", "virtio", 1.0, 64, 1.0).replace("0 | ", "");
    check_node(
        &first,
        "unknown: n01/block/vda/busy_seconds_total was polled once, and a rate needs two polls",
    );
}
