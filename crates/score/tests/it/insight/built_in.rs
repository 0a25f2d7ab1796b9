//! Vertices come and go with the facts of their subjects.

use std::collections::BTreeSet;

use skopos_model::{MAX_TOPIC_BYTES, Topic, ValueType};
use skopos_score::insight::{BuiltIn, Changes, DEFINITIONS, Definition, MAX_INSTANCES, Tiers};

struct Seen {
    built_in: BuiltIn,
    vertices: BTreeSet<String>,
}

impl Seen {
    fn new(tiers: &str) -> Self {
        let (built_in, changes) = BuiltIn::new("n01", Tiers::parse(tiers).expect("good"));
        let mut seen = Self { built_in, vertices: BTreeSet::new() };
        seen.take(changes);
        seen
    }

    fn fact(&mut self, topic: &str, text: Option<&str>) {
        let changes = self.built_in.fact(&topic.parse().expect("a topic"), text);
        self.take(changes);
    }

    fn gone(&mut self, topic: &str) {
        let changes = self.built_in.fact_gone(&topic.parse().expect("a topic"));
        self.take(changes);
    }

    /// Checks that only present vertices are removed and only absent vertices are added.
    fn take(&mut self, changes: Changes) {
        for topic in changes.removed {
            assert!(self.vertices.remove(topic.as_str()), "{topic}");
        }
        for vertex in changes.added {
            assert_eq!(vertex.spec.inputs.len(), vertex.definition.inputs.len());
            assert!(self.vertices.insert(vertex.spec.topic.to_string()), "{}", vertex.spec.topic);
        }
    }

    fn count(&self, of: &str) -> usize {
        self.vertices.iter().filter(|topic| topic.contains(of)).count()
    }
}

/// The insights of every node.
const OF_THE_NODE: [&str; 4] =
    ["node_availability", "node_energy_per_transfer_joules", "slow_device", "system_time"];

#[test]
fn all_rows_of_the_table_and_those_after_it_are_defined_and_in_order() {
    let mut rows: Vec<u8> = DEFINITIONS.iter().map(|d| d.row).collect();
    assert!(rows.is_sorted());
    rows.dedup();
    assert_eq!(rows, (1..=19).collect::<Vec<u8>>());
    for definition in DEFINITIONS {
        let name = definition.metric.name;
        assert_eq!(definition.metric.path, "insight", "{name}");
        assert_ne!(definition.metric.value_type, ValueType::U64, "{name}");
        for input in definition.inputs {
            assert!(definition.formula.contains(input.name), "{name}: {}", input.name);
        }
    }
}

#[test]
fn vertices_follow_facts() {
    let mut seen = Seen::new("");
    let at_first: BTreeSet<String> =
        OF_THE_NODE.iter().map(|name| format!("n01/insight/node/{name}")).collect();
    assert_eq!(seen.vertices, at_first);

    seen.fact("n01/device/nvme0n1/kind", None);
    assert_eq!(seen.vertices, at_first, "its kind is not known yet");
    seen.fact("n01/device/nvme0n1/kind", Some("nvme"));
    seen.fact("n01/device/nvme0n1/kind", Some("nvme"));
    assert_eq!(seen.count("/nvme0n1/"), 9);
    seen.fact("n01/device/loop0/kind", Some("loop"));
    seen.fact("n02/device/nvme7n1/kind", Some("nvme"));
    seen.fact("n01/device/nvme0n1/size_bytes", None);
    assert_eq!(seen.vertices.len(), 13);

    seen.fact("n01/fsinfo/nvme0n1p1/type", Some("xfs"));
    assert_eq!(seen.count("/nvme0n1p1/fs_performance"), 1);
    assert_eq!(seen.count("tier_remaining"), 0, "its device is not known yet");
    seen.fact("n01/fsinfo/nvme0n1p1/device", Some("nvme0n1"));
    assert_eq!(seen.count("/nvme/tier_remaining"), 1);
    seen.fact("n01/fsinfo/dev:shm/type", Some("tmpfs"));
    assert_eq!(seen.count("/memory/tier_remaining"), 1);
    seen.fact("n01/remote_fs/home/type", Some("nfs4"));
    seen.fact("n01/remote_fs/projects/type", Some("nfs"));
    seen.fact("n01/remote_fs/lustre/type", Some("lustre"));
    assert_eq!(seen.count("/nfs/tier_remaining"), 1);
    assert_eq!(seen.count("/lustre/tier_remaining"), 1);
    seen.gone("n01/remote_fs/home/type");
    assert_eq!(seen.count("/nfs/tier_remaining"), 1, "there is another one");

    seen.fact("n01/peer/n02/probes_total", None);
    seen.fact("n01/slurm/4711/allocation", None);
    assert_eq!(seen.count("/n02/network_health"), 1);
    assert_eq!(seen.count("/4711/allocation_characteristics"), 1);
    seen.fact("n01/path/10.9.0.1-10.9.0.2/packets_total", None);
    assert_eq!(seen.count("/10.9.0.1-10.9.0.2/"), 3);

    for fact in [
        "n01/device/nvme0n1/kind",
        "n01/device/nvme0n1/kind",
        "n01/fsinfo/nvme0n1p1/type",
        "n01/fsinfo/nvme0n1p1/device",
        "n01/fsinfo/dev:shm/type",
        "n01/remote_fs/projects/type",
        "n01/remote_fs/lustre/type",
        "n01/peer/n02/probes_total",
        "n01/slurm/4711/allocation",
        "n01/path/10.9.0.1-10.9.0.2/packets_total",
        "n01/device/never/kind",
    ] {
        seen.gone(fact);
    }
    assert_eq!(seen.vertices, at_first);
}

#[test]
fn tiers_of_the_file_are_there_at_once() {
    let mut seen = Seen::new("[[tier]]\nname = \"fast\"\nmounts = [\"/scratch\"]\n");
    assert_eq!(seen.count("/fast/tier_remaining_capacity_bytes"), 1);
    seen.fact("n01/device/vda/kind", Some("ssd"));
    seen.fact("n01/fsinfo/vda/type", Some("ext4"));
    seen.fact("n01/fsinfo/vda/device", Some("vda"));
    assert_eq!(seen.count("tier_remaining"), 1, "kinds are no tiers beside a file");
}

#[test]
fn every_definition_without_a_vertex_says_why() {
    let mut seen = Seen::new("");
    seen.built_in.set_missing("device", Some("/sys/block: Permission denied"));
    seen.built_in.set_missing("slurm", Some("there is no scontrol"));
    let standing = |seen: &Seen, name: &str| {
        let mut all = seen.built_in.states();
        all.find(|(d, _)| d.metric.name == name).expect("defined").1
    };
    assert_eq!(seen.built_in.states().count(), DEFINITIONS.len());
    for (definition, standing) in seen.built_in.states() {
        assert_eq!(standing.why_none.is_none(), OF_THE_NODE.contains(&definition.metric.name));
    }
    let why = |seen: &Seen, name: &str| standing(seen, name).why_none.expect("none");
    assert_eq!(why(&seen, "msca"), "device: skipped: /sys/block: Permission denied");
    assert_eq!(why(&seen, "allocation_characteristics"), "slurm: skipped: there is no scontrol");
    assert_eq!(why(&seen, "network_health"), "no peer is configured");
    seen.built_in.set_missing("slurm", None);
    assert_eq!(why(&seen, "allocation_characteristics"), "no job has an allocation on this node");
    seen.fact("n01/device/sda/kind", Some("hdd"));
    assert_eq!(standing(&seen, "msca").vertices, 1);
    assert_eq!(standing(&seen, "msca").why_none, None);
}

#[test]
fn instances_beyond_the_bound_are_counted() {
    let mut seen = Seen::new("");
    for job in 0..MAX_INSTANCES + 3 {
        seen.fact(&format!("n01/slurm/{job}/allocation"), None);
    }
    let refused = |seen: &Seen| {
        let mut all = seen.built_in.states();
        let (_, standing) = all.find(|(d, _)| d.row == 15).expect("defined");
        (standing.vertices, standing.refused)
    };
    assert_eq!(refused(&seen), (MAX_INSTANCES, 3));
    for job in 0..10 {
        seen.gone(&format!("n01/slurm/{job}/allocation"));
    }
    assert_eq!(refused(&seen), (MAX_INSTANCES - 7, 0));
    // A name with which the topic of the fact has the greatest length of a topic.
    let long = "x".repeat(MAX_TOPIC_BYTES - "n01/slurm//allocation".len());
    assert!(Topic::new(&format!("n01/slurm/{long}/allocation")).is_ok());
    seen.fact(&format!("n01/slurm/{long}/allocation"), None);
    assert_eq!(refused(&seen), (MAX_INSTANCES - 7, 1));
}

/// The page for users has the formulas of the code.
#[test]
fn the_page_of_insights_has_each_with_its_formula() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = words(include_str!("../../../../../docs/reference/insights.md"));
    for Definition { metric, formula, row, .. } in DEFINITIONS {
        assert!(page.contains(&format!("## {row} ")), "{row}");
        assert!(page.contains(&format!("`{}`", metric.name)), "{}", metric.name);
        assert!(page.contains(&format!("Formula: `{}`", words(formula))), "{}", metric.name);
    }
}
