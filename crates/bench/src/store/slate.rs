//! The jobs of SLAte's evaluation (§V of the paper): a start of 2.4 kB, measurements of 45 values, which have 0.4 kB, and an
//! end.
//!
//! The paper's loads give two profiles: 80 measurements a job in its evaluation of the short-time storage, and 281 in that
//! of the long-time storage.

use std::sync::Arc;

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_query::arrow::array::types::Float64Type;
use skopos_query::arrow::array::{
    ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, TimestampNanosecondArray,
};
use skopos_query::arrow::error::ArrowError;
use skopos_store::jobs::{JobPart, Mark, StoredRecord};

/// Measurements of a job in the two profiles.
pub(super) const PROFILES: [usize; 2] = [80, 281];

/// Values of a measurement.
pub(super) const VALUES: usize = 45;

/// Counters among them. The others are gauges.
const COUNTERS: usize = 25;

/// Bytes of the script of a job, by which its start has 2.4 kB.
const SCRIPT_BYTES: usize = 2250;

/// Time between two measurements of a job, in nanoseconds.
const STEP: i64 = 1_000_000_000;

/// Users and projects of the jobs.
pub(super) const USERS: u64 = 200;

/// Time of the first record of the first job, in nanoseconds of UNIX time: 2026-01-01.
pub(super) const BEGIN: i64 = 1_767_225_600_000_000_000;

/// Numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

/// A job that is being made, record by record.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) number: u64,
    name: String,
    samples: usize,
    made: usize,
    counters: [f64; COUNTERS],
    random: Random,
    begin: i64,
}

/// The content of a record.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Document(Kind, String),
    Sample(Vec<f64>),
}

impl Job {
    /// A job with `samples` measurements. `begin` is its time after the first job, in nanoseconds.
    pub(super) fn new(number: u64, samples: usize, begin: i64) -> Self {
        let name = (4_000_000 + number).to_string();
        let (random, begin) = (Random::new(number), BEGIN + begin);
        Self { number, name, samples, made: 0, counters: [0.0; COUNTERS], random, begin }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn id(&self) -> JobId {
        JobId::new(self.name.clone(), 0).unwrap_or_else(|_| unreachable!("digits are an id"))
    }

    /// Number of its records: those of its start, of the names of its metrics, of its measurements and of its end.
    pub(super) fn records(&self) -> usize {
        self.samples + 3
    }

    /// The next record, with its time; `None` after the last one.
    pub(super) fn next(&mut self) -> Option<(i64, Content)> {
        let (made, samples) = (self.made, self.samples);
        self.made += 1;
        let at = self.begin + made as i64 * STEP;
        let content = match made {
            0 => Content::Document(Kind::Start, self.start()),
            1 => Content::Document(Kind::Metrics, names()),
            _ if made < samples + 2 => Content::Sample(self.sample(made as u64)),
            _ if made == samples + 2 => {
                Content::Document(Kind::End, r#"{"state":"completed","status":0}"#.to_owned())
            }
            _ => return None,
        };
        Some((at, content))
    }

    fn start(&mut self) -> String {
        let lines = [
            "#SBATCH --nodes=",
            "module load ",
            "srun ./simulate --input ",
            "export OMP_NUM_THREADS=",
        ];
        let mut script = String::new();
        while script.len() < SCRIPT_BYTES {
            script.push_str(lines[self.random.below(4) as usize]);
            script.push_str(&self.random.below(10_000).to_string());
            script.push('\n');
        }
        let user = self.random.below(USERS);
        serde_json::json!({
            "user": user_name(user), "project": format!("p{:02}", user % 40),
            "application": "simulate", "nodes": [format!("n{:04}", self.number % 1000)],
            "details": { "script": script },
        })
        .to_string()
    }

    /// Every second counter is of an idle device; gauges have three digits.
    fn sample(&mut self, made: u64) -> Vec<f64> {
        for counter in self.counters.iter_mut().step_by(2) {
            *counter += self.random.below(100_000) as f64;
        }
        let gauge = |random: &mut Random| (500 + made / 30 + random.below(16)) as f64 / 1000.0;
        let gauges = (COUNTERS..VALUES).map(|_| gauge(&mut self.random)).collect::<Vec<f64>>();
        self.counters.iter().copied().chain(gauges).collect()
    }

    /// All records with their times.
    pub(super) fn rows(&mut self) -> Vec<(i64, Content)> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// All records of the job as the part that is sealed.
    pub(super) fn part(mut self) -> JobPart {
        let (id, name) = (self.id(), self.name.clone());
        let mut records = Vec::with_capacity(self.records());
        while let Some((time, content)) = self.next() {
            let (kind, bytes) = match content {
                Content::Document(kind, text) => (kind, text.into_bytes()),
                Content::Sample(values) => {
                    (Kind::Sample, JobRecord::sample_content(SCHEMA, &values))
                }
            };
            let time = Timestamp::from_nanos(time);
            records.push(StoredRecord::of(&JobRecord {
                kind,
                job: &name,
                generation: 0,
                node: "n01",
                time,
                content: &bytes,
            }));
        }
        let sequence = records.len() as i64 - 1;
        let mark = Mark { producer: "owner/bench".to_owned(), epoch: 1, sequence };
        JobPart { id, number: 0, records, marks: vec![mark] }
    }
}

impl Content {
    /// The record as JSON.
    pub(super) fn json(&self, time: i64) -> serde_json::Value {
        match self {
            Self::Document(kind, text) => serde_json::json!({
                "time": time, "kind": kind.name(),
                "document": serde_json::from_str::<serde_json::Value>(text).unwrap_or_default(),
            }),
            Self::Sample(values) => serde_json::json!({
                "time": time, "kind": "sample", "schema": SCHEMA, "values": values,
            }),
        }
    }
}

/// Name of the metrics' schema.
pub(super) const SCHEMA: &str = "node";

pub(super) fn user_name(number: u64) -> String {
    format!("user{number:03}")
}

fn names() -> String {
    let names: Vec<String> = (0..VALUES).map(|at| format!("metric/{at}")).collect();
    serde_json::json!({ "schema": SCHEMA, "names": names }).to_string()
}

/// A row of a batch: the record with its sequence and its job.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) sequence: i64,
    pub(super) job: String,
    pub(super) time: i64,
    pub(super) content: Content,
}

/// Makes the batch that a producer sends.
///
/// # Errors
/// Arrow refuses the columns.
pub(super) fn batch(rows: &[Row]) -> Result<RecordBatch, ArrowError> {
    let kind = |row: &Row| match &row.content {
        Content::Document(kind, _) => kind.name(),
        Content::Sample(_) => Kind::Sample.name(),
    };
    let document = |row: &Row| match &row.content {
        Content::Document(_, text) => Some(text.clone()),
        Content::Sample(_) => None,
    };
    let values = |row: &Row| match &row.content {
        Content::Document(..) => None,
        Content::Sample(values) => Some(values.iter().copied().map(Some).collect::<Vec<_>>()),
    };
    let schema = |row: &Row| matches!(row.content, Content::Sample(_)).then_some(SCHEMA);
    let columns: [(&str, ArrayRef); 8] = [
        ("sequence", Arc::new(rows.iter().map(|row| row.sequence).collect::<Int64Array>())),
        ("job", Arc::new(rows.iter().map(|row| Some(&row.job)).collect::<StringArray>())),
        ("node", Arc::new(rows.iter().map(|_| Some("n01")).collect::<StringArray>())),
        (
            "time",
            Arc::new(TimestampNanosecondArray::from_iter_values(rows.iter().map(|row| row.time))),
        ),
        ("kind", Arc::new(rows.iter().map(|row| Some(kind(row))).collect::<StringArray>())),
        ("schema", Arc::new(rows.iter().map(schema).collect::<StringArray>())),
        (
            "values",
            Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(rows.iter().map(values))),
        ),
        ("document", Arc::new(rows.iter().map(document).collect::<StringArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_sizes_of_the_paper() {
        let part = Job::new(1, 80, 0).part();
        assert_eq!(part.records.len(), 83);
        let length = |at: usize| part.records[at].get().expect("a record").content.len();
        assert!((2300..2600).contains(&length(0)), "{}", length(0));
        assert!((350..450).contains(&length(2)), "{}", length(2));
        assert_eq!(part.records[82].get().expect("a record").kind, Kind::End);
    }
}
