use std::fmt;

use thiserror::Error;

use crate::limits::MAX_SQL_BYTES;

/// The reasons for which a text is refused as a statement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is longer than [`MAX_SQL_BYTES`].
    #[error("the statement has {0} bytes; the maximum is {MAX_SQL_BYTES}")]
    TooLong(usize),
    /// The text is not SQL.
    #[error("{at}: {message}")]
    Syntax {
        /// The position of the first error.
        at: Position,
        /// The expected and the found text.
        message: String,
    },
    /// The text is SQL, but outside of the subset.
    #[error("{at}: {what} is not supported in an insight")]
    Refused {
        /// The position in the text.
        at: Position,
        /// The name of the construct.
        what: String,
        /// Advice: the supported form.
        hint: &'static str,
    },
    /// The name does not exist.
    #[error("{at}: there is no {what} `{name}`")]
    UnknownName {
        /// The position in the text.
        at: Position,
        /// `column`, `function` or `table`.
        what: &'static str,
        /// The name.
        name: String,
        /// The existing names, the nearest first.
        known: Vec<&'static str>,
    },
    /// The text is of the subset, but has no meaning.
    #[error("{at}: {what}")]
    Meaningless {
        /// The position in the text.
        at: Position,
        /// The mistake.
        what: String,
        /// Advice; empty if the error itself is enough.
        hint: &'static str,
    },
    /// The statement exceeds a bound.
    #[error("{at}: more than {most} {what}")]
    TooMany {
        /// The position of the first item beyond the bound.
        at: Position,
        /// The items that are bounded.
        what: &'static str,
        /// The bound.
        most: usize,
    },
}

impl Error {
    /// Returns advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused { hint, .. } | Self::Meaningless { hint, .. } => {
                (!hint.is_empty()).then(|| (*hint).to_owned())
            }
            Self::UnknownName { what, known, .. } => {
                let (nearest, others) = known.split_first()?;
                Some(match others {
                    [] => format!("the only {what} is `{nearest}`"),
                    [other] => format!("did you mean `{nearest}`? there is also {other}"),
                    _ => format!("did you mean `{nearest}`? there are also {}", others.join(", ")),
                })
            }
            Self::TooLong(_) | Self::Syntax { .. } | Self::TooMany { .. } => None,
        }
    }

    /// Returns the position of the mistake, if it has one.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::TooLong(_) => None,
            Self::Syntax { at, .. }
            | Self::Refused { at, .. }
            | Self::UnknownName { at, .. }
            | Self::Meaningless { at, .. }
            | Self::TooMany { at, .. } => Some(*at),
        }
    }
}

/// A position in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: u64,
    /// The character in the line, from 1.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
