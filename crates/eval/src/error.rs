use std::fmt;

use thiserror::Error;

use crate::limits::MAX_SQL_BYTES;

/// Why a text is no statement that can be kept up to date.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Longer than [`MAX_SQL_BYTES`].
    #[error("the statement has {0} bytes, the most is {MAX_SQL_BYTES}")]
    TooLong(usize),
    /// No SQL at all.
    #[error("{at}: {message}")]
    Syntax {
        /// Where it stops to be SQL.
        at: Position,
        /// What was expected and what was found.
        message: String,
    },
    /// SQL that is not of the subset.
    #[error("{at}: {what} is outside of what an insight can say")]
    Refused {
        /// Where it stands.
        at: Position,
        /// The construct, by its name.
        what: String,
        /// What to write instead.
        hint: &'static str,
    },
    /// A name that there is not.
    #[error("{at}: there is no {what} `{name}`")]
    UnknownName {
        /// Where it stands.
        at: Position,
        /// `column`, `function` or `table`.
        what: &'static str,
        /// The name.
        name: String,
        /// All that there are, the nearest first.
        known: Vec<&'static str>,
    },
    /// Of the subset, but it cannot mean anything.
    #[error("{at}: {what}")]
    Meaningless {
        /// Where it stands.
        at: Position,
        /// What is wrong with it.
        what: String,
        /// What to write instead; empty if the error says it.
        hint: &'static str,
    },
    /// More of something than a statement may have.
    #[error("{at}: more than {most} {what}")]
    TooMany {
        /// Where the first one too many stands.
        at: Position,
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        most: usize,
    },
}

impl Error {
    /// What the user can do about it.
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

    /// Where it stands, if it is in one place.
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

/// A place in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: u64,
    /// The character in it, from 1.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
