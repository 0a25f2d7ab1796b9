//! The messages of a hub's UNIX socket: one line of JSON asks; one line and an Arrow stream answer; then
//! the next.
//!
//! ```text
//! → {"sql":"SELECT …","rows":1000000,"deadline_ms":30000}\n
//! ← {"way":"point","bytes":1234}\n  and 1,234 bytes of an Arrow IPC stream
//! ← {"way":"planned","missing":["n07"],"bytes":1234}\n  and the stream; n07 did not answer
//! ← {"error":"there is no table `lates`","hint":"did you mean `latest`?","bytes":0}\n
//! ```
//! `{"get":["mem/*"],"max_age_ms":1000}` asks for latest values without SQL, which come as a JSON document.
//! With `"standing":true` there is an answer whenever the answer has changed, until whoever asked goes
//! away: rows that are new, and behind them `gone_bytes` of another stream, of those that are gone.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where the hub of a runtime directory listens.
pub fn socket_path(dir: &Path) -> PathBuf {
    dir.join("hub.sock")
}

#[derive(Default, Deserialize, Serialize)]
pub struct Request {
    pub sql: String,
    pub rows: usize,
    pub deadline_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standing: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
}

/// Asks for latest values, as `GET /api/v1/get` does.
#[derive(Deserialize, Serialize)]
pub struct GetRequest {
    pub get: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age_ms: Option<u64>,
}

/// The line before an answer.
#[derive(Default, Deserialize, Serialize)]
pub struct Head {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub way: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Nodes without whose history the answer is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    pub bytes: usize,
    /// Of a question that stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_bytes: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<usize>,
}

impl Head {
    /// Refuses a request.
    pub fn refusing(error: String, hint: Option<String>) -> Self {
        Self { error: Some(error), hint, ..Self::default() }
    }
}
