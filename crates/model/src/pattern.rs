use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::segment::is_segment_byte;
use crate::topic::{Topic, check};
use crate::wildcard;

/// Selects topics: `*` stands for any run of characters inside one segment, `**` alone for any
/// number of whole segments, also zero.
///
/// ```
/// use skopos_model::{Topic, TopicPattern};
/// let topic = Topic::new("n01/fs/nvme0n1p1/available_bytes")?;
/// for pattern in ["**", "n01/fs/*/available_bytes", "n*/fs/**", "**/nvme*/*"] {
///     assert!(TopicPattern::new(pattern)?.matches(&topic));
/// }
/// assert!(!TopicPattern::new("*/available_bytes")?.matches(&topic));
/// # Ok::<(), skopos_model::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TopicPattern(Box<str>);

impl TopicPattern {
    /// Checks `text` and makes a pattern of it. Every topic is a pattern that matches itself alone.
    ///
    /// # Errors
    /// The errors of [`Topic::new`], and [`Error::PatternDoubleStar`].
    pub fn new(text: &str) -> Result<Self, Error> {
        check(text, |_, byte| byte == b'*' || is_segment_byte(byte))?;
        if text.split('/').any(|segment| segment != "**" && segment.contains("**")) {
            return Err(Error::PatternDoubleStar(text.to_owned()));
        }
        Ok(Self(text.into()))
    }

    /// Returns the pattern as it was given.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the one topic that this pattern can match, if it has no wildcard.
    pub fn as_topic(&self) -> Option<Topic> {
        if self.0.contains('*') { None } else { Topic::new(&self.0).ok() }
    }

    /// Returns true if the pattern selects `topic`. Allocates nothing; the work is bounded by the
    /// product of both lengths.
    #[inline]
    pub fn matches(&self, topic: &Topic) -> bool {
        self.matches_str(topic.as_str())
    }

    /// Like [`matches`](Self::matches), for a text that is known to be a topic.
    pub fn matches_str(&self, topic: &str) -> bool {
        let segments = |text| Segments(Some(str::as_bytes(text)));
        let is_run = |segment: &&[u8]| *segment == b"**";
        wildcard::matches(segments(&self.0), segments(topic), is_run, |glob, segment| {
            wildcard::matches(glob.iter(), segment.iter(), |byte| **byte == b'*', |a, b| a == b)
        })
    }
}

/// The segments of a topic or pattern. A type of its own because the matcher copies it often, and cloning
/// the standard library's `Split` is a call.
#[derive(Clone, Copy)]
struct Segments<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.0?;
        let end = text.iter().position(|byte| *byte == b'/');
        self.0 = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    }
}

impl FromStr for TopicPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicPattern({})", self.0)
    }
}

impl From<&Topic> for TopicPattern {
    fn from(topic: &Topic) -> Self {
        Self(topic.as_str().into())
    }
}
