use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::segment::is_segment_byte;

/// The longest topic. A directory entry of a segment keeps the topic in place, and 255 holds the
/// longest file name that Linux allows as an instance.
pub const MAX_TOPIC_BYTES: usize = 255;

/// The deepest topic. Twice what any sensor of ours needs; bounds the work of matching a pattern.
pub const MAX_TOPIC_SEGMENTS: usize = 16;

/// The name of one stream of samples: lower-case segments joined by `/`, most often
/// `node/subsystem/instance/metric`.
///
/// Always valid: not empty, at most [`MAX_TOPIC_BYTES`] bytes and [`MAX_TOPIC_SEGMENTS`] segments,
/// each of `a-z 0-9 _ - . : @ + = %` and not empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic(Box<str>);

impl Topic {
    /// Checks `text` and makes a topic of it.
    ///
    /// # Errors
    /// The first thing that is wrong with it; see [`Error`].
    pub fn new(text: &str) -> Result<Self, Error> {
        check(text, |_, byte| is_segment_byte(byte))?;
        Ok(Self(text.into()))
    }

    /// The whole topic.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments from left to right.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        self.0.split('/')
    }

    /// The first segment: the node, in topics that sensors publish.
    pub fn node(&self) -> &str {
        self.segments().next().unwrap_or_default()
    }

    /// The last segment: the metric.
    pub fn metric(&self) -> &str {
        self.segments().next_back().unwrap_or_default()
    }
}

/// The checks that topics and patterns share; `allowed` decides on each byte of a segment.
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
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Topic {
    fn borrow(&self) -> &str {
        &self.0
    }
}
