use serde_json::{Map, Value as Json};
use skopos_model::{MAX_STRUCTURED_BYTES, Structured, Timestamp};

use crate::unknown::{Outcome, Unknown};

/// The most bytes of a list in a record, as JSON. The other fields, among them a few reasons for
/// unknown values, share the rest of the size limit of a structured value.
pub(super) const MAX_LIST_BYTES: usize = MAX_STRUCTURED_BYTES / 2;

/// The longest reason in a record. It holds a sentence and a path; a vertex may have several
/// reasons.
const MAX_REASON_CHARS: usize = 256;

/// A structured outcome under construction, with its fields in order. An unknown field is `null`,
/// and the field `unknown` gives the reason by the field's name.
#[derive(Default)]
pub(super) struct Record {
    fields: Map<String, Json>,
    unknown: Map<String, Json>,
    known: usize,
}

impl Record {
    /// Adds a known field.
    pub(super) fn put(&mut self, name: &str, value: impl Into<Json>) {
        self.known += 1;
        self.fields.insert(name.to_owned(), value.into());
    }

    /// Adds a field that may be unknown.
    pub(super) fn try_put(&mut self, name: &str, value: Result<impl Into<Json>, Unknown>) {
        match value {
            Ok(value) => self.put(name, value),
            Err(unknown) => {
                self.fields.insert(name.to_owned(), Json::Null);
                self.why(name, &unknown);
            }
        }
    }

    /// Adds the time of the record in nanoseconds since the UNIX epoch: the paper's `timestamp`.
    pub(super) fn put_time(&mut self, time: Timestamp) {
        self.fields.insert("time_ns".to_owned(), time.as_nanos().into());
    }

    /// Adds the reason why the field `name`, or a part of it, is unknown.
    pub(super) fn why(&mut self, name: &str, unknown: &Unknown) {
        let reason: String = unknown.reason().chars().take(MAX_REASON_CHARS).collect();
        self.unknown.insert(name.to_owned(), reason.into());
    }

    /// Adds the items of a list that fit. The field `truncated` counts the items that do not fit,
    /// plus the `cut` items that the caller has left out already.
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

    /// Returns the record as an outcome.
    ///
    /// # Errors
    /// Fails if no field is known, or if the record exceeds the size of a structured value.
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
