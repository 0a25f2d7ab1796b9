use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::structured::Structured;
use crate::value_type::ValueType;

impl ValueType {
    /// Reads `text` as a value of this type.
    ///
    /// # Errors
    /// [`Error::Value`] if it is not a value of this type; the errors of [`Structured::from_json`] for
    /// [`ValueType::Structured`].
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

/// Reads a double. A number too large for a double is refused; infinity is written `inf`.
fn parse_f64(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    let has_digit = text.bytes().any(|b| b.is_ascii_digit());
    (number.is_finite() || !has_digit).then_some(number)
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
// Its methods and those of `Value` are inlined: other crates call them per sample, and release builds
// have no link-time optimisation.
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
    /// Returns the type.
    #[inline]
    pub const fn value_type(self) -> ValueType {
        match self {
            Self::F64(_) => ValueType::F64,
            Self::I64(_) => ValueType::I64,
            Self::U64(_) => ValueType::U64,
        }
    }

    /// Returns the 64 bits that a ring slot keeps.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        match self {
            Self::F64(v) => v.to_bits(),
            Self::I64(v) => v.cast_unsigned(),
            Self::U64(v) => v,
        }
    }

    /// Makes a scalar of the bits of a ring slot; `None` for [`ValueType::Structured`].
    #[inline]
    pub const fn from_bits(value_type: ValueType, bits: u64) -> Option<Self> {
        match value_type {
            ValueType::F64 => Some(Self::F64(f64::from_bits(bits))),
            ValueType::I64 => Some(Self::I64(bits.cast_signed())),
            ValueType::U64 => Some(Self::U64(bits)),
            ValueType::Structured => None,
        }
    }

    /// Returns the number as a double; integers beyond 2^53 are rounded.
    #[inline]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::F64(v) => v,
            Self::I64(v) => v as f64,
            Self::U64(v) => v as f64,
        }
    }
}

impl From<f64> for Scalar {
    #[inline]
    fn from(v: f64) -> Self {
        Self::F64(v)
    }
}

impl From<i64> for Scalar {
    #[inline]
    fn from(v: i64) -> Self {
        Self::I64(v)
    }
}

impl From<u64> for Scalar {
    #[inline]
    fn from(v: u64) -> Self {
        Self::U64(v)
    }
}

/// Narrower numbers become the number of 64 bits that holds each of them.
macro_rules! from_narrower {
    ($($narrow:ty => $variant:ident),*) => {$(
        impl From<$narrow> for Scalar {
            #[inline]
            fn from(v: $narrow) -> Self {
                Self::$variant(v.into())
            }
        }
    )*};
}
from_narrower!(f32 => F64, i8 => I64, i16 => I64, i32 => I64, u8 => U64, u16 => U64, u32 => U64, bool => U64);

impl From<usize> for Scalar {
    #[inline]
    fn from(v: usize) -> Self {
        // No machine has addresses of more than 64 bits.
        Self::U64(v as u64)
    }
}

impl From<isize> for Scalar {
    #[inline]
    fn from(v: isize) -> Self {
        Self::I64(v as i64)
    }
}

/// Converts a number; a structured value is not one.
impl TryFrom<&Value> for Scalar {
    type Error = ();

    #[inline]
    fn try_from(value: &Value) -> Result<Self, ()> {
        match value {
            Value::F64(v) => Ok(Self::F64(*v)),
            Value::I64(v) => Ok(Self::I64(*v)),
            Value::U64(v) => Ok(Self::U64(*v)),
            Value::Structured(_) => Err(()),
        }
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
    /// Returns the type.
    #[inline]
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::F64(_) => ValueType::F64,
            Self::I64(_) => ValueType::I64,
            Self::U64(_) => ValueType::U64,
            Self::Structured(_) => ValueType::Structured,
        }
    }

    /// Returns the number as a double; `None` if the value is structured. Integers beyond 2^53 are
    /// rounded.
    #[inline]
    pub const fn as_f64(&self) -> Option<f64> {
        match self {
            Self::F64(v) => Some(*v),
            Self::I64(v) => Some(*v as f64),
            Self::U64(v) => Some(*v as f64),
            Self::Structured(_) => None,
        }
    }

    /// Returns the value as JSON. A double that is not finite becomes `null`: JSON has no number for it.
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
    #[inline]
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::F64(v) => Self::F64(v),
            Scalar::I64(v) => Self::I64(v),
            Scalar::U64(v) => Self::U64(v),
        }
    }
}

impl From<Structured> for Value {
    #[inline]
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
