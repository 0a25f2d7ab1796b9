use std::fmt;

use skopos_model::Value;

/// Why there is no value: in words that say what is missing and, if known, what would change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(Box<str>);

/// What an insight comes to.
pub type Outcome = Result<Value, Unknown>;

impl Unknown {
    /// Unknown because of `reason`.
    pub fn new(reason: impl Into<Box<str>>) -> Self {
        Self(reason.into())
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
