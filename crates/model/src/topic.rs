use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::limits::{MAX_TOPIC_BYTES, MAX_TOPIC_SEGMENTS};
use crate::segment::is_segment_byte;

/// The name of one stream of samples: lower-case segments joined by `/`, most often
/// `node/subsystem/instance/metric`.
///
/// Always valid: it has 1 to [`MAX_TOPIC_BYTES`] bytes in at most [`MAX_TOPIC_SEGMENTS`] segments, and
/// each segment has at least one of the characters `a-z 0-9 _ - . : @ + = %`.
// The accessors are inlined: other crates call them per sample and per row, and release builds have no
// link-time optimisation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic(Box<str>);

impl Topic {
    /// Checks `text` and makes a topic of it.
    ///
    /// # Errors
    /// The first rule that `text` breaks; see [`Error`].
    pub fn new(text: &str) -> Result<Self, Error> {
        check(text, |_, byte| is_segment_byte(byte))?;
        Ok(Self(text.into()))
    }

    /// Returns the whole topic.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the segments from left to right.
    #[inline]
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        self.0.split('/')
    }

    /// Returns the first segment: the node, in topics that sensors publish.
    #[inline]
    pub fn node(&self) -> &str {
        self.segments().next().unwrap_or_default()
    }

    /// Returns the last segment: the metric.
    #[inline]
    pub fn metric(&self) -> &str {
        self.segments().next_back().unwrap_or_default()
    }
}

/// Makes the checks that topics and patterns share; `allowed` decides on each byte of a segment.
pub(crate) fn check(text: &str, allowed: impl Fn(&str, u8) -> bool) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::TopicEmpty);
    }
    if text.len() > MAX_TOPIC_BYTES {
        return Err(Error::TopicTooLong(text.len()));
    }
    let mut at = 0;
    let mut segments = 0;
    for segment in text.split('/') {
        segments += 1;
        if segment.is_empty() {
            return Err(Error::SegmentEmpty(text.to_owned()));
        }
        if let Some((offset, found)) =
            segment.char_indices().find(|&(_, c)| !c.is_ascii() || !allowed(segment, c as u8))
        {
            return Err(Error::SegmentCharacter { topic: text.to_owned(), found, at: at + offset });
        }
        at += segment.len() + 1;
    }
    if segments > MAX_TOPIC_SEGMENTS {
        return Err(Error::TopicTooDeep(segments));
    }
    Ok(())
}

impl FromStr for Topic {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({})", self.0)
    }
}

impl AsRef<str> for Topic {
    #[inline]
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Topic {
    #[inline]
    fn borrow(&self) -> &str {
        &self.0
    }
}
