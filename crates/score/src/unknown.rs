use std::fmt;

use skopos_model::Value;

/// The reason why a value is unknown. The text names the missing thing and, if possible, its
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(Box<str>);

/// The result of an insight: a value, or the reason why there is none.
pub type Outcome = Result<Value, Unknown>;

impl Unknown {
    /// Creates an unknown value with `reason`.
    pub fn new(reason: impl Into<Box<str>>) -> Self {
        Self(reason.into())
    }

    /// Returns the reason.
    pub fn reason(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
