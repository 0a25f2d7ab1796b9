//! Jobs that this machine cannot run: on several nodes, with GPUs, with swap. Their records are composed by hand, with the
//! noise of a seed.

use serde_json::{Value as Json, json};
use skopos_model::task::SUMMARY_VERSION;

use super::case::{Cases, Composed, Job};

/// The length of the jobs, in seconds.
const WALL: f64 = 600.0;

/// Seconds between two measurements.
const EVERY: usize = 10;

const GIB: f64 = 1_073_741_824.0;

pub(super) fn add(cases: &mut Cases) {
    slow_nodes(cases);
    gpus(cases);
    swap(cases);
}

/// A record of a job.
fn record(kind: &'static str, node: &str, seconds: f64, document: Json) -> Composed {
    Composed { kind, node: node.to_owned(), seconds, document }
}

fn report(node: &str, rank: Option<(usize, usize)>, used: &[(&str, f64, &str)]) -> Json {
    let reading = |value: f64, unit: &str| {
        json!({"value": value, "unit": unit, "method": "wait4", "completeness": "all",
               "error_bound": 0.0})
    };
    let resources: serde_json::Map<String, Json> = used
        .iter()
        .map(|(name, value, unit)| ((*name).to_owned(), reading(*value, unit)))
        .collect();
    let mut report = json!({
        "version": SUMMARY_VERSION,
        "task": {"class": "composed", "command": ["composed"], "folder": "/", "monitor": "composed"},
        "host": {"node": node, "kernel": "6", "cores": 64, "memory_bytes": 1},
        "start_seconds": 0.0, "end_seconds": WALL,
        "ended": {"exit_type": "normal", "status": 0, "signal": null, "limits": [], "guilty": null},
        "level": 2, "resources": resources, "mechanisms": [],
        "overhead": {"cpu_seconds": 0.0, "resident_bytes_max": 1, "stops": 0},
        "disturbed": [], "findings": [], "processes": [], "processes_left_out": 0
    });
    if let Some((rank, size)) = rank {
        report["task"]["rank"] =
            json!({"job": "composed", "rank": rank, "size": size, "launcher": "slurm"});
    }
    report
}

fn slow_nodes(cases: &mut Cases) {
    // The factor of the slowest node, and the spread of all nodes.
    let jobs: [(&str, &'static [&'static str], f64, f64); 5] = match cases.is_held_out() {
        false => [
            ("one slow node", &["slow_node"], 1.6, 0.02),
            ("one slow node", &["slow_node"], 2.5, 0.05),
            ("nodes alike", &[], 1.0, 0.03),
            ("nodes alike", &[], 1.1, 0.02),
            ("nodes of several kinds", &[], 1.3, 0.2),
        ],
        true => [
            ("one slow node", &["slow_node"], 1.4, 0.03),
            ("one slow node", &["slow_node"], 4.0, 0.08),
            ("one slow node", &["slow_node"], 1.35, 0.01),
            ("nodes alike", &[], 1.0, 0.05),
            ("nodes alike", &[], 1.15, 0.04),
        ],
    };
    for (what, faults, factor, spread) in jobs {
        let nodes = 4 + cases.random.below(8);
        let slow = cases.random.below(nodes);
        let mut records = Vec::new();
        for rank in 0..2 * nodes {
            let node = rank / 2;
            let factor = if node == slow { factor } else { 1.0 };
            let wall = 240.0 * factor * (1.0 + spread * cases.random.normal()).max(0.5);
            let used = [("wall_seconds", wall, "seconds"), ("cpu_seconds", 0.95 * wall, "seconds")];
            let name = format!("n{node:02}");
            let document = report(&name, Some((rank, 2 * nodes)), &used);
            records.push(record("report", &name, WALL, document));
        }
        cases.add(what, faults, Job::Composed(records));
    }
}

fn gpus(cases: &mut Cases) {
    let jobs: [(&str, &'static [&'static str], f64); 4] = match cases.is_held_out() {
        false => [
            ("idle GPU", &["gpu_idle"], 0.0),
            ("idle GPU", &["gpu_idle"], 0.04),
            ("busy GPU", &[], 0.9),
            ("GPU that waits for data", &[], 0.35),
        ],
        true => [
            ("idle GPU", &["gpu_idle"], 0.01),
            ("idle GPU", &["gpu_idle"], 0.07),
            ("busy GPU", &[], 0.6),
            ("GPU that waits for data", &[], 0.2),
        ],
    };
    for (what, faults, busy) in jobs {
        let start = json!({"requested": {"gpus": 1.0}});
        let names = json!({"schema": "gpu", "names": ["gpu/0/utilization_ratio"]});
        let mut records =
            vec![record("start", "", 0.0, start), record("metrics", "n01", 0.0, names)];
        for at in (0..600).step_by(EVERY) {
            // It is busy or idle at each moment.
            let value =
                if cases.random.unit() < busy { cases.random.between(0.8, 1.0) } else { 0.0 };
            let document = json!({"schema": "gpu", "values": [value]});
            records.push(record("sample", "n01", at as f64, document));
        }
        records.push(record("report", "n01", WALL, report("n01", None, &[("gpus", 1.0, "")])));
        cases.add(what, faults, Job::Composed(records));
    }
    let start = json!({"requested": {"gpus": 2.0}});
    let records = vec![
        record("start", "", 0.0, start),
        record("report", "n01", WALL, report("n01", None, &[("gpus", 0.0, "")])),
    ];
    cases.add("no context on a GPU", &["gpu_idle"], Job::Composed(records));
}

fn swap(cases: &mut Cases) {
    // Memory in swap and resident, in GiB, and the share of the time that threads waited for memory.
    let jobs: [(&str, &'static [&'static str], [f64; 3]); 5] = match cases.is_held_out() {
        false => [
            ("swaps", &["swapping"], [4.0, 12.0, 0.3]),
            ("swaps", &["swapping"], [1.0, 8.0, 0.05]),
            ("waits for memory", &["swapping"], [0.0, 30.0, 0.25]),
            ("some pages in swap", &[], [0.03, 4.0, 0.0]),
            ("no swap", &[], [0.0, 4.0, 0.01]),
        ],
        true => [
            ("swaps", &["swapping"], [0.8, 6.0, 0.12]),
            ("swaps", &["swapping"], [20.0, 60.0, 0.6]),
            ("waits for memory", &["swapping"], [0.0, 50.0, 0.15]),
            ("some pages in swap", &[], [0.5, 40.0, 0.001]),
            ("no swap", &[], [0.0, 1.0, 0.03]),
        ],
    };
    for (what, faults, [swap, resident, delay]) in jobs {
        let noise = cases.random.between(0.9, 1.1);
        let used = [
            ("swap_bytes_max", swap * GIB * noise, "bytes"),
            ("resident_bytes_max", resident * GIB * noise, "bytes"),
            ("memory_delay_seconds", delay * WALL * noise, "seconds"),
            ("wall_seconds", WALL, "seconds"),
        ];
        let records = vec![record("report", "n01", WALL, report("n01", None, &used))];
        cases.add(what, faults, Job::Composed(records));
    }
}
