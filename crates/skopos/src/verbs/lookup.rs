//! The result of `skopos get`: values, and reasons for missing ones, from this machine or from a hub.

use std::time::Duration;

use serde::Serialize;
use skopos_model::{Sample, Topic, Unit};
use skopos_term::reading::ReadingJson;

use super::predicted::Now;

/// The values of the topics, and the topics without a value.
#[derive(Default)]
pub(super) struct Lookup {
    pub(super) reads: Vec<Read>,
    /// Topics without a value that may be shown, each with its reason.
    pub(super) refused: Vec<RefusedTopic>,
}

/// A topic without a value that may be shown.
#[derive(Serialize)]
pub(super) struct RefusedTopic {
    pub(super) topic: String,
    pub(super) reason: String,
}

/// A topic with its value.
pub(super) struct Read {
    pub(super) topic: Topic,
    pub(super) unit: Unit,
    pub(super) sample: Sample,
    pub(super) age: Duration,
    /// The predicted present value, if `--now` is given.
    pub(super) now: Option<Now>,
    pub(super) document: Document,
}

/// `docs/json/reading.schema.json`.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Document {
    /// A document of this process.
    Own(Box<ReadingJson>),
    /// A document of a hub.
    OfHub(serde_json::Value),
}
