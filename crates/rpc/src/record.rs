//! The record: 64 bytes for each side of a call.
//!
//! Eight words of 64 bits, little-endian:
//!
//! | offset | type | name |
//! |--:|--|--|
//! | 0 | u64 | `request_low` |
//! | 8 | u64 | `request_high` |
//! | 16 | u64 | `span` |
//! | 24 | u64 | `parent` |
//! | 32 | u64 | `start`, ticks of the process's clock |
//! | 40 | u64 | `duration`, ticks |
//! | 48 | u32 | `node`: callpath node of the process |
//! | 52 | u32 | `lamport` |
//! | 56 | u16 | `order` |
//! | 58 | u8 | `kind` |
//! | 59 | u8 | `status` |
//! | 60 | u16 | `details`: number of records of kind 4 that follow in the same ring |
//! | 62 | u16 | `peer`: name of the other entity, 0 if not known |
//!
//! Records of kinds 4 and 5 have other words: see [`Details`] and [`Sample`]. A *tagged value* is a word with a tag in
//! its upper 16 bits and a value in the lower 48. The tags 1 to 63 are intervals in ns; tag 64 + n is variable n of the
//! process; tag 0 is an empty place.

use crate::interval::Interval;

/// Length of a record in bytes.
pub const RECORD_BYTES: usize = 64;
/// Number of words of a record.
pub const RECORD_WORDS: usize = 8;
/// Tag of variable 0 of a process; smaller tags are intervals.
pub const FIRST_PVAR_TAG: u16 = 64;
/// The greatest value that a tagged value holds: 48 bits, three days in ns. A greater value is stored as this one.
pub const MAX_TAGGED: u64 = (1 << 48) - 1;
/// Number of tagged values in a record of details.
pub const DETAILS_VALUES: usize = 7;
/// Number of tagged values in a sample of the process.
pub const SAMPLE_VALUES: usize = 6;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A call, seen by the caller.
    Origin = 1,
    /// A call, seen by the callee.
    Target = 2,
    /// A step inside of a process.
    Local = 3,
    /// Tagged values of the record before.
    Details = 4,
    /// A sample of the process.
    Sample = 5,
}

impl Kind {
    /// Returns the kind of a number in a record.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Origin, Self::Target, Self::Local, Self::Details, Self::Sample]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }

    /// Returns the name: `origin`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::Target => "target",
            Self::Local => "local",
            Self::Details => "details",
            Self::Sample => "sample",
        }
    }
}

/// The end of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// It did its work.
    #[default]
    Ok = 0,
    /// It failed.
    Error = 1,
    /// Its caller gave up.
    Cancelled = 2,
    /// Its deadline passed.
    TimedOut = 3,
}

impl Status {
    /// Returns the status of a number in a record. A number of a newer version is an error of the call.
    pub fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Ok,
            2 => Self::Cancelled,
            3 => Self::TimedOut,
            _ => Self::Error,
        }
    }

    /// Returns the name: `timed_out`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }
}

/// A value with its tag: an interval or a variable. Zero is an empty place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tagged(pub u64);

impl Tagged {
    /// Makes a tagged value; a value over [`MAX_TAGGED`] becomes that.
    #[inline]
    pub const fn new(tag: u16, value: u64) -> Self {
        let value = if value > MAX_TAGGED { MAX_TAGGED } else { value };
        Self((tag as u64) << 48 | value)
    }

    /// Returns the tag; 0 if the place is empty.
    #[inline]
    pub const fn tag(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Returns the value: ns for an interval, the variable's unit for a variable.
    #[inline]
    pub const fn value(self) -> u64 {
        self.0 & MAX_TAGGED
    }

    /// Returns the interval; `None` if it is a variable, empty or of a newer version.
    pub fn interval(self) -> Option<Interval> {
        Interval::from_tag(self.tag())
    }

    /// Returns the number of the variable; `None` if it is an interval or empty.
    pub fn pvar(self) -> Option<u16> {
        self.tag().checked_sub(FIRST_PVAR_TAG)
    }
}

/// One side of a call, or a step inside of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanRecord {
    /// Lower half of the request's id; never 0. Everything joins by it.
    pub request_low: u64,
    /// Upper half of the request's id; 0 if the host passes on the lower half only.
    pub request_high: u64,
    /// Id of the call, the same on both sides.
    pub span: u64,
    /// Id of the span around it in the origin's process; 0 at the root. A target's record has it as 0 if the
    /// context did not say.
    pub parent: u64,
    /// Begin, in ticks of the process's clock.
    pub start: u64,
    /// Duration in ticks.
    pub duration: u64,
    /// Callpath node of the process.
    pub node: u32,
    /// Lamport clock when this side ended.
    pub lamport: u32,
    /// Order counter within the request.
    pub order: u16,
    /// `Origin`, `Target` or `Local`.
    pub kind: Kind,
    /// The end of the call.
    pub status: Status,
    /// Number of records of details that follow.
    pub details: u16,
    /// Name of the other entity; 0 if not known.
    pub peer: u16,
}

/// Tagged values of the record before.
pub type Details = [Tagged; DETAILS_VALUES];

/// A sample of the process: time in ticks, and values of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The moment, in ticks of the process's clock.
    pub at: u64,
    /// Values of variables.
    pub values: [Tagged; SAMPLE_VALUES],
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// One side of a call.
    Span(SpanRecord),
    /// Values of the span before.
    Details(Details),
    /// A sample of the process.
    Sample(Sample),
}

/// Returns the last word of a record that has tagged values.
const fn values_end(kind: Kind) -> u64 {
    (kind as u64) << 16
}

impl SpanRecord {
    /// Encodes the record.
    #[inline]
    pub fn words(&self) -> [u64; RECORD_WORDS] {
        [
            self.request_low,
            self.request_high,
            self.span,
            self.parent,
            self.start,
            self.duration,
            u64::from(self.node) | u64::from(self.lamport) << 32,
            u64::from(self.order)
                | (self.kind as u64) << 16
                | (self.status as u64) << 24
                | u64::from(self.details) << 32
                | u64::from(self.peer) << 48,
        ]
    }
}

impl Record {
    /// Encodes the record as words, as they lie in a ring.
    #[inline]
    pub fn words(&self) -> [u64; RECORD_WORDS] {
        match self {
            Self::Span(span) => span.words(),
            Self::Details(values) => details_words(values),
            Self::Sample(sample) => {
                let [a, b, c, d, e, f] = sample.values.map(|value| value.0);
                [sample.at, a, b, c, d, e, f, values_end(Kind::Sample)]
            }
        }
    }

    /// Encodes the record as bytes, as they lie in a file.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        words_to_bytes(&self.words())
    }

    /// Decodes words; `None` if the kind is not known.
    #[inline]
    pub fn from_words(words: &[u64; RECORD_WORDS]) -> Option<Self> {
        let [a, b, c, d, e, f, g, last] = *words;
        let kind = Kind::from_code((last >> 16) as u8)?;
        Some(match kind {
            Kind::Details => Self::Details([a, b, c, d, e, f, g].map(Tagged)),
            Kind::Sample => Self::Sample(Sample { at: a, values: [b, c, d, e, f, g].map(Tagged) }),
            Kind::Origin | Kind::Target | Kind::Local => Self::Span(SpanRecord {
                request_low: a,
                request_high: b,
                span: c,
                parent: d,
                start: e,
                duration: f,
                node: g as u32,
                lamport: (g >> 32) as u32,
                order: last as u16,
                kind,
                status: Status::from_code((last >> 24) as u8),
                details: (last >> 32) as u16,
                peer: (last >> 48) as u16,
            }),
        })
    }

    /// Decodes bytes; `None` if the kind is not known.
    #[inline]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        Self::from_words(&bytes_to_words(bytes))
    }
}

/// Encodes tagged values as the words of a record of details.
#[inline]
pub fn details_words(values: &Details) -> [u64; RECORD_WORDS] {
    let [a, b, c, d, e, f, g] = values.map(|value| value.0);
    [a, b, c, d, e, f, g, values_end(Kind::Details)]
}

/// Returns the words of a record as bytes.
#[inline]
pub fn words_to_bytes(words: &[u64; RECORD_WORDS]) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Returns the bytes of a record as words.
#[inline]
pub fn bytes_to_words(bytes: &[u8; RECORD_BYTES]) -> [u64; RECORD_WORDS] {
    std::array::from_fn(|at| u64::from_le_bytes(std::array::from_fn(|i| bytes[8 * at + i])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span() -> SpanRecord {
        SpanRecord {
            request_low: 1,
            request_high: 2,
            span: 3,
            parent: 4,
            start: 5,
            duration: 6,
            node: 7,
            lamport: 8,
            order: 9,
            kind: Kind::Target,
            status: Status::TimedOut,
            details: 10,
            peer: 11,
        }
    }

    #[test]
    fn each_field_lies_at_its_documented_offset() {
        let bytes = Record::Span(span()).to_bytes();
        for (at, expected) in [(0, 1), (8, 2), (16, 3), (24, 4), (32, 5), (40, 6), (48, 7)] {
            assert_eq!(bytes[at], expected, "{at}");
        }
        let rest = [8, 0, 0, 0, 9, 0, 2, 3, 10, 0, 11, 0];
        assert_eq!(bytes[52..], rest);
    }

    #[test]
    fn each_record_decodes_to_itself() {
        let values = [Tagged::new(1, 2), Tagged::new(70, 9), Tagged(0)];
        let sample = Sample { at: 77, values: std::array::from_fn(|i| values[i % 3]) };
        let details = std::array::from_fn(|i| values[i % 3]);
        for record in [Record::Span(span()), Record::Sample(sample), Record::Details(details)] {
            assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
        }
        assert_eq!(Record::from_bytes(&[0; RECORD_BYTES]), None);
        assert_eq!(Record::from_bytes(&[0xff; RECORD_BYTES]), None);
    }

    #[test]
    fn a_value_that_is_too_great_keeps_its_tag() {
        let value = Tagged::new(Interval::Children.tag(), u64::MAX);
        assert_eq!((value.interval(), value.value()), (Some(Interval::Children), MAX_TAGGED));
        assert_eq!(Tagged::new(FIRST_PVAR_TAG + 3, 5).pvar(), Some(3));
        assert_eq!(Tagged(0).pvar(), None);
    }
}
