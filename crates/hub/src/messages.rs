//! The messages of a hub's UNIX socket. A request is one line of JSON. An answer is one line of JSON and an Arrow
//! stream. A connection carries any number of requests, one after another.
//!
//! ```text
//! → {"sql":"SELECT …","rows":1000000,"deadline_ms":30000}\n
//! ← {"way":"point","bytes":1234}\n  and 1,234 bytes of an Arrow IPC stream
//! ← {"way":"planned","missing":["n07"],"bytes":1234}\n  and the stream; n07 did not answer
//! ← {"error":"there is no table `lates`","hint":"did you mean `latest`?","bytes":0}\n
//! ```
//! `{"get":["mem/*"],"max_age_ms":1000}` asks for latest values without SQL; the answer is a JSON document.
//! `{"flight_address":true}` asks for the address of the Flight listener; the answer is a [`FlightUrl`].
//! `{"store_jobs":[…],"producer":"run","epoch":1}` stores records of jobs; the answer comes when they are durable. An answer
//! with `refused` counts records that are refused for good; the others are stored. Without it the same request may be sent
//! again: `new` counts the records that the hub did not have.
//! After a request with `"standing":true` the hub sends an answer after each change, until the client closes the
//! connection: a stream of new rows, then `gone_bytes` of a second stream with the rows that are gone.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use skopos_model::Timestamp;
use skopos_model::job::{JobRecord, Kind};
use skopos_store::jobs::StoredRecord;
use skopos_store::jobs::spool::SpooledBatch;

/// Returns the path of the UNIX socket of the hub in the runtime directory `dir`.
pub fn socket_path(dir: &Path) -> PathBuf {
    dir.join("hub.sock")
}

/// Asks a statement.
#[derive(Default, Deserialize, Serialize)]
pub struct Request {
    /// The statement.
    pub sql: String,
    /// Maximum number of rows of the answer.
    pub rows: usize,
    /// Maximum time for the answer, in milliseconds.
    pub deadline_ms: u64,
    /// Asks for an answer after each change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standing: bool,
    /// Minimum time between two answers to a standing question, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
}

/// Asks for latest values, as `GET /api/v1/get` does.
#[derive(Deserialize, Serialize)]
pub struct GetRequest {
    /// Topics and patterns.
    pub get: Vec<String>,
    /// Maximum age of a value, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age_ms: Option<u64>,
}

/// Asks for the address of the Flight listener.
#[derive(Deserialize, Serialize)]
pub struct FlightRequest {
    /// True.
    pub flight_address: bool,
}

/// The address of the Flight listener of a hub.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FlightUrl {
    /// The URL.
    pub url: String,
    /// The file with the certificate of the authority, if the listener has TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<PathBuf>,
}

/// Stores records of jobs.
#[derive(Default, Deserialize, Serialize)]
pub struct StoreRequest {
    /// The records.
    pub store_jobs: Vec<JobDocument>,
    /// Their sequences; if there are none, the places in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<i64>,
    /// Name of the producer.
    pub producer: String,
    /// The run of the producer.
    pub epoch: i64,
}

impl StoreRequest {
    /// Returns the request for some records of a batch.
    pub fn of(batch: &SpooledBatch, records: &[(i64, StoredRecord)]) -> Self {
        let read = records.iter().filter_map(|(sequence, record)| Some((*sequence, record.get()?)));
        let (sequences, store_jobs) =
            read.map(|(sequence, record)| (sequence, JobDocument::of(&record))).unzip();
        Self { store_jobs, sequences, producer: batch.producer.clone(), epoch: batch.epoch }
    }

    /// Returns the valid records, and the reasons why others are not.
    pub fn batch(&self) -> (SpooledBatch, Vec<String>) {
        let mut refusals = Vec::new();
        let (producer, epoch) = (self.producer.clone(), self.epoch);
        let mut batch = SpooledBatch { producer, epoch, records: Vec::new() };
        if !self.sequences.is_empty() && self.sequences.len() != self.store_jobs.len() {
            let (sequences, records) = (self.sequences.len(), self.store_jobs.len());
            return (batch, vec![format!("there are {sequences} sequences for {records} records")]);
        }
        for (place, document) in (0..).zip(&self.store_jobs) {
            let sequence = usize::try_from(place).ok().and_then(|at| self.sequences.get(at));
            match document.record() {
                Ok(record) => batch.records.push((sequence.copied().unwrap_or(place), record)),
                Err(why) => refusals.push(why),
            }
        }
        (batch, refusals)
    }
}

/// A record of a job.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct JobDocument {
    /// Id that the batch system gave the job.
    pub job: String,
    /// Number of the job's run.
    #[serde(default)]
    pub generation: u32,
    /// Node that the record is about; empty for the whole job.
    #[serde(default)]
    pub node: String,
    /// Time of the record, in nanoseconds of UNIX time.
    pub time_ns: i64,
    /// Kind of the record.
    pub kind: String,
    /// Its document; that of a measurement is a [`SampleDocument`].
    pub document: serde_json::Value,
}

/// The document of a measurement. A value that is not known, and one that is infinite, is `null`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct SampleDocument {
    /// Name of the metrics.
    pub schema: String,
    /// The values.
    pub values: Vec<Option<f64>>,
}

impl JobDocument {
    fn of(record: &JobRecord<'_>) -> Self {
        let document = match record.sample() {
            Some((schema, values)) => {
                let values = values.map(|value| Some(value).filter(|v| v.is_finite())).collect();
                serde_json::to_value(SampleDocument { schema: schema.to_owned(), values })
            }
            None => serde_json::from_slice(record.content),
        };
        Self {
            job: record.job.to_owned(),
            generation: record.generation,
            node: record.node.to_owned(),
            time_ns: record.time.as_nanos(),
            kind: record.kind.name().to_owned(),
            // A content that is not a document is refused as one.
            document: document.unwrap_or_default(),
        }
    }

    fn record(&self) -> Result<StoredRecord, String> {
        let kind = Kind::of_name(&self.kind);
        let kind = kind.ok_or_else(|| format!("the kind {:?} is not known", self.kind))?;
        let invalid = |e: serde_json::Error| format!("the document is not valid: {e}");
        let content = match kind {
            Kind::Sample => {
                let sample = SampleDocument::deserialize(&self.document).map_err(invalid)?;
                let values = sample.values.into_iter().map(|value| value.unwrap_or(f64::NAN));
                let values: Vec<f64> = values.collect();
                JobRecord::sample_content(&sample.schema, &values)
            }
            _ => serde_json::to_vec(&self.document).map_err(invalid)?,
        };
        let record = JobRecord {
            kind,
            job: &self.job,
            generation: self.generation,
            node: &self.node,
            time: Timestamp::from_nanos(self.time_ns),
            content: &content,
        };
        record.check().map_err(|e| e.to_string())?;
        Ok(StoredRecord::of(&record))
    }
}

/// The line before an answer.
#[derive(Default, Deserialize, Serialize)]
pub struct Head {
    /// `point` for a point read, `planned` for a statement that a planner answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub way: String,
    /// The reason of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Advice to the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Number of records that are refused for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    /// Number of stored records that the hub did not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<u64>,
    /// Nodes whose history is missing in the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Length of the body.
    pub bytes: usize,
    /// Length of the second body of a standing question: the rows that are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_bytes: Option<usize>,
    /// Number of rows of a standing question's whole answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<usize>,
}

impl Head {
    /// Returns the head of a refusal.
    pub fn refusing(error: String, hint: Option<String>) -> Self {
        Self { error: Some(error), hint, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_survives_its_request() {
        let sample = JobRecord::sample_content("node", &[0.1, 1e300, -0.0]);
        let record = |kind, content: &[u8]| {
            let time = Timestamp::from_nanos(7);
            StoredRecord::of(&JobRecord {
                kind,
                job: "a/7",
                generation: 2,
                node: "n01",
                time,
                content,
            })
        };
        let records = vec![
            (4, record(Kind::Start, br#"{"user":"ann"}"#)),
            (6, record(Kind::Sample, &sample)),
            (9, record(Kind::Loss, br#"{"records":3,"why":"full"}"#)),
        ];
        let batch = SpooledBatch { producer: "run".to_owned(), epoch: 3, records };
        let text = serde_json::to_string(&StoreRequest::of(&batch, &batch.records));
        let mut request: StoreRequest =
            serde_json::from_str(&text.expect("a request")).expect("a request");
        let (read, refusals) = request.batch();
        let content = |batch: &SpooledBatch| {
            let of = |(sequence, record): &(i64, StoredRecord)| {
                let record = record.get().expect("a record");
                let values = record.sample().map(|(_, values)| values.collect::<Vec<_>>());
                // The keys of a document have no order.
                let loss = record.loss().ok();
                (*sequence, record.kind, record.job.to_owned(), record.time, values, loss)
            };
            batch.records.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!((content(&read), refusals), (content(&batch), Vec::new()));
        assert_eq!((read.producer, read.epoch), (batch.producer, batch.epoch));
        // One record that is not valid does not cost the others.
        request.store_jobs[0].kind = "begin".to_owned();
        request.store_jobs[1].node = "n".repeat(300);
        let (read, refusals) = request.batch();
        assert_eq!(read.records.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [9]);
        assert_eq!(
            refusals,
            [
                "the kind \"begin\" is not known",
                "the name of the node is too long or has a control character",
            ]
        );
        request.sequences.pop();
        assert_eq!(request.batch().1, ["there are 2 sequences for 3 records"]);
    }
}
