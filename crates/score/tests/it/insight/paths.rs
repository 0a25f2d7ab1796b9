//! Insights about paths of packets.

use super::support::check;

const PATH: &str = "10.9.0.1-10.9.0.2";

#[test]
fn path_health() {
    let check = |facts: &str, expected: &str| check("path_health", PATH, facts, expected);
    check(
        "path/10.9.0.1-10.9.0.2/packets_total 100 | 190\npath/10.9.0.1-10.9.0.2/lost_total 0 | 10\n\
         path/10.9.0.1-10.9.0.2/latency_seconds 0.01 | 0.02\n\
         path/10.9.0.1-10.9.0.2/hops_latency_seconds 0.01 | 0.015\n\
         path/10.9.0.1-10.9.0.2/queue_bytes_max 0 | 1200000\npath/10.9.0.1-10.9.0.2/changes_total 0 | 2",
        r#"{"time_ns": 1700000010000000000, "path": "10.9.0.1-10.9.0.2", "latency_seconds": 0.02,
            "hops_seconds": 0.015, "loss_ratio": 0.1, "queue_bytes": 1200000.0, "changes_total": 2.0}"#,
    );
    check(
        "path/10.9.0.1-10.9.0.2/packets_total 100 | 100\npath/10.9.0.1-10.9.0.2/lost_total 0 | 0\n\
         path/10.9.0.1-10.9.0.2/latency_seconds ?no packet\npath/10.9.0.1-10.9.0.2/changes_total 0",
        r#"{"time_ns": 1700000010000000000, "path": "10.9.0.1-10.9.0.2", "latency_seconds": null,
            "hops_seconds": null, "loss_ratio": null, "queue_bytes": null, "changes_total": 0.0, "unknown": {
            "latency_seconds": "n01/path/10.9.0.1-10.9.0.2/latency_seconds is unknown: no packet", "loss_ratio": "no packet in the last interval",
            "hops_seconds": "no n01/path/10.9.0.1-10.9.0.2/hops_latency_seconds",
            "queue_bytes": "no n01/path/10.9.0.1-10.9.0.2/queue_bytes_max"}}"#,
    );
    check(
        "path: no collector",
        "unknown: no n01/path/10.9.0.1-10.9.0.2/packets_total: no collector",
    );
}

#[test]
fn congestion_point() {
    let check = |hops: &str, expected: &str| {
        check("congestion_point", PATH, &format!("path/10.9.0.1-10.9.0.2/hops {hops}"), expected);
    };
    check(
        r#"[{"node":1,"egress_port":3,"queue_bytes":1234567,"latency_seconds":0.2},{"node":2,"egress_port":1,"queue_bytes":9}]"#,
        r#"{"time_ns": 1700000000000000000, "path": "10.9.0.1-10.9.0.2", "node": 1, "port": 3,
            "queue_bytes": 1234567, "latency_seconds": 0.2, "text": "node 1 port 3 holds 1.2 MB"}"#,
    );
    // Of equal queues the first is the cause.
    check(
        r#"[{"node":1,"egress_port":3,"queue_bytes":12345},{"node":2,"egress_port":1,"queue_bytes":12345}]"#,
        r#"{"time_ns": 1700000000000000000, "path": "10.9.0.1-10.9.0.2", "node": 1, "port": 3,
            "queue_bytes": 12345, "latency_seconds": null, "text": "node 1 port 3 holds 12 kB"}"#,
    );
    check(r#"[{"node":1,"queue_bytes":0}]"#, "unknown: all queues of the path are empty");
    check(r#"[{"node":1,"queue_bytes":null}, 7]"#, "unknown: no hop reports its queue");
    check("[]", "unknown: no hop reports its queue");
    check(r#"{"node":1}"#, "unknown: the hops are not a list");
}

#[test]
fn slow_pair() {
    let facts = |lost: u32, hops: f64, io: f64| {
        format!(
            "path/10.9.0.1-10.9.0.2/packets_total 0 | 1000\npath/10.9.0.1-10.9.0.2/lost_total 0 | {lost}\n\
             path/10.9.0.1-10.9.0.2/hops_latency_seconds {hops}\npsi/cpu/some_avg10_ratio 0.02\n\
             psi/io/some_avg10_ratio {io}\npsi/memory/some_avg10_ratio 0"
        )
    };
    let check_all = |facts: &str, verdict: &str, network: &str, host: &str| {
        let expected = format!(
            r#"{{"time_ns": 1700000010000000000, "path": "10.9.0.1-10.9.0.2", "verdict": "{verdict}",
                "network": "{network}", "host": "{host}"}}"#
        );
        check("slow_pair", PATH, facts, &expected);
    };
    let (calm, busy) =
        ("tasks stalled for cpu in 2 % of the time", "tasks stalled for io in 40 % of the time");
    check_all(&facts(0, 0.0002, 0.0), "neither", "packets were 0.200 ms in hops", calm);
    check_all(&facts(0, 0.167, 0.0), "network", "packets were 167.000 ms in hops", calm);
    check_all(&facts(1000, 0.0, 0.0), "network", "50.00 % of packets were lost", calm);
    check_all(&facts(0, 0.0002, 0.4), "host", "packets were 0.200 ms in hops", busy);
    check_all(&facts(1000, 0.0002, 0.4), "both", "50.00 % of packets were lost", busy);
    check(
        "slow_pair",
        PATH,
        "path/10.9.0.1-10.9.0.2/packets_total 0 | 9\npath/10.9.0.1-10.9.0.2/lost_total 0 | 0\npsi: no pressure",
        r#"{"time_ns": 1700000010000000000, "path": "10.9.0.1-10.9.0.2", "verdict": "neither",
            "network": "no packet was lost", "host": null,
            "unknown": {"host": "no n01/psi/cpu/some_avg10_ratio: no pressure"}}"#,
    );
}
