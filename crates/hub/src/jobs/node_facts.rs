//! Facts of the nodes of running jobs, which the hub records beside what other producers send: a measurement for each node
//! and job, now and then, for as long as the job runs.
//!
//! A node whose agent delivers its facts itself is left out.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_agent::config::JobFacts;
use skopos_model::job::{
    JobId, JobRecord, JobState, Kind, MAX_METRICS, Metrics, NodeMeasurement, NodeValues,
    job_of_fact,
};
use skopos_model::{Timestamp, Topic, TopicPattern};
use skopos_query::{Row, Source, Wanted};
use skopos_store::jobs::{Filter, JobRow, PageRequest, Visibility};
use skopos_term::tell;

use super::delivering::Delivering;
use super::place::JobsPlace;
use super::shared::{described, now};
use super::store::Jobs;
use super::stored::StoreError;
use crate::prometheus::numbers;

/// The most running jobs, those that began last first. A page of the catalogue has no more.
const MAX_JOBS: usize = 1_000;

/// The most measurements of one round: a site of ten thousand nodes with a job on each.
const MAX_RECORDS: usize = 16_384;

/// The most nodes that are looked up by the beginnings of their topics. With more, all topics are looked at.
const MAX_STARTS: usize = 64;

/// The first step by which an epoch goes ahead of a clock that was set back: a minute, in nanoseconds.
const EPOCH_STEP: i64 = 60_000_000_000;

/// Age of the last poll of a source beyond which its values are left out: a sensor that has ended must not look alive.
/// It is three times the longest interval that a source needs, that of `smart`. Intervals that are configured may be longer.
const MAX_SILENCE: Duration = Duration::from_secs(900);

/// Time after its requested end, or without one after its start, from which on a job without an end is taken for one whose
/// end was lost.
const GRACE: Duration = Duration::from_secs(3600);
const MAX_RUN: Duration = Duration::from_secs(32 * 86_400);

/// The name of the producer.
const PRODUCER: &str = "hub/nodes";

/// The thread that records facts, until this is dropped.
pub(crate) struct NodeFacts {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NodeFacts {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        config: JobFacts,
        (place, delivering): (Arc<JobsPlace>, Delivering),
        source: Arc<dyn Source>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let every = config.every;
        let run = move || {
            let mut recorder = Recorder::new(config.topics, (source, delivering));
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                // Jobs that nobody has stored have no nodes.
                let recorded = match place.get() {
                    Ok(Some(jobs)) => recorder.record(&jobs),
                    Ok(None) => Ok(()),
                    Err(e) => Err(e.to_string()),
                };
                recorder.tell(recorded.err());
            }
        };
        let thread = std::thread::Builder::new().name("job-nodes".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for NodeFacts {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Recorder {
    topics: Vec<TopicPattern>,
    source: Arc<dyn Source>,
    delivering: Delivering,
    /// The nodes of running jobs, and the schemas that their records have so far.
    known: HashMap<JobId, Known>,
    epoch: i64,
    /// Nanoseconds by which the epoch is ahead of the clock.
    ahead: i64,
    sequence: i64,
    /// The last warning, which is not printed again as long as it is the same.
    trouble: Option<String>,
}

#[derive(Default)]
struct Known {
    nodes: BTreeSet<String>,
    schemas: HashSet<String>,
}

impl Recorder {
    fn new(topics: Vec<TopicPattern>, (source, delivering): (Arc<dyn Source>, Delivering)) -> Self {
        let (epoch, known) = (now().as_nanos(), HashMap::new());
        let (ahead, sequence, trouble) = (0, 0, None);
        Self { topics, source, delivering, known, epoch, ahead, sequence, trouble }
    }

    /// Prints a warning unless it is the last one.
    fn tell(&mut self, trouble: Option<String>) {
        if trouble != self.trouble {
            trouble.iter().for_each(|why| tell(format!("warning: facts of jobs' nodes: {why}")));
            self.trouble = trouble;
        }
    }

    /// Records the facts of all running jobs.
    fn record(&mut self, jobs: &Jobs) -> Result<(), String> {
        let more = self.look(jobs)?;
        if self.known.is_empty() {
            return Ok(());
        }
        let values = self.read();
        let time = now();
        let mut records = Vec::new();
        let (mut passed_over, mut cut) = (0, 0);
        for (id, known) in &mut self.known {
            for (node, values) in known.nodes.iter().filter_map(|node| values.get_key_value(node)) {
                if records.len() >= MAX_RECORDS {
                    passed_over += 1;
                    continue;
                }
                let NodeMeasurement { schema, names, values, left_out } =
                    NodeMeasurement::of(id, values);
                cut += left_out;
                if names.is_empty() {
                    continue;
                }
                if known.schemas.insert(schema.clone()) {
                    let metrics = Metrics { schema: schema.clone(), names, units: Vec::new() };
                    let content = serde_json::to_vec(&metrics).unwrap_or_default();
                    records.push((id, "", Kind::Metrics, content));
                }
                let content = JobRecord::sample_content(&schema, &values);
                records.push((id, node.as_str(), Kind::Sample, content));
            }
        }
        let (epoch, first) = (self.epoch, self.sequence);
        let stored = jobs.store(&Caller::Owner, (PRODUCER, epoch), |visit| {
            for ((id, node, kind, content), sequence) in records.iter().zip(first..) {
                let (job, generation, kind) = (id.job(), id.generation(), *kind);
                visit(sequence, JobRecord { kind, job, generation, node, time, content })?;
            }
            Ok(())
        });
        self.sequence += records.len() as i64;
        if let Err(e) = &stored {
            // The schemas may not have been stored. A new epoch begins with them.
            self.known.clear();
            if matches!(e, StoreError::Producer(_)) {
                // The clock was set back. Each try doubles the distance from the epoch that is known.
                self.ahead = self.ahead.saturating_mul(2).max(EPOCH_STEP);
                self.epoch = now().as_nanos().saturating_add(self.ahead);
            }
        }
        let stored = stored.map_err(|e| described(&e))?;
        if let Some((_, why)) = stored.refusals.first() {
            return Err(format!("{} were refused: {why}", stored.refused));
        }
        match (passed_over + cut, more) {
            (0, false) => Ok(()),
            _ if cut > 0 => {
                Err(format!("{cut} facts were left out: a node has at most {MAX_METRICS}"))
            }
            (0, true) => Err(format!("only the {MAX_JOBS} jobs that began last are looked at")),
            (nodes, _) => Err(format!(
                "{nodes} nodes of jobs were left out: a round has at most {MAX_RECORDS} records"
            )),
        }
    }

    /// Looks up the jobs that run now. Returns true if there are more than it looks at.
    fn look(&mut self, jobs: &Jobs) -> Result<bool, String> {
        let mut filter = Filter::new(Visibility::Everything);
        filter.states = vec![JobState::Running];
        filter.site = Some(jobs.site().to_owned());
        let request = PageRequest { most: MAX_JOBS, ..PageRequest::default() };
        let page = jobs.search(&Caller::Owner, filter, &request).map_err(|e| described(&e))?;
        let now = now();
        let runs =
            |row: &&JobRow| may_run(row.started, row.requested.get("wall_seconds").copied(), now);
        let running: HashSet<&JobId> = page.items.iter().filter(runs).map(|row| &row.id).collect();
        self.known.retain(|id, _| running.contains(id));
        for row in page.items.iter().filter(runs).filter(|row| row.nodes > 0) {
            if self.known.contains_key(&row.id) {
                continue;
            }
            let entry = jobs.entry(&Caller::Owner, &row.id).map_err(|e| described(&e))?;
            let start = entry.and_then(|entry| entry.start);
            let nodes = start.map(|start| start.value.nodes).unwrap_or_default();
            self.known.insert(row.id.clone(), Known { nodes, ..Known::default() });
        }
        Ok(page.next.is_some())
    }

    /// Reads the latest values of the nodes of jobs.
    fn read(&self) -> HashMap<String, NodeValues> {
        let wanted = self.known.values().flat_map(|known| &known.nodes).map(String::as_str);
        let wanted: HashSet<&str> =
            wanted.filter(|node| !self.delivering.has(node, Instant::now())).collect();
        let gone = self.source.nodes().into_iter().filter(|node| !node.alive);
        let gone: HashSet<String> = gone.map(|node| node.name).collect();
        let starts = match wanted.len() {
            0..=MAX_STARTS => {
                Wanted::Starting(wanted.iter().map(|node| format!("{node}/")).collect())
            }
            _ => Wanted::All,
        };
        let now = self.source.now();
        let mut values: HashMap<String, NodeValues> = HashMap::new();
        self.source.latest(&starts, &mut |row: &Row<'_>| {
            let node = row.of.topic.node();
            if !wanted.contains(node) || gone.contains(node) {
                return;
            }
            if now.since(row.checked_at) > MAX_SILENCE {
                return;
            }
            numbers(row, &mut |topic, value| {
                if let Some(name) = self.name(topic, row.of.topic) {
                    values.entry(node.to_owned()).or_default().insert(name.to_owned(), value);
                }
            });
        });
        values
    }

    /// Returns the name of a metric that is recorded: the topic without the node.
    fn name<'t>(&self, topic: &'t Topic, of: &Topic) -> Option<&'t str> {
        let (_, name) = topic.as_str().split_once('/')?;
        let is_wanted = |pattern: &TopicPattern| pattern.matches(topic) || pattern.matches(of);
        (job_of_fact(name).is_some() || self.topics.iter().any(is_wanted)).then_some(name)
    }
}

/// Returns true unless the end of a running job seems to be lost. The job began at `started` and requested `wall` seconds.
pub(super) fn may_run(started: Option<Timestamp>, wall: Option<f64>, now: Timestamp) -> bool {
    let Some(started) = started else { return true };
    let wall = wall.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    now.since(started) <= wall.map_or(MAX_RUN, |wall| wall.saturating_add(GRACE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_whose_end_was_lost_is_not_measured_for_ever() {
        let at = |seconds: u64| Timestamp::from_nanos(seconds as i64 * 1_000_000_000);
        let (month, hour) = (MAX_RUN.as_secs(), GRACE.as_secs());
        assert!(may_run(None, None, at(month * 9)));
        assert!(may_run(Some(at(10)), None, at(10 + month)));
        assert!(!may_run(Some(at(10)), None, at(11 + month)));
        assert!(may_run(Some(at(10)), Some(60.0), at(70 + hour)));
        assert!(!may_run(Some(at(10)), Some(60.0), at(71 + hour)));
        assert!(may_run(Some(at(10)), Some(f64::NAN), at(11)));
    }
}
