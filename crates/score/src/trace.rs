//! A recorded trace of one topic as text, for replays.
//!
//! ```text
//! # topic: n01/block/vda/read_bytes_total
//! # unit: bytes
//! # recorded: 2026-11-21, under fio
//! time_seconds,value
//! 0,1024
//! 1.0001,4096
//! ```
//!
//! Comments come first: the topic, the unit, and any others as notes. The header follows, then one
//! row per sample: seconds since the recording began, which never go back, and a finite number.
//! Rows may be any distance apart.

use std::fmt;
use std::time::Duration;

use skopos_model::{Kind, Timestamp};
use thiserror::Error;

/// The line above the rows.
const HEAD: &str = "time_seconds,value";

/// The most samples of one trace: eleven days at one a second, 32 MB in memory, and more than any
/// replay needs.
pub const MAX_TRACE_SAMPLES: usize = 1_000_000;

/// The samples of one topic over one recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The recorded topic; empty if the file does not name it.
    pub topic: String,
    /// The unit of the values; empty for a plain number.
    pub unit: String,
    /// The other comments, without their `#`: for example the date and the load.
    pub notes: Vec<String>,
    /// Time since the recording began, and the value; times never go back.
    pub samples: Vec<(Duration, f64)>,
}

/// The reason why a text is not a trace. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// The first line that is not a comment is not `time_seconds,value`.
    #[error("line {line}: found `{found}` instead of the header `{HEAD}`")]
    Head {
        /// The line number.
        line: usize,
        /// The text of the line.
        found: String,
    },
    /// The header is missing.
    #[error("the header `{HEAD}` is missing")]
    NoHead,
    /// A row that is not two finite numbers, or whose time is negative or too large.
    #[error("line {line}: `{found}` is not `seconds,value` with two finite numbers")]
    Row {
        /// The line number.
        line: usize,
        /// The text of the line.
        found: String,
    },
    /// A row with an earlier time than the row before it.
    #[error("line {line}: its time is before that of the row above")]
    Backwards {
        /// The line number.
        line: usize,
    },
    /// The text has more rows than [`MAX_TRACE_SAMPLES`].
    #[error("line {line}: a trace has at most {MAX_TRACE_SAMPLES} samples")]
    TooLong {
        /// The number of the first row too many.
        line: usize,
    },
}

impl Trace {
    /// Reads the text of a trace file.
    ///
    /// # Errors
    /// Returns a [`TraceError`] for the first invalid line.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let mut has_head = false;
        for (index, text) in text.lines().enumerate() {
            let (line, text) = (index + 1, text.trim());
            if let Some(comment) = text.strip_prefix('#') {
                trace.comment(comment.trim());
            } else if text.is_empty() {
                // Editors leave an empty line at the end.
            } else if has_head {
                trace.row(line, text)?;
            } else if text == HEAD {
                has_head = true;
            } else {
                return Err(TraceError::Head { line, found: text.to_owned() });
            }
        }
        if has_head { Ok(trace) } else { Err(TraceError::NoHead) }
    }

    fn comment(&mut self, comment: &str) {
        if let Some(topic) = comment.strip_prefix("topic:") {
            topic.trim().clone_into(&mut self.topic);
        } else if let Some(unit) = comment.strip_prefix("unit:") {
            unit.trim().clone_into(&mut self.unit);
        } else {
            self.notes.push(comment.to_owned());
        }
    }

    fn row(&mut self, line: usize, text: &str) -> Result<(), TraceError> {
        let sample = text.split_once(',').and_then(|(seconds, value)| {
            let seconds: f64 = seconds.trim().parse().ok()?;
            let value: f64 = value.trim().parse().ok()?;
            let time = Duration::try_from_secs_f64(seconds).ok()?;
            value.is_finite().then_some((time, value))
        });
        let Some((time, value)) = sample else {
            return Err(TraceError::Row { line, found: text.to_owned() });
        };
        if self.samples.last().is_some_and(|(before, _)| time < *before) {
            return Err(TraceError::Backwards { line });
        }
        if self.samples.len() == MAX_TRACE_SAMPLES {
            return Err(TraceError::TooLong { line });
        }
        self.samples.push((time, value));
        Ok(())
    }
}

/// Writes the text of the trace file; [`Trace::parse`] reads it back unchanged.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# topic: {}", self.topic)?;
        writeln!(f, "# unit: {}", self.unit)?;
        for note in &self.notes {
            writeln!(f, "# {note}")?;
        }
        writeln!(f, "{HEAD}")?;
        for (time, value) in &self.samples {
            writeln!(f, "{},{value}", Seconds(*time))?;
        }
        Ok(())
    }
}

/// Seconds with as many digits as necessary and no rounding: `1.0001`, `2`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_secs())?;
        let (mut nanos, mut digits) = (self.0.subsec_nanos(), 9);
        if nanos == 0 {
            return Ok(());
        }
        while nanos.is_multiple_of(10) {
            (nanos, digits) = (nanos / 10, digits - 1);
        }
        write!(f, ".{nanos:0digits$}")
    }
}

/// Returns the kind that the name of a topic implies: the names of counters end with `_total`.
pub fn kind_of(topic: &str) -> Kind {
    if topic.ends_with("_total") { Kind::Counter } else { Kind::Gauge }
}

/// Converts a time of a trace, which begins with zero, to a timestamp.
pub fn instant(since_start: Duration) -> Timestamp {
    Timestamp::default().saturating_add(since_start)
}
