use thiserror::Error;

use crate::{
    MAX_STRUCTURED_BYTES, MAX_STRUCTURED_DEPTH, MAX_TOPIC_BYTES, MAX_TOPIC_SEGMENTS, MAX_UNIT_BYTES,
};

/// What can be wrong with a noun.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A topic or pattern without any character.
    #[error("the topic is empty")]
    TopicEmpty,
    /// Longer than [`MAX_TOPIC_BYTES`].
    #[error("the topic has {0} bytes, the most is {MAX_TOPIC_BYTES}")]
    TopicTooLong(usize),
    /// Deeper than [`MAX_TOPIC_SEGMENTS`].
    #[error("the topic has {0} segments, the most is {MAX_TOPIC_SEGMENTS}")]
    TopicTooDeep(usize),
    /// Two slashes in a row, or one at either end.
    #[error("the topic `{0}` has an empty segment")]
    SegmentEmpty(String),
    /// A character that no segment may hold.
    #[error(
        "the topic `{topic}` has the character {found:?} at byte {at}; a segment holds a-z 0-9 _ - . : @ + = %"
    )]
    SegmentCharacter {
        /// The text as given.
        topic: String,
        /// The character that is not allowed.
        found: char,
        /// Its byte offset in `topic`.
        at: usize,
    },
    /// `**` beside other characters in one segment.
    #[error("the pattern `{0}` has `**` inside a segment; `**` stands alone, `*` may stand inside")]
    PatternDoubleStar(String),
    /// A unit that is too long or has odd characters.
    #[error(
        "`{0}` is not a unit; a unit has at most {MAX_UNIT_BYTES} of the characters a-z 0-9 _ / %"
    )]
    Unit(String),
    /// A kind that is none of the three.
    #[error("`{0}` is not a kind; a kind is `counter`, `gauge` or `state`")]
    Kind(String),
    /// A value type that is none of the four.
    #[error("`{0}` is not a value type; a value type is `f64`, `i64`, `u64` or `structured`")]
    ValueType(String),
    /// A text that is not a value of the type asked for.
    #[error("`{text}` is not a value of type {wanted}")]
    Value {
        /// The text as given.
        text: String,
        /// The type that was wanted.
        wanted: crate::ValueType,
    },
    /// A number with something behind it that is no unit of time.
    #[error("`{0}` is no unit of time: use ms, s, m, h or d")]
    DurationUnit(String),
    /// Not a duration, or one that is too long.
    #[error("`{0}` is no duration: try `30s`, `1h30m` or `500ms`")]
    Duration(String),
    /// Nested deeper than [`MAX_STRUCTURED_DEPTH`].
    #[error("the structured value is nested deeper than {MAX_STRUCTURED_DEPTH}")]
    StructuredTooDeep,
    /// Longer than [`MAX_STRUCTURED_BYTES`] once encoded.
    #[error("the structured value has {0} bytes encoded, the most is {MAX_STRUCTURED_BYTES}")]
    StructuredTooLong(usize),
    /// Not a list, a record or a text.
    #[error("a structured value is a list, a record or a text, not `{0}`")]
    StructuredShape(String),
    /// Not JSON.
    #[error("the structured value is not JSON: {0}")]
    StructuredSyntax(String),
}
