//! A record of a job, and its binary form.
//!
//! # Layout
//! Little-endian. A log and a message have records in this form:
//!
//! ```text
//! kind u8, generation u32, time i64, length u16 and job, length u8 and node, then the content
//! ```
//!
//! The content of a measurement is `length u8 and schema`, then eight bytes for each value. That of every other kind is
//! a JSON document.

use thiserror::Error;

use super::id::{IdError, JobId, check_text};
use super::metadata::{JobEnd, JobLoss, JobStart, JobTags, MetadataError};
use super::metrics::{MAX_METRICS, Metrics, MetricsError, is_name};
use crate::task::{FilesError, Summary, TaskFiles};
use crate::{ByteReader, Timestamp};

/// The longest document. A report with ten thousand processes has 3 MB.
pub const MAX_DOCUMENT_BYTES: usize = 8 << 20;

/// The longest name of a node: that of a host (RFC 1035).
pub const MAX_NODE_BYTES: usize = 255;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A [`JobStart`].
    Start = 0,
    /// A [`Metrics`]: the names of later measurements.
    Metrics = 1,
    /// A vector of values at one time.
    Sample = 2,
    /// The [`Summary`] of a task of the job.
    Report = 3,
    /// Spans of requests: a document whose form belongs to its producer.
    Spans = 4,
    /// A [`JobEnd`].
    End = 5,
    /// A [`JobLoss`]: records of the job that its producer had to drop.
    Loss = 6,
    /// A [`JobTags`]: words that a user added or removed.
    Tags = 7,
    /// A [`TaskFiles`]: the usage of each file by a task of the job.
    Files = 8,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Start,
        Self::Metrics,
        Self::Sample,
        Self::Report,
        Self::Spans,
        Self::End,
        Self::Loss,
        Self::Tags,
        Self::Files,
    ];

    /// Returns the name, as in messages and in segments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Metrics => "metrics",
            Self::Sample => "sample",
            Self::Report => "report",
            Self::Spans => "spans",
            Self::End => "end",
            Self::Loss => "loss",
            Self::Tags => "tags",
            Self::Files => "files",
        }
    }

    /// Returns the kind of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// A record of a job, whose content lies elsewhere.
///
/// ```
/// use skopos_model::Timestamp;
/// use skopos_model::job::{JobRecord, Kind};
///
/// let content = JobRecord::sample_content("node", &[0.5, 1.0]);
/// let record = JobRecord {
///     kind: Kind::Sample, job: "4711", generation: 0, node: "n01",
///     time: Timestamp::from_nanos(7), content: &content,
/// };
/// let mut bytes = Vec::new();
/// record.write(&mut bytes);
/// assert_eq!(JobRecord::read(&bytes), Some(record));
/// assert_eq!(record.check(), Ok(()));
/// assert_eq!(record.sample().map(|(schema, values)| (schema, values.collect())),
///     Some(("node", vec![0.5, 1.0])));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord<'b> {
    /// The kind of the content.
    pub kind: Kind,
    /// The id that the batch system gave the job.
    pub job: &'b str,
    /// The number of the job's run, from zero on.
    pub generation: u32,
    /// The node that the record is about; empty for the whole job.
    pub node: &'b str,
    /// The time of the measurement, or of the record.
    pub time: Timestamp,
    /// The content, by the kind.
    pub content: &'b [u8],
}

/// The reason why a record is refused.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The id is not valid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The name of the node is too long or has a control character.
    #[error("the name of the node is too long or has a control character")]
    Node,
    /// The content is too long.
    #[error("the record has {0} bytes; at most {MAX_DOCUMENT_BYTES} are allowed")]
    Long(usize),
    /// A measurement has no values, too many, or an incomplete one.
    #[error("the measurement is not a schema with 1 to {MAX_METRICS} values")]
    Sample,
    /// The document is not valid.
    #[error("the document of the {kind} is not valid")]
    Document {
        /// The kind of the record.
        kind: &'static str,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// The names of metrics are not valid.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The metadata are out of bounds.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The files of a task are out of bounds.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// Two refusals are equal if people read the same.
impl PartialEq for RecordError {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl<'b> JobRecord<'b> {
    /// Returns the content of a measurement. The schema has at most [`MAX_TOPIC_BYTES`](crate::MAX_TOPIC_BYTES) bytes;
    /// [`check`](Self::check) refuses one that is longer.
    pub fn sample_content(schema: &str, values: &[f64]) -> Vec<u8> {
        let mut content = Vec::with_capacity(1 + schema.len() + 8 * values.len());
        content.push(u8::try_from(schema.len()).unwrap_or(0));
        content.extend_from_slice(schema.as_bytes());
        values.iter().for_each(|value| content.extend_from_slice(&value.to_le_bytes()));
        content
    }

    /// Appends the binary form. The record must be valid: see [`check`](Self::check).
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.time.as_nanos().to_le_bytes());
        out.extend_from_slice(&(self.job.len() as u16).to_le_bytes());
        out.extend_from_slice(self.job.as_bytes());
        out.push(self.node.len() as u8);
        out.extend_from_slice(self.node.as_bytes());
        out.extend_from_slice(self.content);
    }

    /// Reads the binary form; `None` if the bytes are not one. The content is not looked at.
    pub fn read(bytes: &'b [u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        let (kind, generation) = (Kind::of_code(reader.u8()?)?, reader.u32()?);
        let time = Timestamp::from_nanos(reader.i64()?);
        let length = usize::from(reader.u8()?) | usize::from(reader.u8()?) << 8;
        let job = reader.text(length)?;
        let length = usize::from(reader.u8()?);
        let node = reader.text(length)?;
        let content = reader.take(reader.remaining())?;
        Some(Self { kind, job, generation, node, time, content })
    }

    /// Returns the id of the job.
    ///
    /// # Errors
    /// The id is not valid.
    pub fn id(&self) -> Result<JobId, IdError> {
        JobId::new(self.job, self.generation)
    }

    /// Checks the whole record, its content included.
    ///
    /// # Errors
    /// The reason for which the record is refused.
    pub fn check(&self) -> Result<(), RecordError> {
        check_text(self.job)?;
        if self.node.len() > MAX_NODE_BYTES || self.node.chars().any(char::is_control) {
            return Err(RecordError::Node);
        }
        if self.content.len() > MAX_DOCUMENT_BYTES {
            return Err(RecordError::Long(self.content.len()));
        }
        match self.kind {
            Kind::Sample => match self.sample() {
                Some((_, values)) if (1..=MAX_METRICS).contains(&values.len()) => Ok(()),
                _ => Err(RecordError::Sample),
            },
            Kind::Start => Ok(self.start()?.check()?),
            Kind::End => Ok(self.end()?.check()?),
            Kind::Metrics => Ok(self.metrics()?.check()?),
            Kind::Report => self.report().map(drop),
            Kind::Loss => Ok(self.loss()?.check()?),
            Kind::Tags => Ok(self.tags()?.check()?),
            Kind::Files => Ok(self.files()?.check()?),
            Kind::Spans => self.document::<serde::de::IgnoredAny>().map(drop),
        }
    }

    /// Returns the schema and the values of a measurement; `None` if the record is another one or not whole.
    pub fn sample(&self) -> Option<(&'b str, impl ExactSizeIterator<Item = f64> + use<'b>)> {
        if self.kind != Kind::Sample {
            return None;
        }
        let mut reader = ByteReader::new(self.content);
        let length = usize::from(reader.u8()?);
        let schema = reader.text(length).filter(|schema| is_name(schema))?;
        let (values, rest) = reader.take(reader.remaining())?.as_chunks::<8>();
        rest.is_empty().then(|| (schema, values.iter().map(|bytes| f64::from_le_bytes(*bytes))))
    }

    /// Returns the metadata of a start.
    ///
    /// # Errors
    /// The content is not a start.
    pub fn start(&self) -> Result<JobStart, RecordError> {
        self.document()
    }

    /// Returns the result of a job.
    ///
    /// # Errors
    /// The content is not an end.
    pub fn end(&self) -> Result<JobEnd, RecordError> {
        self.document()
    }

    /// Returns the names of measurements.
    ///
    /// # Errors
    /// The content is not a list of metrics.
    pub fn metrics(&self) -> Result<Metrics, RecordError> {
        self.document()
    }

    /// Returns the report of a task.
    ///
    /// # Errors
    /// The content is not a report.
    pub fn report(&self) -> Result<Summary, RecordError> {
        self.document()
    }

    /// Returns the loss that a producer reports.
    ///
    /// # Errors
    /// The content is not a loss.
    pub fn loss(&self) -> Result<JobLoss, RecordError> {
        self.document()
    }

    /// Returns the change of tags.
    ///
    /// # Errors
    /// The content is not a change of tags.
    pub fn tags(&self) -> Result<JobTags, RecordError> {
        self.document()
    }

    /// Returns the files of a task.
    ///
    /// # Errors
    /// The content is not a list of files.
    pub fn files(&self) -> Result<TaskFiles, RecordError> {
        self.document()
    }

    fn document<T: serde::de::DeserializeOwned>(&self) -> Result<T, RecordError> {
        let kind = self.kind.name();
        serde_json::from_slice(self.content)
            .map_err(|source| RecordError::Document { kind, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, content: &[u8]) -> JobRecord<'_> {
        let time = Timestamp::from_nanos(-5);
        JobRecord { kind, job: "a/b", generation: 2, node: "n01", time, content }
    }

    #[test]
    fn records_survive_their_binary_form_and_every_cut_is_noticed() {
        let content = JobRecord::sample_content("node", &[1.5, f64::NAN]);
        for kind in Kind::ALL {
            let record = record(kind, &content);
            let mut bytes = Vec::new();
            record.write(&mut bytes);
            assert_eq!(JobRecord::read(&bytes), Some(record));
            let head = bytes.len() - content.len();
            assert!((0..head).all(|length| JobRecord::read(&bytes[..length]).is_none()));
            bytes[0] = 9;
            assert_eq!(JobRecord::read(&bytes), None);
        }
    }

    #[test]
    fn contents_are_checked_by_their_kind() {
        let check = |kind, content: &[u8], refusal: Option<&str>| {
            let found = record(kind, content).check().map_err(|e| e.to_string());
            assert_eq!(found.err().as_deref(), refusal, "{kind:?}");
        };
        let sample = Some("the measurement is not a schema with 1 to 4096 values");
        check(Kind::Sample, &JobRecord::sample_content("s", &[1.0]), None);
        check(Kind::Sample, &JobRecord::sample_content("s", &[]), sample);
        check(Kind::Sample, &JobRecord::sample_content("", &[1.0]), sample);
        check(Kind::Sample, &JobRecord::sample_content("s", &[1.0])[..9], sample);
        check(Kind::Sample, &JobRecord::sample_content("s", &[0.0; MAX_METRICS + 1]), sample);
        check(Kind::Start, br#"{"user":"ann","details":{"a":"b"}}"#, None);
        check(Kind::Start, b"{", Some("the document of the start is not valid"));
        check(Kind::Metrics, br#"{"schema":"s","names":["a"]}"#, None);
        let none = Some("a schema has 1 to 4096 metrics, and this one has 0");
        check(Kind::Metrics, br#"{"schema":"s","names":[]}"#, none);
        check(Kind::End, br#"{"state":"completed","status":0}"#, None);
        check(Kind::End, br#"{"state":"lost"}"#, Some("the document of the end is not valid"));
        check(Kind::Report, b"{}", Some("the document of the report is not valid"));
        check(Kind::Spans, b"[1,2]", None);
        check(Kind::Spans, b"[1,", Some("the document of the spans is not valid"));
        check(Kind::Loss, br#"{"why":"the disk is full","records":3}"#, None);
        check(Kind::Loss, b"{}", Some("the document of the loss is not valid"));
        check(Kind::Tags, br#"{"add":["slow"]}"#, None);
        check(Kind::Files, b"[]", Some("the document of the files is not valid"));
    }

    #[test]
    fn names_and_lengths_are_checked() {
        let content = JobRecord::sample_content("s", &[1.0]);
        let valid = record(Kind::Sample, &content);
        let long = "n".repeat(MAX_NODE_BYTES + 1);
        assert_eq!(JobRecord { node: &long, ..valid }.check(), Err(RecordError::Node));
        assert_eq!(JobRecord { node: "a\nb", ..valid }.check(), Err(RecordError::Node));
        assert_eq!(JobRecord { job: "", ..valid }.check(), Err(RecordError::Id(IdError::Empty)));
        let huge = vec![b' '; MAX_DOCUMENT_BYTES + 1];
        let long = JobRecord { kind: Kind::Spans, content: &huge, ..valid };
        assert_eq!(long.check(), Err(RecordError::Long(MAX_DOCUMENT_BYTES + 1)));
    }
}
