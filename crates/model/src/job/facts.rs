//! Measurements of the nodes of a job: facts, under names by which jobs can be compared.
//!
//! A fact of a node belongs to all jobs that run there. A fact of one job is one of Slurm's sensor, or of the control group
//! that Slurm made for the job. The hub names facts in the same way when it records them itself.

use std::collections::BTreeMap;

use super::id::JobId;
use super::metrics::MAX_METRICS;

/// The beginning of the names of facts of the job.
const OF_JOB: &str = "job/";

/// The numeric facts of a node at one time, by the part of their topic behind the node.
pub type NodeValues = BTreeMap<String, f64>;

/// A measurement of a job on one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMeasurement {
    /// The name of the schema: the same for all measurements with the same names.
    pub schema: String,
    /// The names: those of facts of the node, and `job/METRIC` for facts of the job.
    pub names: Vec<String>,
    /// The values, in the order of the names.
    pub values: Vec<f64>,
    /// Number of facts that have no room.
    pub left_out: u64,
}

impl NodeMeasurement {
    /// Returns the measurement of a job: the facts of the node, and those of this job. The name of a fact of the job does not
    /// have its id.
    pub fn of(job: &JobId, values: &NodeValues) -> Self {
        let mut measurement = Self::default();
        for (name, value) in values {
            let name = match OfJob::of(name) {
                None => name.clone(),
                Some(of) if of.job == job.job() && of.is_whole => format!("{OF_JOB}{}", of.metric),
                Some(_) => continue,
            };
            // Two sources, or a topic of a user, may have one name.
            if name.starts_with(OF_JOB) && measurement.names.contains(&name) {
                continue;
            }
            if measurement.names.len() >= MAX_METRICS {
                measurement.left_out += 1;
                continue;
            }
            measurement.names.push(name);
            measurement.values.push(*value);
        }
        measurement.schema = format!("node-{:08x}", fingerprint(&measurement.names));
        measurement
    }
}

/// Returns the id of the job that a fact belongs to, by the part of its topic behind the node; `None` for a fact of the node.
///
/// ```
/// use skopos_model::job::job_of_fact;
///
/// assert_eq!(job_of_fact("slurm/7/node_read_bytes_total"), Some("7"));
/// assert_eq!(job_of_fact("cgroup/system.slice:slurmstepd.scope:job_7/memory_bytes"), Some("7"));
/// assert_eq!(job_of_fact("mem/available_bytes"), None);
/// ```
pub fn job_of_fact(name: &str) -> Option<&str> {
    OfJob::of(name).map(|of| of.job)
}

/// A fact of one job.
struct OfJob<'n> {
    job: &'n str,
    metric: &'n str,
    /// False for a fact of a step or a task of the job.
    is_whole: bool,
}

impl<'n> OfJob<'n> {
    fn of(name: &'n str) -> Option<Self> {
        if let Some(rest) = name.strip_prefix("slurm/") {
            let (job, metric) = rest.split_once('/')?;
            return Some(Self { job, metric, is_whole: true });
        }
        let (path, metric) = name.strip_prefix("cgroup/")?.split_once('/')?;
        // A path is one segment of the topic, with colons between the names of groups.
        let groups: Vec<&str> = path.split(':').collect();
        // A user can make groups of any name below an own one, but not these.
        let is_of_slurm = match groups.as_slice() {
            ["system.slice", scope, ..] => scope.ends_with("slurmstepd.scope"),
            [first, ..] => first.starts_with("slurm"),
            [] => false,
        };
        let at = groups.iter().position(|group| group.starts_with("job_"))?;
        let job = groups[at].strip_prefix("job_").filter(|job| is_of_slurm && !job.is_empty())?;
        Some(Self { job, metric, is_whole: at + 1 == groups.len() })
    }
}

/// Returns a hash of names, which is the same in every process: FNV-1a.
fn fingerprint(names: &[String]) -> u32 {
    let bytes = names.iter().flat_map(|name| name.bytes().chain([0]));
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_the_facts_of_its_nodes_and_its_own_but_not_those_of_others() {
        let values = [
            ("cpu/total/busy_ratio", 0.5),
            ("slurm/7/node_read_bytes_total", 1.0),
            ("slurm/71/node_read_bytes_total", 2.0),
            ("cgroup/system.slice:slurmstepd.scope:job_7/memory_bytes", 3.0),
            ("cgroup/system.slice:slurmstepd.scope:job_7:step_0/memory_bytes", 4.0),
            ("cgroup/system.slice:slurmstepd.scope:job_71/memory_bytes", 5.0),
        ];
        let values: NodeValues = values.map(|(name, value)| (name.to_owned(), value)).into();
        let of = |job: &str| NodeMeasurement::of(&JobId::new(job, 0).expect("an id"), &values);
        let seven = of("7");
        assert_eq!(seven.left_out, 0);
        assert_eq!(
            seven.names,
            ["job/memory_bytes", "cpu/total/busy_ratio", "job/node_read_bytes_total"]
        );
        assert_eq!(seven.values, [3.0, 0.5, 1.0]);
        assert_eq!(seven.schema, of("71").schema, "jobs with the same facts have the same schema");
        let other = of("8");
        assert!(other.schema != seven.schema && other.names == ["cpu/total/busy_ratio"]);
    }

    #[test]
    fn only_groups_of_slurm_are_jobs() {
        for (name, expected) in [
            ("slurm/7/nodes", Some("7")),
            ("slurm/7", None),
            ("cgroup/slurm:uid_0:job_7/memory_bytes", Some("7")),
            ("cgroup/slurm_n01:uid_0:job_7:step_batch/memory_bytes", Some("7")),
            ("cgroup/system.slice:n01_slurmstepd.scope:job_7/memory_bytes", Some("7")),
            ("cgroup/user.slice:user-1000.slice:slurmstepd.scope:job_7/memory_bytes", None),
            ("cgroup/user.slice:job_7/memory_bytes", None),
            ("cgroup/system.slice:slurmstepd.scope:job_/memory_bytes", None),
            ("cgroup/-/memory_bytes", None),
            ("cgroup/memory_bytes", None),
            ("mem/available_bytes", None),
        ] {
            assert_eq!(job_of_fact(name), expected, "{name}");
        }
    }

    #[test]
    fn facts_without_room_are_counted() {
        let values = (0..MAX_METRICS + 3).map(|at| (format!("app/{at}"), 1.0)).collect();
        let measurement = NodeMeasurement::of(&JobId::new("7", 0).expect("an id"), &values);
        assert_eq!((measurement.names.len(), measurement.left_out), (MAX_METRICS, 3));
    }
}
