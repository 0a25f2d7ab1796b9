//! Reads the facts of this machine, and which jobs have facts of their own here.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use skopos_model::job::{NodeValues, job_of_fact};
use skopos_model::{Origin, Topic, TopicPattern, Value, core_list};
use skopos_shm::{Error, Host, Segment, SegmentVersions, Vertex};
use skopos_wire::MAX_JOBS_OF_NODE;

use crate::answer::full;
use crate::published::published_here;

/// Age of the last poll of a source beyond which its values are left out: a sensor that has ended must not look alive.
/// It is three times the longest interval that a source needs, that of `smart`. Intervals that are configured may be longer.
const MAX_SILENCE: Duration = Duration::from_secs(900);

/// The facts of this machine at one time.
#[derive(Debug, Default)]
pub(super) struct NodeFacts {
    /// The numbers that are recorded.
    pub(super) values: NodeValues,
    /// The ids of the jobs that have facts of their own.
    pub(super) jobs: BTreeSet<String>,
    /// Number of facts of further jobs, and of sources that were not polled for [`MAX_SILENCE`].
    pub(super) left_out: u64,
}

/// Reads shared memory like any other program, and keeps a list of the vertices that are wanted.
pub(super) struct FactReader {
    node: String,
    topics: Vec<TopicPattern>,
    host: Host,
    versions: SegmentVersions,
    /// The vertices, with their topics as other nodes know them.
    vertices: Vec<(Vertex, Topic)>,
}

impl FactReader {
    /// Reads the segments of the agent `node` in a runtime directory. Facts of `topics` are wanted, and those of jobs.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn new(node: &str, dir: PathBuf, topics: Vec<TopicPattern>) -> Result<Self, Error> {
        let host = published_here(Host::open_dirs(vec![dir])?);
        let (versions, vertices) = (SegmentVersions::default(), Vec::new());
        Ok(Self { node: node.to_owned(), topics, host, versions, vertices })
    }

    /// Returns the latest values. No sensor is polled for them.
    pub(super) fn read(&mut self) -> NodeFacts {
        // If the directory cannot be listed now, the previous list stays.
        let _ = self.host.refresh();
        if let Some(versions) = self.host.changes(&self.versions) {
            self.versions = versions;
            self.vertices = self.wanted();
        }
        let mut facts = NodeFacts::default();
        for (vertex, topic) in &self.vertices {
            // A mark for the publisher would have the sensor polled more often.
            let Ok(reading) = vertex.peek() else { continue };
            if reading.age() > MAX_SILENCE {
                facts.left_out += u64::from(reading.sample.origin != Origin::Unknown);
                continue;
            }
            if let Some(job) = name(topic).and_then(job_of_fact)
                && !facts.jobs.contains(job)
            {
                if facts.jobs.len() >= MAX_JOBS_OF_NODE {
                    facts.left_out += 1;
                    continue;
                }
                facts.jobs.insert(job.to_owned());
            }
            if reading.sample.origin == Origin::Unknown {
                continue;
            }
            match &reading.sample.value {
                Value::Structured(list) => {
                    let cores = core_list::topics(topic, list);
                    let cores = cores.filter(|(core, _)| self.is_wanted(core, topic));
                    cores.for_each(|(core, number)| facts.note(&core, number));
                }
                value => {
                    let number = value.as_f64().filter(|number| number.is_finite());
                    number.into_iter().for_each(|number| facts.note(topic, number));
                }
            }
        }
        facts
    }

    /// Returns the vertices that may have wanted values, each topic once.
    fn wanted(&self) -> Vec<(Vertex, Topic)> {
        let mut topics = BTreeSet::new();
        let mut wanted = Vec::new();
        for vertex in self.host.segments().iter().flat_map(Segment::vertices) {
            let Some(topic) = full(vertex.topic(), &self.node) else { continue };
            let is_list = || topic.segments().any(|part| core_list::first_core(part).is_some());
            // If several segments have the topic, the oldest segment wins.
            if (self.is_wanted(&topic, &topic) || is_list()) && topics.insert(topic.clone()) {
                wanted.push((vertex, topic));
            }
        }
        wanted
    }

    /// Returns true for a fact that is recorded, which may be a member of the list `of`.
    fn is_wanted(&self, topic: &Topic, of: &Topic) -> bool {
        name(topic).is_some_and(|name| job_of_fact(name).is_some())
            || self.topics.iter().any(|wanted| wanted.matches(topic) || wanted.matches(of))
    }
}

impl NodeFacts {
    fn note(&mut self, topic: &Topic, number: f64) {
        if let Some(name) = name(topic) {
            self.values.insert(name.to_owned(), number);
        }
    }
}

/// Returns the part of a topic behind the node.
fn name(topic: &Topic) -> Option<&str> {
    topic.as_str().split_once('/').map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use skopos_model::{Structured, ValueType};
    use skopos_shm::{Publisher, VertexSpec};

    use super::*;

    #[test]
    fn wanted_facts_and_jobs_are_read_from_shared_memory() {
        let dir = tempfile::tempdir().expect("a folder");
        let publisher = Publisher::builder("agent").dir(dir.path()).node("n01");
        let publisher = publisher.create().expect("a segment");
        let register = |topic: &str, value_type| {
            let spec = VertexSpec::new(topic.parse().expect("a topic"), value_type);
            publisher.register(spec).expect("registered")
        };
        let number = |topic: &str, value: f64| {
            let writer = register(topic, ValueType::F64);
            writer.publish(value).expect("published");
            writer
        };
        let group = "n01/cgroup/system.slice:slurmstepd.scope:job_7/memory_bytes";
        let _kept = [
            number("n01/load/load_1m", 0.5),
            number("n01/load/load_5m", 0.6),
            number("n01/load/load_15m", f64::NAN),
            number("app/depth", 3.0),
        ];
        let silent = register("n01/mem/free_bytes", ValueType::F64);
        let group = number(group, 100.0);
        let list = register("n01/cpu/per_cpu/busy_ratio", ValueType::Structured);
        let cores = Structured::from_json("[0.25,null,1]").expect("JSON");
        let sample = skopos_model::Sample::measured(skopos_shm::now(), cores);
        list.publish_sample(&sample).expect("published");

        let topics = ["*/load/load_1*", "*/app/*", "*/mem/*", "*/cpu/2/*"];
        let topics = topics.map(|topic| topic.parse().expect("a pattern")).to_vec();
        let reader = FactReader::new("n01", dir.path().to_path_buf(), topics);
        let mut reader = reader.expect("readable");
        let facts = reader.read();
        let expected = [
            ("app/depth", 3.0),
            ("cgroup/system.slice:slurmstepd.scope:job_7/memory_bytes", 100.0),
            ("cpu/2/busy_ratio", 1.0),
            ("load/load_1m", 0.5),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(facts.values, NodeValues::from(expected));
        assert_eq!(facts.jobs, BTreeSet::from(["7".to_owned()]));
        assert_eq!(facts.left_out, 0);
        let longer = skopos_shm::now().saturating_sub(MAX_SILENCE + Duration::from_secs(1));
        silent.publish_at(longer, 1.0).expect("published");
        let facts = reader.read();
        assert_eq!((facts.values.len(), facts.left_out), (4, 1), "a source is silent");
        publisher.unregister(&group);
        assert_eq!(reader.read().jobs, BTreeSet::new());
    }
}
