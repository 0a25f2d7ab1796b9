use std::fmt;
use std::str::FromStr;

use crate::segment::is_segment_byte;
use crate::topic::check;
use crate::{Error, Topic};

/// Selects topics: `*` stands for any run of characters inside one segment, `**` alone for any
/// number of whole segments (none too).
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
    /// As for [`Topic::new`], and [`Error::PatternDoubleStar`].
    pub fn new(text: &str) -> Result<Self, Error> {
        check(text, |_, byte| byte == b'*' || is_segment_byte(byte))?;
        if text.split('/').any(|segment| segment != "**" && segment.contains("**")) {
            return Err(Error::PatternDoubleStar(text.to_owned()));
        }
        Ok(Self(text.into()))
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The one topic that this pattern can match, if it has no wildcard.
    pub fn as_topic(&self) -> Option<Topic> {
        if self.0.contains('*') { None } else { Topic::new(&self.0).ok() }
    }

    /// True if the pattern selects `topic`. Allocates nothing; the work is bounded by the product
    /// of both lengths.
    pub fn matches(&self, topic: &Topic) -> bool {
        self.matches_str(topic.as_str())
    }

    /// As [`matches`](Self::matches), for a text that is known to be a topic.
    pub fn matches_str(&self, topic: &str) -> bool {
        // The classic two-finger walk: on a mismatch, go back to the last `**` and let it take one
        // segment more.
        let mut pattern = Some(&*self.0);
        let mut topic = Some(topic);
        let mut back: Option<(Option<&str>, Option<&str>)> = None;
        while let Some(text) = topic {
            let (segment, topic_rest) = split_first(text);
            let step = pattern.map(split_first);
            if let Some(("**", rest)) = step {
                back = Some((rest, topic_rest));
                pattern = rest;
                continue;
            }
            match step {
                Some((glob, rest)) if glob_matches(glob, segment) => {
                    pattern = rest;
                    topic = topic_rest;
                }
                _ => match back {
                    Some((rest, retry)) => {
                        pattern = rest;
                        topic = retry;
                        back = Some((rest, retry.and_then(|text| split_first(text).1)));
                    }
                    None => return false,
                },
            }
        }
        // The topic is used up: only `**` may be left.
        while let Some(text) = pattern {
            let ("**", rest) = split_first(text) else { return false };
            pattern = rest;
        }
        true
    }
}

fn split_first(text: &str) -> (&str, Option<&str>) {
    match text.split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (text, None),
    }
}

/// `*` inside one segment, by the same walk over bytes.
fn glob_matches(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut g, mut t) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while t < text.len() {
        if g < glob.len() && glob[g] == b'*' {
            g += 1;
            back = Some((g, t));
        } else if g < glob.len() && glob[g] == text[t] {
            g += 1;
            t += 1;
        } else if let Some((after_star, taken)) = back {
            g = after_star;
            t = taken + 1;
            back = Some((after_star, t));
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|&byte| byte == b'*')
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
