//! A recorded trace of one topic, as text: what was measured when, to be replayed.
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
//! Comments come first: the topic and the unit, and any others as notes. Then the head and a row a
//! sample: seconds since the recording began, which never go back, and a finite number. Rows may
//! be any distance apart.

use std::fmt;
use std::time::Duration;

use skopos_model::{Kind, Timestamp};
use thiserror::Error;

/// The line above the rows.
const HEAD: &str = "time_seconds,value";

/// The most samples of one trace: eleven days of one a second, or 32 MB in memory, and more than
/// any replay needs.
pub const MAX_TRACE_SAMPLES: usize = 1_000_000;

/// One topic's samples over one recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// What was recorded; empty if the file does not say.
    pub topic: String,
    /// The unit of the values; empty for a plain number.
    pub unit: String,
    /// The other comments, as they stand behind their `#`: when and under what load.
    pub notes: Vec<String>,
    /// Time since the recording began, and the value; times never go back.
    pub samples: Vec<(Duration, f64)>,
}

/// Why a text is no trace. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// The first line that is no comment is another one than `time_seconds,value`.
    #[error("line {line}: `{found}` where the head `{HEAD}` should stand")]
    Head {
        /// Its number.
        line: usize,
        /// What stands there.
        found: String,
    },
    /// There is no head at all.
    #[error("there is no head `{HEAD}`")]
    NoHead,
    /// A row that is not two finite numbers, or whose time is negative or no duration.
    #[error("line {line}: `{found}` is not `seconds,value` with two finite numbers")]
    Row {
        /// Its number.
        line: usize,
        /// What stands there.
        found: String,
    },
    /// A row with an earlier time than the one before it.
    #[error("line {line}: its time is before that of the row above")]
    Backwards {
        /// Its number.
        line: usize,
    },
    /// More rows than [`MAX_TRACE_SAMPLES`].
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
    /// A [`TraceError`] for the first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let mut has_head = false;
        for (index, text) in text.lines().enumerate() {
            let (line, text) = (index + 1, text.trim());
            if let Some(comment) = text.strip_prefix('#') {
                trace.comment(comment.trim());
            } else if text.is_empty() {
                // An empty line at the end is what editors leave.
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

/// The text of the trace file, which [`Trace::parse`] reads back as it was.
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

/// Seconds with as many digits as it takes, and no rounding: `1.0001`, `2`.
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
