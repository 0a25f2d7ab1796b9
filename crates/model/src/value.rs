use std::fmt;
use std::str::FromStr;

use crate::{Error, Structured};

/// Which of the four value types a vertex holds. It never changes while the vertex lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueType {
    /// IEEE 754 double.
    F64 = 1,
    /// Signed 64-bit integer.
    I64 = 2,
    /// Unsigned 64-bit integer.
    U64 = 3,
    /// A small list, record or text; see [`Structured`].
    Structured = 4,
}

impl ValueType {
    /// The type with this code in a segment's directory.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::F64),
            2 => Some(Self::I64),
            3 => Some(Self::U64),
            4 => Some(Self::Structured),
            _ => None,
        }
    }

    /// The code in a segment's directory.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name: `f64`, `i64`, `u64` or `structured`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::Structured => "structured",
        }
    }

    /// Reads `text` as a value of this type.
    ///
    /// # Errors
    /// [`Error::Value`] if it is not one; the structured errors for [`ValueType::Structured`].
    pub fn parse_value(self, text: &str) -> Result<Value, Error> {
        let wrong = || Error::Value { text: text.to_owned(), wanted: self };
        Ok(match self {
            Self::F64 => Value::F64(parse_f64(text).ok_or_else(wrong)?),
            Self::I64 => Value::I64(text.parse().map_err(|_| wrong())?),
            Self::U64 => Value::U64(text.parse().map_err(|_| wrong())?),
            Self::Structured => Value::Structured(Structured::from_json(text)?),
        })
    }
}

/// A number too large for a double is none; infinity has to be written as such.
fn parse_f64(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    let has_digit = text.bytes().any(|b| b.is_ascii_digit());
    (number.is_finite() || !has_digit).then_some(number)
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ValueType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::F64, Self::I64, Self::U64, Self::Structured]
            .into_iter()
            .find(|t| t.name() == text)
            .ok_or_else(|| Error::ValueType(text.to_owned()))
    }
}

/// A number as sensors yield it: small, copied freely, never allocated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// IEEE 754 double.
    F64(f64),
    /// Signed 64-bit integer.
    I64(i64),
    /// Unsigned 64-bit integer.
    U64(u64),
}

impl Scalar {
    /// Its type.
    pub const fn value_type(self) -> ValueType {
        match self {
            Self::F64(_) => ValueType::F64,
            Self::I64(_) => ValueType::I64,
            Self::U64(_) => ValueType::U64,
        }
    }

    /// The 64 bits that a ring slot keeps.
    pub const fn to_bits(self) -> u64 {
        match self {
            Self::F64(v) => v.to_bits(),
            Self::I64(v) => v.cast_unsigned(),
            Self::U64(v) => v,
        }
    }

    /// From the bits of a ring slot; `None` for [`ValueType::Structured`].
    pub const fn from_bits(value_type: ValueType, bits: u64) -> Option<Self> {
        match value_type {
            ValueType::F64 => Some(Self::F64(f64::from_bits(bits))),
            ValueType::I64 => Some(Self::I64(bits.cast_signed())),
            ValueType::U64 => Some(Self::U64(bits)),
            ValueType::Structured => None,
        }
    }

    /// As a double; integers beyond 2^53 are rounded.
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::F64(v) => v,
            Self::I64(v) => v as f64,
            Self::U64(v) => v as f64,
        }
    }
}

impl From<f64> for Scalar {
    fn from(v: f64) -> Self {
        Self::F64(v)
    }
}

impl From<i64> for Scalar {
    fn from(v: i64) -> Self {
        Self::I64(v)
    }
}

impl From<u64> for Scalar {
    fn from(v: u64) -> Self {
        Self::U64(v)
    }
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// IEEE 754 double.
    F64(f64),
    /// Signed 64-bit integer.
    I64(i64),
    /// Unsigned 64-bit integer.
    U64(u64),
    /// A small list, record or text.
    Structured(Structured),
}

impl Value {
    /// Its type.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::F64(_) => ValueType::F64,
            Self::I64(_) => ValueType::I64,
            Self::U64(_) => ValueType::U64,
            Self::Structured(_) => ValueType::Structured,
        }
    }

    /// As a double, unless structured; integers beyond 2^53 are rounded.
    pub const fn as_f64(&self) -> Option<f64> {
        match self {
            Self::F64(v) => Some(*v),
            Self::I64(v) => Some(*v as f64),
            Self::U64(v) => Some(*v as f64),
            Self::Structured(_) => None,
        }
    }

    /// As JSON; a double that is not finite becomes `null`, which is all that JSON has for it.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::F64(v) => serde_json::Value::from(*v),
            Self::I64(v) => serde_json::Value::from(*v),
            Self::U64(v) => serde_json::Value::from(*v),
            Self::Structured(s) => s.as_json().clone(),
        }
    }
}

impl From<Scalar> for Value {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::F64(v) => Self::F64(v),
            Scalar::I64(v) => Self::I64(v),
            Scalar::U64(v) => Self::U64(v),
        }
    }
}

impl From<Structured> for Value {
    fn from(s: Structured) -> Self {
        Self::Structured(s)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F64(v) => fmt::Display::fmt(v, f),
            Self::I64(v) => fmt::Display::fmt(v, f),
            Self::U64(v) => fmt::Display::fmt(v, f),
            Self::Structured(s) => fmt::Display::fmt(s, f),
        }
    }
}
