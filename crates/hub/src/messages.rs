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
//! `{"store_jobs":[…],"producer":"run","epoch":1}` stores records of jobs; the answer comes when they are durable.
//! After a request with `"standing":true` the hub sends an answer after each change, until the client closes the
//! connection: a stream of new rows, then `gone_bytes` of a second stream with the rows that are gone.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

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

/// Stores records of jobs.
#[derive(Default, Deserialize, Serialize)]
pub struct StoreRequest {
    /// The records; their sequences are the places in the list.
    pub store_jobs: Vec<JobDocument>,
    /// Name of the producer.
    pub producer: String,
    /// The run of the producer.
    pub epoch: i64,
}

/// A record of a job whose content is a document. That of a measurement is `{"schema":"task","values":[1.0,null]}`; a
/// value that is not known is `null`.
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
    /// Its document.
    pub document: serde_json::Value,
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
