use thiserror::Error;

use crate::limits::{
    MAX_STRUCTURED_BYTES, MAX_STRUCTURED_DEPTH, MAX_TOPIC_BYTES, MAX_TOPIC_SEGMENTS, MAX_UNIT_BYTES,
};
use crate::value_type::ValueType;

/// The reasons for which a text or value is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The topic or pattern is empty.
    #[error("the topic is empty")]
    TopicEmpty,
    /// The topic is longer than [`MAX_TOPIC_BYTES`].
    #[error("the topic has {0} bytes; the maximum is {MAX_TOPIC_BYTES}")]
    TopicTooLong(usize),
    /// The topic is deeper than [`MAX_TOPIC_SEGMENTS`].
    #[error("the topic has {0} segments; the maximum is {MAX_TOPIC_SEGMENTS}")]
    TopicTooDeep(usize),
    /// The topic has two slashes in a row, or a slash at either end.
    #[error("the topic `{0}` has an empty segment")]
    SegmentEmpty(String),
    /// The topic has a character that no segment may hold.
    #[error(
        "the topic `{topic}` has the character {found:?} at byte {at}; a segment holds a-z 0-9 _ - . : @ + = %"
    )]
    SegmentCharacter {
        /// The text as given.
        topic: String,
        /// The character that is not allowed.
        found: char,
        /// The byte offset of `found` in `topic`.
        at: usize,
    },
    /// The pattern has `**` beside other characters in one segment.
    #[error("the pattern `{0}` has `**` inside a segment; `**` stands alone, `*` may stand inside")]
    PatternDoubleStar(String),
    /// The unit is too long or has a character that is not allowed.
    #[error(
        "`{0}` is not a unit; a unit has at most {MAX_UNIT_BYTES} of the characters a-z 0-9 _ / %"
    )]
    Unit(String),
    /// The text is not the name of a kind.
    #[error("`{0}` is not a kind; a kind is `counter`, `gauge` or `state`")]
    Kind(String),
    /// The text is not the name of a value type.
    #[error("`{0}` is not a value type; a value type is `f64`, `i64`, `u64` or `structured`")]
    ValueType(String),
    /// The text is not a value of the wanted type.
    #[error("`{text}` is not a value of type {wanted}")]
    Value {
        /// The text as given.
        text: String,
        /// The wanted type.
        wanted: ValueType,
    },
    /// The text after a number is not a unit of time.
    #[error("`{0}` is not a unit of time; use ms, s, m, h or d")]
    DurationUnit(String),
    /// The text is not a duration, or the duration is too long.
    #[error("`{0}` is not a duration; try `30s`, `1h30m` or `500ms`")]
    Duration(String),
    /// The value is nested deeper than [`MAX_STRUCTURED_DEPTH`].
    #[error("the structured value is nested deeper than {MAX_STRUCTURED_DEPTH}")]
    StructuredTooDeep,
    /// The value is longer than [`MAX_STRUCTURED_BYTES`] once encoded.
    #[error("the structured value has {0} bytes encoded; the maximum is {MAX_STRUCTURED_BYTES}")]
    StructuredTooLong(usize),
    /// The value is not a list, a record or a text.
    #[error("a structured value is a list, a record or a text, not `{0}`")]
    StructuredShape(String),
    /// The text is not JSON.
    #[error("the structured value is not JSON: {0}")]
    StructuredSyntax(String),
}
