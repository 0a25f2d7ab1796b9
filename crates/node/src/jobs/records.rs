//! Makes records of the facts of a node, for each of its jobs.

use std::collections::{BTreeMap, HashMap, HashSet};

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobLoss, JobRecord, Kind, Metrics, NodeMeasurement, NodeValues};
use skopos_store::jobs::StoredRecord;
use skopos_store::jobs::spool::SpooledBatch;

/// Bytes from which on a batch is sent: the measurements of some hundred jobs. The list of names of a record may be longer.
const BATCH_BYTES: usize = 256 << 10;

/// The most lists of names that are remembered for a job. With more, they are sent again.
const MAX_LISTS: usize = 64;

/// The most jobs whose losses wait to be told: some times as many as run on a node. Losses of others are counted by the node
/// alone.
const MAX_LOSSES: usize = 4096;

const WHY: &str = "neither a hub nor the spool of the node took them";

/// Makes records with ascending sequences.
///
/// The producer is new whenever the agent starts, so no sequence is used twice, whatever the clock does meanwhile.
pub(super) struct Recorder {
    node: String,
    producer: String,
    epoch: i64,
    next: i64,
    /// The schemas whose names a hub has, or the spool, for each job.
    named: HashMap<JobId, HashSet<String>>,
    /// Measurements that were lost, and of which no record tells yet.
    lost: BTreeMap<JobId, JobLoss>,
}

/// The records of one round.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Batches in the order of their sequences.
    pub(super) batches: Vec<SpooledBatch>,
    /// Number of facts for which measurements had no room.
    pub(super) left_out: u64,
    /// Bytes of the last batch.
    bytes: usize,
}

impl Recorder {
    /// Makes the recorder of an agent that starts now.
    pub(super) fn new(node: &str, now: Timestamp) -> Self {
        let epoch = now.as_nanos();
        Self {
            node: node.to_owned(),
            producer: format!("agent/{epoch}"),
            epoch,
            next: 0,
            named: HashMap::new(),
            lost: BTreeMap::new(),
        }
    }

    /// Makes a measurement for each job of the facts at one time, and tells what was lost.
    pub(super) fn record(
        &mut self,
        jobs: &[JobId],
        values: &NodeValues,
        time: Timestamp,
    ) -> Recorded {
        let mut recorded = Recorded::default();
        for (id, loss) in std::mem::take(&mut self.lost) {
            let content = serde_json::to_vec(&loss).unwrap_or_default();
            self.push(&mut recorded, (&id, Kind::Loss, time), &content);
        }
        self.named.retain(|id, _| jobs.contains(id));
        for id in jobs {
            let NodeMeasurement { schema, names, values, left_out } =
                NodeMeasurement::of(id, values);
            recorded.left_out += left_out;
            if names.is_empty() {
                continue;
            }
            let named = self.named.entry(id.clone()).or_default();
            if named.len() >= MAX_LISTS {
                named.clear();
            }
            if named.insert(schema.clone()) {
                let metrics = Metrics { schema: schema.clone(), names, units: Vec::new() };
                let content = serde_json::to_vec(&metrics).unwrap_or_default();
                self.push(&mut recorded, (id, Kind::Metrics, time), &content);
            }
            let content = JobRecord::sample_content(&schema, &values);
            self.push(&mut recorded, (id, Kind::Sample, time), &content);
        }
        recorded
    }

    /// Notes a batch that nothing has taken.
    pub(super) fn lose(&mut self, batch: &SpooledBatch) {
        for record in batch.records.iter().filter_map(|(_, record)| record.get()) {
            let Ok(id) = record.id() else { continue };
            let told = (record.kind == Kind::Loss).then(|| record.loss().ok()).flatten();
            let at = Some(record.time.as_nanos() as f64 / 1e9);
            let loss = match (record.kind, told) {
                (_, Some(told)) => told,
                (Kind::Sample, None) => {
                    let why = WHY.to_owned();
                    JobLoss { why, records: 1, from_seconds: at, to_seconds: at }
                }
                // The names are sent again with the next measurement.
                _ => {
                    self.named.remove(&id);
                    continue;
                }
            };
            if let Some(before) = self.lost.get_mut(&id) {
                before.records += loss.records;
                before.to_seconds = loss.to_seconds.or(before.to_seconds);
            } else if self.lost.len() < MAX_LOSSES {
                self.lost.insert(id, loss);
            }
        }
    }

    /// Notes a batch of which the hub has refused records: the names among them are sent again.
    pub(super) fn name_again(&mut self, batch: &SpooledBatch) {
        let records = batch.records.iter().filter_map(|(_, record)| record.get());
        for record in records.filter(|record| record.kind == Kind::Metrics) {
            if let Ok(id) = record.id() {
                self.named.remove(&id);
            }
        }
    }

    /// Notes that batches are gone of which it is not known what they had: all names are sent again.
    pub(super) fn name_all_again(&mut self) {
        self.named.clear();
    }

    fn push(
        &mut self,
        recorded: &mut Recorded,
        (id, kind, time): (&JobId, Kind, Timestamp),
        content: &[u8],
    ) {
        let (job, generation, node) = (id.job(), id.generation(), self.node.as_str());
        let record = StoredRecord::of(&JobRecord { kind, job, generation, node, time, content });
        let bytes = record.as_bytes().len();
        if recorded.batches.is_empty() || recorded.bytes + bytes > BATCH_BYTES {
            let (producer, epoch) = (self.producer.clone(), self.epoch);
            recorded.batches.push(SpooledBatch { producer, epoch, records: Vec::new() });
            recorded.bytes = 0;
        }
        recorded.bytes += bytes;
        if let Some(batch) = recorded.batches.last_mut() {
            batch.records.push((self.next, record));
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<JobId> {
        names.iter().map(|name| JobId::new(*name, 0).expect("an id")).collect()
    }

    fn kinds(batches: &[SpooledBatch]) -> Vec<(i64, Kind, String)> {
        let records = batches.iter().flat_map(|batch| &batch.records);
        let of = |(sequence, record): &(i64, StoredRecord)| {
            let record = record.get().expect("a record");
            assert_eq!(record.check(), Ok(()));
            assert_eq!(record.node, "n01");
            (*sequence, record.kind, record.job.to_owned())
        };
        records.map(of).collect()
    }

    #[test]
    fn names_come_once_before_the_measurements_and_sequences_ascend() {
        let at = Timestamp::from_nanos;
        let mut recorder = Recorder::new("n01", at(5));
        let mut values = NodeValues::from([("load/load_1m".to_owned(), 1.0)]);
        let round = |recorder: &mut Recorder, values: &NodeValues, jobs: &[&str]| {
            kinds(&recorder.record(&ids(jobs), values, at(9)).batches)
        };
        let expected = |records: &[(i64, Kind, &str)]| {
            let of = |(at, kind, job): &(i64, Kind, &str)| (*at, *kind, (*job).to_owned());
            records.iter().map(of).collect::<Vec<_>>()
        };
        let (metrics, sample) = (Kind::Metrics, Kind::Sample);
        let first = round(&mut recorder, &values, &["7"]);
        assert_eq!(first, expected(&[(0, metrics, "7"), (1, sample, "7")]));
        let second = round(&mut recorder, &values, &["7", "8"]);
        assert_eq!(second, expected(&[(2, sample, "7"), (3, metrics, "8"), (4, sample, "8")]));
        values.insert("load/load_5m".to_owned(), 2.0);
        let other_names = round(&mut recorder, &values, &["8"]);
        assert_eq!(other_names, expected(&[(5, metrics, "8"), (6, sample, "8")]));
        let again = round(&mut recorder, &values, &["7"]);
        assert_eq!(again, expected(&[(7, metrics, "7"), (8, sample, "7")]), "a new job");
        assert_eq!(round(&mut recorder, &NodeValues::new(), &["7"]), []);
    }

    #[test]
    fn lost_measurements_are_told_and_named_again() {
        let at = |seconds: i64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let mut recorder = Recorder::new("n01", at(5));
        let values = NodeValues::from([("load/load_1m".to_owned(), 1.0)]);
        for second in [10, 20] {
            let recorded = recorder.record(&ids(&["7"]), &values, at(second));
            recorded.batches.iter().for_each(|batch| recorder.lose(batch));
        }
        let recorded = recorder.record(&ids(&["7"]), &values, at(30));
        let first = recorded.batches[0].records[0].1.get().and_then(|record| record.loss().ok());
        let why = WHY.to_owned();
        let loss = JobLoss { why, records: 2, from_seconds: Some(10.0), to_seconds: Some(20.0) };
        assert_eq!(first, Some(loss));
        let kinds: Vec<Kind> = kinds(&recorded.batches).into_iter().map(|(_, k, _)| k).collect();
        assert_eq!(kinds, [Kind::Loss, Kind::Metrics, Kind::Sample]);
        let next = recorder.record(&ids(&["7"]), &values, at(40));
        assert_eq!(next.batches[0].records.len(), 1, "it is told once");
    }

    #[test]
    fn names_that_no_hub_has_are_sent_again() {
        let at = Timestamp::from_nanos;
        let mut recorder = Recorder::new("n01", at(5));
        let values = NodeValues::from([("load/load_1m".to_owned(), 1.0)]);
        let record = |recorder: &mut Recorder, jobs: &[&str]| {
            let batches = recorder.record(&ids(jobs), &values, at(9)).batches;
            let kinds = kinds(&batches).into_iter().map(|(_, kind, _)| kind).collect::<Vec<_>>();
            (batches, kinds)
        };
        let (metrics, sample) = (Kind::Metrics, Kind::Sample);
        let (refused, _) = record(&mut recorder, &["7"]);
        let (other, kinds) = record(&mut recorder, &["7", "8"]);
        assert_eq!(kinds, [sample, metrics, sample]);
        recorder.name_again(&refused[0]);
        assert_eq!(record(&mut recorder, &["7", "8"]).1, [metrics, sample, sample]);
        recorder.name_again(&other[0]);
        assert_eq!(record(&mut recorder, &["7", "8"]).1, [sample, metrics, sample]);
        recorder.name_all_again();
        assert_eq!(record(&mut recorder, &["7", "8"]).1, [metrics, sample, metrics, sample]);
    }

    #[test]
    fn many_jobs_are_in_several_batches() {
        let names: Vec<String> = (0..600).map(|at| at.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let values = (0..100).map(|at| (format!("app/{at}/value"), 1.0)).collect();
        let mut recorder = Recorder::new("n01", Timestamp::from_nanos(5));
        let recorded = recorder.record(&ids(&names), &values, Timestamp::from_nanos(9));
        assert!(recorded.batches.len() > 3, "{}", recorded.batches.len());
        let sequences = kinds(&recorded.batches).into_iter().map(|(sequence, ..)| sequence);
        assert!(sequences.eq(0..1200));
    }
}
