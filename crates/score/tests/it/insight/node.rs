//! Insights about the node, its peers and its jobs.

use super::support::{check, value};

#[test]
fn network_health() {
    let check = |facts: &str, expected: &str| check("network_health", "n02", facts, expected);
    check(
        "peer/n02/alive 1\npeer/n02/rtt_seconds 0.001 | 0.000213\npeer/n02/rtt_seconds_min 0.000187",
        r#"{"time_ns": 1700000010000000000, "from": "n01", "to": "n02", "alive": true,
            "ping_seconds": 0.000213, "ping_seconds_min": 0.000187}"#,
    );
    // The last round-trip time of a silent peer stays as a fact but says nothing about the present.
    check(
        "peer/n02/alive 1 | 0\npeer/n02/rtt_seconds 0.000213\npeer/n02/rtt_seconds_min 0.000187",
        r#"{"time_ns": 1700000010000000000, "from": "n01", "to": "n02", "alive": false,
            "ping_seconds": null, "ping_seconds_min": null, "unknown": {
            "ping_seconds": "n02 does not answer", "ping_seconds_min": "n02 does not answer"}}"#,
    );
    check("peer/n02/alive -", "unknown: n01/peer/n02/alive has no value yet");
    check("", "unknown: no n01/peer/n02/alive");
}

#[test]
fn node_availability() {
    let check = |facts: &str, expected: &str| check("node_availability", "node", facts, expected);
    check(
        "peer/n03/alive 1\npeer/n02/alive 0\npeer/n00/alive 1\npeer/n04/alive -",
        r#"{"time_ns": 1700000000000000000, "count": 3, "undecided": 1, "truncated": 0,
            "nodes": ["n00", "n01", "n03"]}"#,
    );
    check(
        "peer: no peers are configured",
        r#"{"time_ns": 1700000000000000000, "count": 1, "undecided": 0, "truncated": 0,
            "nodes": ["n01"],
            "unknown": {"nodes": "no n01/peer/*/alive: no peers are configured"}}"#,
    );
}

#[test]
fn a_long_list_of_nodes_is_cut_and_says_so() {
    let name = |i: usize| format!("rack-07-chassis-3-node-{i:05}.cluster.example");
    let facts: String = (0..500).map(|i| format!("peer/{}/alive 1\n", name(i))).collect();
    let json = value("node_availability", "node", "", &facts).expect("fits").to_json();
    let listed = json["nodes"].as_array().expect("a list").len();
    assert!(listed > 30, "{listed}");
    assert_eq!(json["count"], 501);
    assert_eq!(json["truncated"], 501 - listed);
    assert_eq!(json["nodes"][0], "n01");
}

#[test]
fn system_time() {
    let check = |facts: &str, expected: &str| check("system_time", "node", facts, expected);
    let peers = "
        peer/n02/clock_offset_seconds 0.004
        peer/n02/clock_offset_bound_seconds 0.0001
        peer/n03/clock_offset_seconds -3600
        peer/n03/clock_offset_bound_seconds 0.0002
        peer/n04/clock_offset_seconds 0.006
        peer/n04/clock_offset_bound_seconds 0.0003
        peer/n05/clock_offset_seconds -
        peer/n06/clock_offset_seconds 99
        peer/n06/clock_offset_bound_seconds 0.0001
        peer/n06/alive 0
        peer/n04/alive 1
    ";
    check(
        &format!("clock/drift_ppm -12.5\n{peers}"),
        r#"{"node": "n01", "time_ns": 1700000000000000000, "drift_ppm": -12.5, "peers": 3,
            "peer_offset_seconds": 0.004, "peer_offset_bound_seconds": 0.0001}"#,
    );
    check(
        "clock/drift_ppm 0\npeer: none configured",
        r#"{"node": "n01", "time_ns": 1700000000000000000, "drift_ppm": 0.0, "peers": 0,
            "peer_offset_seconds": null, "peer_offset_bound_seconds": null, "unknown": {
            "peer_offset_seconds": "no n01/peer/*/clock_offset_seconds: none configured",
            "peer_offset_bound_seconds": "no n01/peer/*/clock_offset_seconds: none configured"}}"#,
    );
    for (facts, why) in [
        (
            "peer/n02/clock_offset_seconds 0.004\npeer/n02/alive 0\npeer/n03/clock_offset_seconds -",
            "no peer that reports its time is alive",
        ),
        ("peer/n02/clock_offset_seconds -\npeer/n02/alive 1", "no peer has reported its time yet"),
    ] {
        check(
            &format!("clock/drift_ppm 0\n{facts}"),
            &format!(
                r#"{{"node": "n01", "time_ns": 1700000000000000000, "drift_ppm": 0.0, "peers": 0,
                "peer_offset_seconds": null, "peer_offset_bound_seconds": null,
                "unknown": {{"peer_offset_seconds": "{why}", "peer_offset_bound_seconds": "{why}"}}}}"#
            ),
        );
    }
    // The time is known without the drift.
    for (fact, why) in [
        ("clock/drift_ppm NaN", "n01/clock/drift_ppm is not a finite number"),
        ("", "no n01/clock/drift_ppm"),
        ("clock: no CLOCK_MONOTONIC_RAW", "no n01/clock/drift_ppm: no CLOCK_MONOTONIC_RAW"),
    ] {
        check(
            &format!("{fact}\n{peers}"),
            &format!(
                r#"{{"node": "n01", "time_ns": 1700000000000000000, "drift_ppm": null, "peers": 3,
                "peer_offset_seconds": 0.004, "peer_offset_bound_seconds": 0.0001,
                "unknown": {{"drift_ppm": "{why}"}}}}"#
            ),
        );
    }
}

#[test]
fn node_energy_per_transfer() {
    let check = |facts: &[&str], expected: &str| {
        check("node_energy_per_transfer_joules", "node", &facts.join("\n"), expected);
    };
    // The partition, the array on the disk and the loop device do not count twice.
    let counters = r#"
        block/vda/read_requests_total 1654749 | 1655598
        block/vda/written_requests_total 2400912 | 2401060
        block/vda1/read_requests_total 1654749 | 1655598
        block/vda1/written_requests_total 2400912 | 2401060
        block/loop3/read_requests_total 0 | 1000
        block/loop3/written_requests_total 0 | 1000
        block/md0/read_requests_total 0 | 1000
        block/md0/written_requests_total 0 | 1000
    "#;
    let kinds = r#"
        device/vda/kind "virtio"
        device/vdb/kind "virtio"
        device/loop3/kind "loop"
        device/md0/kind "md"
    "#;
    check(&[counters, kinds, "energy/total/power_watts 49.85"], "0.5");
    check(
        &[counters, kinds, "energy: no RAPL in this machine"],
        "unknown: no n01/energy/total/power_watts: no RAPL in this machine",
    );
    check(
        &[counters, "energy/total/power_watts 49.85", "device: no sysfs"],
        "unknown: no n01/device/*/kind: no sysfs",
    );
    check(
        &[counters, "device/loop3/kind \"loop\"", "energy/total/power_watts 49.85"],
        "unknown: there is no block device whose transfers count",
    );
    let idle = "block/vda/read_requests_total 5 | 5\nblock/vda/written_requests_total 5 | 5";
    check(
        &[idle, kinds, "energy/total/power_watts 49.85"],
        "unknown: no transfers in the last interval",
    );
}

#[test]
fn allocation_characteristics() {
    let check = |facts: &str, expected: &str| {
        check("allocation_characteristics", "4711", facts, expected);
    };
    let allocation =
        r#"slurm/4711/allocation {"node_list":"n[2-4],vm","nodes":4,"cpus":5,"tasks":5,
        "cpus_per_task":1,"memory_bytes":2936012800,"distribution_left_out":3,"distribution":[
        {"nodes":"n2","cpus":2,"memory_bytes":734003200},
        {"nodes":"n[3-4],vm","cpus":1,"memory_bytes":734003200}]}"#
            .replace('\n', " ");
    check(
        &format!(
            "{allocation}\nslurm/4711/node_tasks 2\nslurm/4711/node_processes 3 | 4\nslurm/4711/node_read_bytes_total 1024\n\
             slurm/4711/node_written_bytes_total 2048"
        ),
        r#"{"time_ns": 1700000010000000000, "nodes": 4, "cpus": 5, "tasks": 5, "truncated": 3,
            "distribution": [{"nodes": "n2", "cpus": 2, "memory_bytes": 734003200},
            {"nodes": "n[3-4],vm", "cpus": 1, "memory_bytes": 734003200}],
            "node_tasks": 2, "processes": 4, "read_bytes": 1024, "written_bytes": 2048}"#,
    );
    check(
        r#"slurm/4711/allocation {"nodes":1,"distribution":[]}"#,
        r#"{"time_ns": 1700000000000000000, "nodes": 1, "cpus": null, "tasks": null,
            "truncated": 0, "node_tasks": null, "processes": null, "distribution": [],
            "read_bytes": null, "written_bytes": null, "unknown": {
            "cpus": "Slurm does not report cpus", "tasks": "Slurm does not report tasks",
            "node_tasks": "no n01/slurm/4711/node_tasks",
            "processes": "no n01/slurm/4711/node_processes",
            "read_bytes": "no n01/slurm/4711/node_read_bytes_total",
            "written_bytes": "no n01/slurm/4711/node_written_bytes_total"}}"#,
    );
    check(
        r#"slurm/4711/allocation {"nodes":-1}"#,
        "unknown: the allocation does not include its nodes and their distribution",
    );
    check("slurm: no scontrol", "unknown: no n01/slurm/4711/allocation: no scontrol");
}
