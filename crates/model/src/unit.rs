use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::limits::MAX_UNIT_BYTES;

/// The unit of a value as a short text: `bytes`, `seconds`, `ratio`; empty for a plain number. Only
/// base units, as Prometheus names them; a ratio runs from 0 to 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unit {
    text: [u8; MAX_UNIT_BYTES],
    len: u8,
}

impl Unit {
    /// A plain number: a count of things.
    pub const NONE: Self = Self::known("");
    /// Bytes.
    pub const BYTES: Self = Self::known("bytes");
    /// Seconds.
    pub const SECONDS: Self = Self::known("seconds");
    /// A share from 0 to 1.
    pub const RATIO: Self = Self::known("ratio");

    /// Makes a unit that is known when the program is compiled.
    ///
    /// # Panics
    /// If `text` is not a unit. In a constant this is an error of the compiler.
    pub const fn known(text: &str) -> Self {
        match Self::checked(text) {
            Some(unit) => unit,
            None => panic!("not a unit"),
        }
    }

    /// Checks `text` and makes a unit of it.
    ///
    /// # Errors
    /// [`Error::Unit`] if it is longer than [`MAX_UNIT_BYTES`] or has a character that is not one of
    /// `a-z 0-9 _ / %`.
    pub fn new(text: &str) -> Result<Self, Error> {
        Self::checked(text).ok_or_else(|| Error::Unit(text.to_owned()))
    }

    const fn checked(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() > MAX_UNIT_BYTES {
            return None;
        }
        let mut unit = Self { text: [0; MAX_UNIT_BYTES], len: bytes.len() as u8 };
        let mut i = 0;
        while i < bytes.len() {
            if !matches!(bytes[i], b'a'..=b'z' | b'0'..=b'9' | b'_' | b'/' | b'%') {
                return None;
            }
            unit.text[i] = bytes[i];
            i += 1;
        }
        Some(unit)
    }

    /// Returns the text; empty for a plain number.
    #[inline]
    pub fn as_str(&self) -> &str {
        // `checked` lets only ASCII in.
        std::str::from_utf8(&self.text[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unit({})", self.as_str())
    }
}

impl FromStr for Unit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

/// The way in which a value moves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Only grows, until its source restarts at zero.
    Counter = 1,
    /// Goes up and down.
    Gauge = 2,
    /// One of a few conditions, or a fact that rarely changes.
    State = 3,
}

impl Kind {
    /// Returns the kind with this code in a segment's directory.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Counter),
            2 => Some(Self::Gauge),
            3 => Some(Self::State),
            _ => None,
        }
    }

    /// Returns the code in a segment's directory.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name: `counter`, `gauge` or `state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::State => "state",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::Counter, Self::Gauge, Self::State]
            .into_iter()
            .find(|k| k.name() == text)
            .ok_or_else(|| Error::Kind(text.to_owned()))
    }
}
