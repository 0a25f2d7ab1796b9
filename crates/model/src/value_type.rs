use std::fmt;

/// The type of the values of a vertex. It never changes while the vertex lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueType {
    /// IEEE 754 double.
    F64 = 1,
    /// Signed 64-bit integer.
    I64 = 2,
    /// Unsigned 64-bit integer.
    U64 = 3,
    /// A small list, record or text; see [`Structured`](crate::Structured).
    Structured = 4,
}

impl ValueType {
    /// Returns the type with this code in a segment's directory.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::F64),
            2 => Some(Self::I64),
            3 => Some(Self::U64),
            4 => Some(Self::Structured),
            _ => None,
        }
    }

    /// Returns the code in a segment's directory.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name: `f64`, `i64`, `u64` or `structured`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::Structured => "structured",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
