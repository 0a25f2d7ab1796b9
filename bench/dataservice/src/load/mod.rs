//! Loads: the work of a client process.

pub mod hepnos;
pub mod mobject;
pub mod sonata;
pub mod steady;

use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::latencies::Pairs;
use crate::origin::Caller;
use crate::pool::Tasks;

/// The environment of a load in its client process.
#[derive(Clone, Debug)]
pub struct Client {
    /// Issues calls.
    pub caller: Caller,
    /// The pool of the client, with one execution stream.
    pub tasks: Tasks,
    /// Configuration of the client.
    pub config: Config,
    /// Number of the client among all.
    pub number: u32,
}

/// The size of a load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Size {
    /// Events, objects' writes or documents of each client.
    pub events: u32,
    /// Tasks of each client that issue calls.
    pub writers: u32,
    /// Batches that a writer has under way at a time.
    pub window: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { events: 1024, writers: 1, window: 1 }
    }
}

/// The report of a client, a line of JSON.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Events, writes and reads, or documents.
    pub events: u64,
    /// Seconds from the first call to the last answer.
    pub seconds: f64,
    /// Latencies of calls that the client issued.
    pub latencies: Pairs,
}
