//! Facts appear in a graph, and their insights appear by themselves, have values or reasons, and
//! vanish with the facts.

use std::collections::BTreeMap;
use std::time::Duration;

use skopos_model::{Structured, Timestamp, Topic, Value, schema};
use skopos_score::insight::{BuiltIn, Changes, Tiers};
use skopos_score::{Graph, Unknown, VertexId};

use super::support::START;

/// An agent without sensors.
struct Node {
    graph: Graph,
    built_in: BuiltIn,
    facts: BTreeMap<String, VertexId>,
    now: Timestamp,
}

impl Node {
    fn new() -> Self {
        let (built_in, changes) = BuiltIn::new("n01", Tiers::default());
        let graph = Graph::default();
        let mut node = Self { graph, built_in, facts: BTreeMap::new(), now: START };
        node.apply(changes);
        node
    }

    fn apply(&mut self, changes: Changes) {
        for topic in changes.removed {
            let id = self.graph.find(topic.as_str()).expect("it was added");
            self.graph.remove(id).expect("it is there");
        }
        for vertex in changes.added {
            self.graph.add_insight(vertex.spec, vertex.insight).expect("room, and no cycle");
        }
    }

    /// One poll ten seconds after the last: one `block/vda/read_bytes_total 7` per line, values in
    /// JSON.
    fn poll(&mut self, facts: &str) {
        self.now = self.now.saturating_add(Duration::from_secs(10));
        for line in facts.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (topic, value) = line.split_once(' ').expect("a value");
            let topic = Topic::new(&format!("n01/{topic}")).expect("a topic");
            let metric = schema::lookup(&topic).unwrap_or_else(|| panic!("{topic}"));
            let id = *self.facts.entry(topic.to_string()).or_insert_with(|| {
                self.graph.add_fact(topic.clone(), metric.unit, metric.kind).expect("a new one")
            });
            let value = match Structured::from_json(value) {
                Ok(structured) => Value::Structured(structured),
                Err(_) => metric.value_type.parse_value(value).expect("a number"),
            };
            let text = match &value {
                Value::Structured(structured) => structured.as_json().as_str(),
                _ => None,
            };
            let changes = self.built_in.fact(&topic, text);
            self.graph.set_value(id, self.now, value).expect("it is there");
            self.apply(changes);
        }
        self.graph.run(self.now, &mut |_| {});
    }

    fn vanish(&mut self, of: &str) {
        let gone: Vec<String> = self.facts.keys().filter(|t| t.contains(of)).cloned().collect();
        for topic in gone {
            let id = self.facts.remove(&topic).expect("listed");
            self.graph.remove(id).expect("it is there");
            let changes = self.built_in.fact_gone(&Topic::new(&topic).expect("one"));
            self.apply(changes);
        }
        self.graph.run(self.now, &mut |_| {});
    }

    fn outcome(&self, insight: &str) -> Result<Value, Unknown> {
        let id = self.graph.find(&format!("n01/insight/{insight}")).expect(insight);
        self.graph.view(id).expect("found").outcome().expect("it was computed").clone()
    }

    fn number(&self, insight: &str) -> f64 {
        self.outcome(insight).expect(insight).as_f64().expect("a number")
    }

    fn why(&self, insight: &str) -> String {
        self.outcome(insight).expect_err(insight).reason().to_owned()
    }
}

const DISK: &str = r#"
    device/vda/kind "ssd"
    device/vda/concurrency 128
    device/vda/logical_block_bytes 512
    block/vda/queue_depth_mean 64
"#;

fn counters(read: u64, written: u64) -> String {
    format!(
        "block/vda/read_bytes_total {read}\nblock/vda/written_bytes_total {written}
         block/vda/busy_seconds_total {}\nblock/vda/read_requests_total {read}
         block/vda/written_requests_total {written}\n",
        read as f64 / 1000.0
    )
}

#[test]
fn unmeasured_insights_have_a_reason_and_measured_ones_a_value() {
    let mut node = Node::new();
    node.graph.set_missing("energy", "there is no RAPL");
    node.graph.set_missing("smart", "there is no smartctl");
    node.poll(&(DISK.to_owned() + &counters(1000, 500)));
    node.poll(&counters(3000, 500));
    let uncalibrated = "no calibration: run `skopos calibrate vda`";
    let of_msca = format!("n01/insight/vda/interference_factor_ratio is unknown: {uncalibrated}");
    let reason = "no n01/energy/total/power_watts: energy: skipped: there is no RAPL";
    for (insight, why) in [
        ("node/node_energy_per_transfer_joules", reason),
        ("vda/interference_factor_ratio", uncalibrated),
        ("vda/msca", &of_msca),
        (
            "vda/device_fault_tolerance",
            "n01/insight/vda/device_health_ratio is unknown: no n01/smart/vda/bad_blocks: smart: \
             skipped: there is no smartctl",
        ),
    ] {
        assert_eq!(node.why(insight), why, "{insight}");
    }
    assert_eq!(node.number("vda/device_load_ratio_per_second"), 200.0 / 3500.0);
    assert_eq!(node.number("vda/device_load_busy_ratio"), 0.2);

    // Later come a calibration, SMART and a file system.
    let more = r#"
        device/vda/max_bandwidth_bytes_per_second 400
        smart/vda/bad_blocks 1
        smart/vda/total_blocks 4
        fsinfo/vda1/type "ext4"
        fsinfo/vda1/device "vda"
        fsinfo/vda1/copies 2
        fs/vda1/available_bytes 12345
    "#;
    node.poll(&(counters(4000, 500) + more));
    for (insight, value) in [
        ("vda/interference_factor_ratio", 0.25),
        ("vda/msca", 0.375),
        ("vda/device_health_ratio", 0.75),
        ("vda/device_fault_tolerance", 1.5),
        ("ssd/tier_remaining_capacity_bytes", 12345.0),
    ] {
        assert_eq!(node.number(insight), value, "{insight}");
    }
    assert!(node.outcome("vda1/fs_performance").is_ok());
}

#[test]
fn rates_follow_a_disk_that_stops_and_counters_that_restart() {
    let mut node = Node::new();
    let energy = "node/node_energy_per_transfer_joules";
    let load = "vda/device_load_ratio_per_second";
    node.poll(&(DISK.to_owned() + &counters(4000, 500)));
    node.poll(&(counters(5000, 500) + "energy/total/power_watts 50"));
    assert_eq!(node.number(load), 100.0 / 5500.0);
    // A load of zero, and no transfer to divide by.
    node.poll(&counters(5000, 500));
    assert_eq!(node.number(load), 0.0);
    assert_eq!(node.why(energy), "no transfers in the last interval");
    node.poll(&(counters(6000, 600) + "energy/total/power_watts 55"));
    assert_eq!(node.number(energy), 0.5);
    node.poll(&counters(10, 10));
    assert_eq!(
        node.why(load),
        "n01/block/vda/read_bytes_total has restarted, and a rate needs two polls"
    );
}

#[test]
fn insights_come_and_go_with_their_facts() {
    let mut node = Node::new();
    node.poll("");
    let at_first = node.graph.len();
    node.poll(&(DISK.to_owned() + &counters(1000, 500)));
    assert_eq!(node.graph.len(), at_first + node.facts.len() + 9);
    node.poll("fsinfo/vda1/type \"ext4\"\nfsinfo/vda1/device \"vda\"\nslurm/7/allocation {}");
    assert_eq!(node.graph.len(), at_first + node.facts.len() + 9 + 3);
    for gone in ["/block/", "/device/", "/fsinfo/", "/slurm/"] {
        node.vanish(gone);
    }
    assert!(node.facts.is_empty());
    assert_eq!(node.graph.len(), at_first);
}

#[test]
fn a_peer_that_goes_silent_leaves_the_list_of_nodes() {
    let mut node = Node::new();
    let nodes = |node: &Node| {
        let list = node.outcome("node/node_availability").expect("never unknown").to_json();
        list["nodes"].clone()
    };
    node.poll("");
    assert_eq!(nodes(&node), serde_json::json!(["n01"]));
    let peer =
        "peer/n00/probes_total 5\npeer/n00/rtt_seconds 0.001\npeer/n00/rtt_seconds_min 0.001";
    node.poll(&format!("{peer}\npeer/n00/alive 1"));
    assert_eq!(nodes(&node), serde_json::json!(["n00", "n01"]));
    let health = |node: &Node| node.outcome("n00/network_health").expect("known").to_json();
    assert_eq!(health(&node)["ping_seconds"], 0.001);
    node.poll(&format!("{peer}\npeer/n00/alive 0"));
    assert_eq!(nodes(&node), serde_json::json!(["n01"]));
    assert!(health(&node)["ping_seconds"].is_null());
    node.vanish("/peer/");
    assert_eq!(node.graph.find("n01/insight/n00/network_health"), None);
}
