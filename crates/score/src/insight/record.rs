use serde_json::{Map, Value as Json};
use skopos_model::{MAX_STRUCTURED_BYTES, Structured, Timestamp};

use crate::{Outcome, Unknown};

/// The most bytes of a list in a record, as JSON: the other fields, among them a few reasons why
/// something is unknown, have the rest of what a structured value may be.
pub(super) const MAX_LIST_BYTES: usize = MAX_STRUCTURED_BYTES / 2;

/// The longest reason in a record. A sentence and a path fit; a vertex may have several.
const MAX_REASON_CHARS: usize = 256;

/// A structured outcome under construction: fields in their order. What is not known is `null`, and
/// the field `unknown` then says why, by the field's name.
#[derive(Default)]
pub(super) struct Record {
    fields: Map<String, Json>,
    unknown: Map<String, Json>,
    known: usize,
}

impl Record {
    /// A field that is known.
    pub(super) fn put(&mut self, name: &str, value: impl Into<Json>) {
        self.known += 1;
        self.fields.insert(name.to_owned(), value.into());
    }

    /// A field that may be unknown.
    pub(super) fn try_put(&mut self, name: &str, value: Result<impl Into<Json>, Unknown>) {
        match value {
            Ok(value) => self.put(name, value),
            Err(unknown) => {
                self.fields.insert(name.to_owned(), Json::Null);
                self.why(name, &unknown);
            }
        }
    }

    /// The time of the record, in nanoseconds since the UNIX epoch: the paper's `timestamp`.
    pub(super) fn put_time(&mut self, time: Timestamp) {
        self.fields.insert("time_ns".to_owned(), time.as_nanos().into());
    }

    /// Says why `name`, or a part of it, is not known.
    pub(super) fn why(&mut self, name: &str, unknown: &Unknown) {
        let reason: String = unknown.reason().chars().take(MAX_REASON_CHARS).collect();
        self.unknown.insert(name.to_owned(), reason.into());
    }

    /// As much of a list as has room, and in `truncated` how much has not, together with the `cut`
    /// items that somebody has left out already.
    pub(super) fn put_list(&mut self, name: &str, cut: usize, items: Vec<Json>) {
        let mut bytes = 0;
        let fits = |item: &Json| {
            bytes += item.to_string().len() + 1;
            bytes <= MAX_LIST_BYTES
        };
        let count = items.len();
        let kept: Vec<Json> = items.into_iter().take_while(fits).collect();
        let truncated = cut.saturating_add(count - kept.len());
        self.put(name, kept);
        self.fields.insert("truncated".to_owned(), truncated.into());
    }

    /// The record as an outcome.
    ///
    /// # Errors
    /// Nothing of it is known; it is larger than a structured value may be.
    pub(super) fn finish(self) -> Outcome {
        let Self { mut fields, unknown, known } = self;
        if known == 0 {
            let reasons: Vec<&str> = unknown.values().filter_map(Json::as_str).collect();
            return Err(Unknown::new(reasons.join("; ")));
        }
        if !unknown.is_empty() {
            fields.insert("unknown".to_owned(), unknown.into());
        }
        let record = Structured::new(fields.into()).map_err(|e| Unknown::new(e.to_string()))?;
        Ok(record.into())
    }
}
